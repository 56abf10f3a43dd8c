"""Is: the store that the controller lives on, after ZooKeeper's model: versioned nodes, ephemerals, watches.

Takes: atomic lists of operations. Gives: results and watch events, as callbacks on the broker's thread.
Never: knows what the nodes mean.
"""
