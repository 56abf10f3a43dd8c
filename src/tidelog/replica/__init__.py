"""Is: the leader and follower side of the partitions on this broker: ISR, high watermark, fencing.

Takes: batches, fetches, leadership changes, the time. Gives: append results, readable slices, what became visible.
Never: reads a clock or a socket; decides who leads (that is control's).
"""
