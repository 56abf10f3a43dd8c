"""Is: a pytest plugin with a real broker as a fixture, for any project that installed tidelog.

Takes: configuration overrides. Gives: a running broker's bootstrap address.
Never: needs more than tidelog itself and pytest.
"""
