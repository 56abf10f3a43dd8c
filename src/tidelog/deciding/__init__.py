"""Is: the kernel of a coordinator (group, txn): a turn and its decision, refusals, shards, errors of storage in words.

Takes: nothing of its own. Gives: the vocabulary in which a coordinator says what to append, answer and time, and the
contract by which `coordinator` runs it.
Never: knows what a group or a transaction is; reads a clock, a socket or a file.
"""
