"""Compaction of logs under `cleanup.policy=compact`.

Is: which log to compact next, a round over it on a worker, and the swap of what came of it.
Takes: the logs of a broker, the time, limits on memory and throughput.
Gives: work for a worker; logs in which each key occurs once below the cleaned offset.
Never: touches what is shared while it is on a worker.
"""
