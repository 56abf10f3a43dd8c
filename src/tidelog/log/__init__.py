"""Is: one partition on disk: segments, indexes, producer state, leader epochs, recovery, retention.

Takes: validated batches to append, offsets to read, the time. Gives: offsets, and slices of files to send.
Never: knows of leaders, requests or sockets; reads a clock. The disk is reached through `log.disk.Disk` only.
"""
