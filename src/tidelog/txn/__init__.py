"""Is: the transaction coordinator and the producer ids.

Takes: requests with a ticket, fired timers, records to replay, the time. Gives: decisions (records, replies, timers).
Never: reads a clock, a socket or a file; changes durable state outside `replay`.
"""
