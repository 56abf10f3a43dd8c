"""Is: the transaction coordinator: transactional ids, their producer ids and epochs, and how each transaction ends.

Takes: requests with a ticket, fired timers, written markers, records to replay, the time.
Gives: decisions (records, replies, timers, markers to write).
Never: reads a clock, a socket or a file; changes durable state outside `replay`.
"""
