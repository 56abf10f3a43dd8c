"""Is: what the deciding rooms (group, txn) have in common: the decision that they give back, and its parts.

Takes: nothing. Gives: the vocabulary in which a coordinator says what is to be appended, answered and timed.
Never: decides anything itself; reads a clock, a socket or a file.
"""
