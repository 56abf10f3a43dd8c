"""Is: hierarchical timing wheels driven by a delay queue of buckets, and the requests parked in them.

Takes: deadlines, cancellations, the time. Gives: the callbacks that are due, and when to come back.
Never: reads a clock or sleeps.
"""
