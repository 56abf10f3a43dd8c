"""Is: a whole cluster in one process, under simulated time and with faults; one seed is one run, in any process.

Takes: a seed, and how long and how badly things are to go. Gives: the first promise that was broken, and its story.
Never: does anything that a broker does: the brokers are the product's own, and only the edges of their world (network,
disk, metadata ensemble, clock, process) are replaced.
"""
