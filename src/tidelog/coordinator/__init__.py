"""Is: what runs the deciding rooms (group, txn) over the partitions of their internal topics.

Takes: decisions, the partitions that this broker leads, timers that are due. Gives: records appended and replayed,
replies once they are committed, transaction markers written, transactions verified, producer ids.
Never: decides what a group or a transaction does.
"""
