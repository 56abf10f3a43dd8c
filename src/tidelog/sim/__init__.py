"""A whole cluster in one process, under simulated time and with faults: one seed is one run, exactly repeatable.

Brokers are the product's own, with the wiring that `server` gives them. Only the edges are replaced: network, disk,
metadata ensemble, clock and process. docs/simulation.md tells how to use it and what it has found.
"""
