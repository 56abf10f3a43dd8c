"""Anything may happen to a cluster in any order; what `Invariants` says holds after every step.

Runs with a store that takes any transaction at once, and with one that takes a few operations at a time, where most of
what happens is done as work.
"""

from __future__ import annotations

from control_cluster import Cluster, Invariants, run_line
from hypothesis import given, settings
from hypothesis import strategies as st

brokers = st.integers(1, 3)
topics = st.sampled_from(["t", "u"])
partitions = st.builds(lambda topic, index: f"{topic}-{index}", topics, st.integers(0, 2))
some_brokers = st.lists(brokers, min_size=1, max_size=3, unique=True).map(lambda b: ",".join(map(str, b)))

commands = st.one_of(
    *[st.builds("{} toggles".format, brokers)] * 4,
    st.builds("{} bounces".format, brokers),
    st.builds("{} shuts".format, brokers),
    st.builds("{} recovers".format, brokers),
    st.builds("{} wants".format, brokers),
    st.builds("create {}:{}x{}".format, topics, st.integers(1, 3), st.integers(1, 3)),
    st.just("delete u"),
    st.builds("grow {} 3".format, topics),
    st.builds("alter topic {} unclean.leader.election.enable={}".format, topics, st.sampled_from(["true", "false"])),
    *[st.builds("isr {} {}".format, partitions, some_brokers)] * 4,
    st.builds("elect preferred {}".format, partitions),
    st.builds("elect unclean {}".format, partitions),
    *[st.builds("move {} {}".format, partitions, some_brokers)] * 2,
    st.builds("move {} cancel".format, partitions),
    st.just("balance"),
)


def run(cluster: Cluster, command: str) -> None:
    broker = int(command[0]) if command[0].isdigit() else None
    if command.endswith("toggles"):
        command = f"{broker} {'dies' if broker in cluster.controllers else 'starts'}"
    elif not any(c.is_active for c in cluster.controllers.values()):
        return
    if command.endswith("bounces") and broker not in cluster.controllers:
        return
    if command.startswith("isr"):
        name, _, index = command.split()[1].rpartition("-")
        if cluster.leader.image.partition(name, int(index)) is None:
            return
    run_line(cluster, command)


@settings(deadline=None, max_examples=150)
@given(st.lists(commands, min_size=20, max_size=60), st.sampled_from([None, 3, 7]))
def test_invariants_hold_whatever_happens(script: list[str], max_ops: int | None) -> None:
    cluster, invariants = Cluster(max_ops), Invariants()
    for broker in (1, 2, 3):
        cluster.start(broker)
    for command in ["create t:2x3", "create u:2x2", *script]:
        run(cluster, command)
        invariants.check(cluster)
