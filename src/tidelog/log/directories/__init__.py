"""The log directories of a broker, and the logs in them.

Is: which directories belong together, how what lies in them becomes logs again after a stop or a crash, where a new
log goes, and how one moves.
Takes: paths, a disk, what the cluster's metadata places here, the time.
Gives: logs, those that are offline, and notices of what was lost or set aside.
Never: compacts; makes anew what may lie in a directory that is missing.
"""
