"""Random histories (see txn_world): answers lost, requests repeated, coordinators replaced in the middle of anything.

Checked after every step: the log tells a possible story (states follow the table, epochs never go back, what is
prepared is completed with the same outcome), and loading it gives what living gave. Checked in the end: every
transaction is committed or aborted in all its partitions, as its producer was told, and none is left open.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from txn_world import Producer, World

from tidelog.txn.transaction import TopicPartition
from tidelog.wire.errors import ErrorCode

PRODUCERS = [("p1", "x", 1), ("q1", "x", 1), ("p2", "x", 2), ("q2", "x", 2), ("r1", "y", 1), ("r2", "z", 2)]
NAMES = st.sampled_from([name for name, _, _ in PRODUCERS])


class Histories(RuleBasedStateMachine):
    @initialize(level=st.sampled_from([0, 1, 2]), old=st.booleans(), partitions=st.sampled_from([1, 3]))
    def begin(self, level: int, old: bool, partitions: int) -> None:
        self.world = World(transaction_version=level, num_partitions=partitions)
        for name, transactional_id, version in PRODUCERS:
            self.world.producers[name] = Producer(name, transactional_id, version)
        for producer_id, transactional_id in enumerate("xyz" if old else ""):
            self.world.grow_old(transactional_id, producer_id)

    def idle(self, name: str) -> Producer | None:
        producer = self.world.producers[name]
        return producer if producer.task is None else None

    @rule(name=NAMES, keep_identity=st.booleans())
    def initialise(self, name: str, keep_identity: bool) -> None:
        producer = self.idle(name)
        if producer is None or (producer.alive and producer.in_transaction):
            return
        producer.task = ("init", keep_identity and producer.alive)
        self.world.request(producer)

    @rule(name=NAMES, index=st.integers(0, 2))
    def write(self, name: str, index: int) -> None:
        producer = self.idle(name)
        if producer is None or not producer.alive or producer.must_abort:
            return
        producer.task = ("add" if producer.version == 1 else "write", TopicPartition("t", index))
        self.world.request(producer)
        if producer.task is not None and producer.task[0] == "write" and producer.ticket is None:
            self.world.request(producer)

    @rule(name=NAMES, commit=st.booleans())
    def end(self, name: str, commit: bool) -> None:
        producer = self.idle(name)
        if producer is None or not producer.alive or not producer.in_transaction:
            return
        producer.task = ("end", commit and not producer.must_abort)
        self.world.request(producer)

    @rule(name=NAMES)
    def repeat(self, name: str) -> None:
        """The answer is late or lost, or said that the coordinator was busy."""
        producer = self.world.producers[name]
        if producer.task is not None:
            self.world.request(producer)

    @rule(name=NAMES)
    def die(self, name: str) -> None:
        """The process is gone; what it had under way may still arrive, but nobody waits for the answer."""
        producer = self.world.producers[name]
        producer.task, producer.ticket, producer.alive = None, None, False

    @precondition(lambda self: self.world.network)
    @rule(index=st.integers(0, 99), fate=st.sampled_from(["fine", "fine", "lost on the way", "answer lost"]))
    def marker(self, index: int, fate: str) -> None:
        self.world.deliver_marker(index, fate)

    @rule(ms=st.sampled_from([1, 100, 5_000, 11_000]))
    def time_passes(self, ms: int) -> None:
        self.world.advance(ms)

    @rule()
    def hold(self) -> None:
        self.world.holding = True

    @rule()
    def commit(self) -> None:
        self.world.holding = False
        self.world.commit()

    @rule(error=st.sampled_from([ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.REQUEST_TIMED_OUT]))
    def append_fails(self, error: ErrorCode) -> None:
        self.world.fail_next = error

    @rule(lost=st.integers(0, 5))
    def coordinator_dies(self, lost: int) -> None:
        world = self.world
        world.holding = False
        world.restart(max(world.committed, len(world.log) - lost))

    @rule(there=st.booleans())
    def the_block_of_producer_ids_is_used_up_or_there(self, there: bool) -> None:
        self.world.out_of_ids = not there

    @invariant()
    def the_log_tells_a_possible_story(self) -> None:
        if hasattr(self, "world"):
            self.world.check_log()

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.settle()
            self.world.check_log()
            self.world.check_outcomes()


Histories.TestCase.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
TestHistories = Histories.TestCase
