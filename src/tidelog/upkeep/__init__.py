"""Is: what a broker does from time to time, unasked: retention, flushes, checkpoints, compaction, moves between disks.

Takes: the data plane and a timer. Gives: logs that stay within their limits, and lines about disks that fail or fill.
Never: answers a request; blocks the broker's thread for a disk.
"""
