"""Is: the transaction coordinator: transactional ids, their producer ids and epochs, and how each transaction ends.

Takes: what is asked, as values with a ticket; fired timers, written markers, records to replay, the time.
Gives: decisions (records, outcomes for tickets, timers, markers to write).
Never: reads a clock, a socket or a file; changes durable state outside `replay`; knows a request or its version.
"""
