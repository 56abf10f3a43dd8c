"""Random histories of a cluster under load, one seed each: brokers die and come back, one at a time or all at once and
without a disk; networks are cut, leaders move, replicas are reassigned, messages are late. A producer that wants to be
acknowledged by all writes all the time.

In the end everything acknowledged is there, once, at the offset that was acknowledged, and all replicas are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest
from replica_cluster import Produced, ReplicaCluster, batch, values

from seeds import seeds
from tidelog.net.memory_network import Weather
from tidelog.peers.requester import Failure
from tidelog.wire.errors import ErrorCode

STEPS = 40


class History:
    def __init__(self, seed: int, layouts: Sequence[str] = ()) -> None:
        self.random = Random(seed)
        self.cluster = ReplicaCluster(4, seed=seed, layouts=layouts)
        self.cluster.topic(min_insync_replicas="2")
        self.cluster.network.weather = Weather(0, 5, 0.02, 50)
        self.under_way: list[tuple[bytes, Produced]] = []
        self.acknowledged: dict[int, bytes] = {}
        self.written = 0
        self.cut: tuple[int, ...] | None = None

    def run(self) -> None:
        steps = [
            self.kill,
            self.start,
            self.start,
            self.separate,
            self.separate,
            self.join,
            self.elect,
            self.reassign,
            self.black_out,
            self.nothing,
        ]
        for _ in range(STEPS):
            self.random.choice(steps)()
            for _ in range(self.random.randrange(1, 5)):
                self.write()
                self.cluster.run(self.random.randrange(1, 400))
            self.collect()
        self.calm_down()

    # --- what happens -------------------------------------------------------------------------------

    def write(self) -> None:
        leader = self.cluster.leader("t", 0)
        if leader not in self.cluster.nodes:
            return
        self.written += 1
        value = b"%d" % self.written
        self.under_way.append((value, self.cluster[leader].produce(batch(1, value), timeout_ms=2000)))

    def collect(self) -> None:
        waiting = []
        for value, asked in self.under_way:
            if not asked.is_answered:
                waiting.append((value, asked))
            elif not isinstance(asked.outcome, Failure):
                code, offset = asked.result
                if code == ErrorCode.NONE:
                    assert offset not in self.acknowledged, f"{offset} was acknowledged twice"
                    self.acknowledged[offset] = value
        self.under_way = waiting

    def kill(self) -> None:
        """One at a time: two of three replicas are to stay."""
        if len(self.cluster.nodes) == 4 and self.cut is None:
            self.cluster.kill(self.random.choice(list(self.cluster.nodes)))

    def black_out(self) -> None:
        """All die at once. Where all replicas had everything, one may lose its disk, and be back before the others."""
        if len(self.cluster.nodes) < 4 or self.cut is not None:
            return
        one = self.random.choice(list(self.cluster.nodes))
        may_lose = self.is_whole()
        for node in [self.cluster.kill(broker, expire=False) for broker in list(self.cluster.nodes)]:
            self.cluster.expire(node)
        if may_lose and self.random.random() < 0.7:
            self.cluster[one].lose_disk()
        self.cluster.begin(one)
        self.cluster.run(self.random.randrange(2_000))

    def start(self) -> None:
        for broker in set(self.cluster.sites) - set(self.cluster.nodes):
            self.cluster.begin(broker)

    def separate(self) -> None:
        """A broker that is not the controller, from one other or from all of them; clients still reach it."""
        if self.cut is None and len(self.cluster.nodes) == 4 and self._has_controller():
            one = self.random.choice([node.id for node in self.cluster.followers])
            others = [broker for broker in self.cluster.sites if broker != one]
            self.cut = (one, *self.random.choice((others, self.random.sample(others, 1))))
            self.cluster.separate(*self.cut)

    def join(self) -> None:
        if self.cut is not None:
            self.cluster.join(*self.cut)
            self.cut = None

    def elect(self) -> None:
        if self._has_controller():
            self.cluster.controller.broker.cluster.decide(
                lambda room: room.elect_leaders(0, [("t", 0)]), lambda _: None
            )

    def reassign(self) -> None:
        if self._has_controller() and len(self.cluster.nodes) == 4 and self.cut is None:
            self.cluster.reassign_unheard(self.random.sample(range(1, 5), 3))

    def nothing(self) -> None:
        pass

    def _has_controller(self) -> bool:
        return sum(node.is_controller for node in self.cluster.nodes.values()) == 1

    # --- what must hold -----------------------------------------------------------------------------

    def calm_down(self) -> None:
        cluster = self.cluster
        self.join()
        cluster.network.weather = Weather()
        self.start()
        cluster.run_until(lambda: all(node.is_ready for node in cluster.nodes.values()))
        # What the leader asked for while it was cut off is decided only now.
        cluster.run(3000)
        cluster.run_until(self.is_whole)
        cluster.write("t", batch(1, b"last"))
        cluster.run(3000)
        self.collect()
        assigned = cluster.stored.partition("t", 0)
        assert assigned is not None
        assert len(cluster.contents("t", *assigned.replicas)) == 1
        found = values(cluster.leading().partition())
        assert {offset: found[offset] for offset in self.acknowledged} == self.acknowledged
        assert len(found) == len(set(found)), "something was written twice"
        cluster.check()

    def is_whole(self) -> bool:
        assigned = self.cluster.stored.partition("t", 0)
        assert assigned is not None
        return not assigned.is_reassigning and set(assigned.isr) == set(assigned.replicas)


@pytest.mark.parametrize("seed", seeds(range(2), fresh=2))
def test_what_a_cluster_acknowledged_under_faults_is_there_once_on_every_replica(seed: int) -> None:
    print(f"seed {seed}")
    history = History(seed)
    history.run()
    assert len(history.acknowledged) > 20


@pytest.mark.parametrize("seed", seeds(range(1), fresh=1))
def test_brokers_of_both_layouts_keep_what_they_acknowledged_under_faults(seed: int) -> None:
    print(f"seed {seed}")
    history = History(seed, ("shared", "partitioned", "shared", "partitioned"))
    history.run()
    assert len(history.acknowledged) > 20
