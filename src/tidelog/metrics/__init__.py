"""Is: what a broker tells whoever watches it: metrics for Prometheus, and whether it lives and is ready, over HTTP.

Takes: the broker's rooms, to read their numbers. Gives: pages on a port of their own, made in slices on the loop.
Never: changes anything; does work while nobody asks.
"""
