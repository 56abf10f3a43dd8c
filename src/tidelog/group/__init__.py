"""Is: the group coordinator: classic and consumer (KIP-848) groups, and their committed offsets.

Takes: what is asked with a ticket, fired timers, records, the time. Gives: decisions (records, outcomes, timers).
Never: reads a clock, a socket or a file; sees messages or versions of an API; changes durable state outside `replay`.
"""
