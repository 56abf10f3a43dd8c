"""Is: the controller: brokers, topics, partitions, leaders, configurations, elections.

Takes: requests, store events, the time. Gives: operations for the metadata store, replies, state for the brokers.
Never: reads a clock, a socket or a file; holds truth that is not in the store.
"""
