"""Is: messages that wait for their time, decided as group and txn decide: records and replay.

Takes: the due times that were found in a partition, the time, and what became of a delivery. Gives: pictures to append
to the partition itself, and parcels to deliver once they are committed.
Never: reads a log, a clock or a socket; changes durable state anywhere but in `replay`.
"""
