"""Is: the group coordinator: classic and consumer (KIP-848) groups, and their committed offsets.

Takes: requests with a ticket, fired timers, records to replay, the time. Gives: decisions (records, replies, timers).
Never: reads a clock, a socket or a file; changes durable state outside `replay`.
"""
