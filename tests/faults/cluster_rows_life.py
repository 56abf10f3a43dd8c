"""Rows of the table of faults: reassignments, slow followers, an ensemble, coordinators and transactions."""

from __future__ import annotations

import contextlib
import json
import threading
import time
import uuid
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from tests.faults.cluster_judge import Verdict
from tests.faults.cluster_oracle import ClusterOracle, Reader
from tests.faults.cluster_rows import row
from tests.faults.clusterkit import SESSION_MS, FaultFailed, Stage, until

from tidelog.client import Client
from tidelog.metadata.zookeeper_server import ZooKeeperEnsemble

#: what members hear while their coordinator moves, and while their group rebalances
MOVING = {
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
}
REBALANCING = {KafkaError.REBALANCE_IN_PROGRESS, KafkaError.ILLEGAL_GENERATION}


@row("slow-follower")
def slow_follower(seconds: float = 20) -> Verdict:
    """A follower is slow, but within what it may lag: the ISR does not flap, and no reader goes back."""
    with Stage() as stage:
        stage.load()
        leader = stage.leader()
        slow = stage.cluster.brokers[next(i for i in stage.cluster.brokers if i != leader)]
        before = {p: stage.read(_state_path(stage, p))[1].version for p in range(6)}
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            slow.pause()
            time.sleep(1.2)
            slow.resume()
            time.sleep(0.3)
        after = {p: stage.read(_state_path(stage, p))[1].version for p in range(6)}
        flaps = max(after[p] - before[p] for p in before)
        stage.figures["most ISR changes"] = flaps
        stage.claim(flaps <= 2, "flapping", f"the ISR changed {flaps} times in {seconds:g} s")
        return stage.judge()


def _state_path(stage: Stage, partition: int) -> str:
    return f"/brokers/topics/{stage.topic}/partitions/{partition}/state"


@row("reassignment")
def reassignment(partitions: int = 100) -> Verdict:
    """The controller is killed while 100 partitions move: they arrive, or are cancelled, within 60 s."""
    with Stage(brokers=4) as stage:
        stage.load(partitions=6, transactional=0)
        with Client(stage.cluster.bootstrap) as client:
            client.admin.create_topic("moving", assignments={p: [1, 2] for p in range(partitions)})
            producer = Producer({"bootstrap.servers": stage.cluster.bootstrap, "acks": "all", "log_level": 2})
            for number in range(partitions * 20):
                producer.produce("moving", b"x" * 500, partition=number % partitions)
            producer.flush(60)
            moves = [{"topic": "moving", "partition": p, "replicas": [3, 4]} for p in range(partitions)]
            plan = json.dumps({"version": 1, "partitions": moves}).encode()
            stage.zookeeper.create("/admin/reassign_partitions", plan)
            until(lambda: any(3 in replicas for replicas in stage.replicas("moving").values()), "the moves begin")
            controller = stage.controller()
            assert controller is not None
            stage.cluster.brokers[controller].kill()

            def moved() -> bool:
                return all(sorted(replicas) == [3, 4] for replicas in stage.replicas("moving").values()) and all(
                    stage.isr("moving", p) == [3, 4] for p in range(partitions)
                )

            if controller in (3, 4):
                stage.cluster.brokers[controller].start()
            stage.figures["moved s"] = round(until(moved, "100 partitions on 3 and 4", 60), 1)
            if controller not in (3, 4):
                stage.cluster.brokers[controller].start()

            def cleared() -> bool:
                # One that was away while they moved keeps them aside.
                old = [path for i in (1, 2) for path in stage.cluster.brokers[i].data_dir.glob("moving-*")]
                return all(path.name.endswith("-stray") for path in old)

            stage.figures["old files gone s"] = round(until(cleared, "old replicas removed", 90), 1)
        return stage.judge()


@row("ensemble")
def ensemble() -> Verdict:
    """An ensemble of three ZooKeeper servers with one down, then another one: traffic goes on without a stall."""
    import tempfile

    with (
        tempfile.TemporaryDirectory(prefix="faults-ensemble-") as directory,
        ZooKeeperEnsemble(directory, tick_ms=500) as servers,
        Stage(zookeeper=servers.connect + "/tidelog") as stage,
    ):
        stage.load()
        epoch = stage.controller_epoch()
        for server in servers.servers:
            server.kill()
            stage.flow(seconds=5)
            server.start()
            stage.flow(seconds=2)
        until(lambda: stage.registered() == [1, 2, 3], "all registered")
        stage.figures["controllers since"] = stage.controller_epoch() - epoch
        return stage.judge(errors_allowed=False)


@row("idle-kill")
def idle_kill(idle_s: float = 60) -> Verdict:
    """kill -9 of brokers that were idle, with transactions in their history: all that was committed shows at once."""
    with Stage() as stage:
        oracle = stage.load(seconds=4)
        for thread in (*oracle.writers, *oracle.transactors):
            thread.stop()
            thread.join()
        time.sleep(idle_s)
        for broker in stage.cluster.brokers.values():
            broker.kill()
        stage.cluster.start()
        reader = Reader(
            stage.cluster.bootstrap, oracle.transacted, oracle.partitions, "reader after the kill", "read_committed"
        )
        reader.start()
        wanted = sum(len(writer.outcomes.committed) for writer in oracle.transactors) * oracle.partitions
        try:
            stage.figures["visible s"] = round(until(lambda: len(reader.seen) >= wanted, "all committed", 30), 1)
        except FaultFailed:
            stage.broken("visible", f"{len(reader.seen)} of {wanted} committed records are visible")
        reader.stop()
        return stage.judge()


def _coordinator(stage: Stage, topic: str, key: str) -> int:
    """Which broker coordinates a group or transactional id: the leader of the partition that its hash names."""
    partitions = len(stage.replicas(topic))
    value = 0
    for character in key:
        value = (31 * value + ord(character)) & 0xFFFFFFFF
    return stage.leader(topic, (value & 0x7FFFFFFF) % partitions)


class Member(threading.Thread):
    """A member of a group that commits what it has read, and never finds less committed than was acknowledged."""

    def __init__(self, bootstrap: str, topic: str, group: str, committed: dict[int, int]) -> None:
        super().__init__(daemon=True)
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": SESSION_MS,
                "heartbeat.interval.ms": 500,
                "reconnect.backoff.max.ms": 200,
                "log_level": 2,
                "error_cb": lambda error: self.told.add(error.code()),
            }
        )
        #: the codes that the client was not able to keep to itself
        self.told: set[int] = set()
        self._topic = topic
        self._committed = committed
        self._stopping = threading.Event()
        self.errors: list[str] = []
        self.read = 0

    def run(self) -> None:
        self._consumer.subscribe([self._topic], on_assign=self._assigned)
        while not self._stopping.is_set():
            polled = self._consumer.consume(500, 0.3)
            self.told.update(m.error().code() for m in polled if m.error() is not None)
            messages = [m for m in polled if m.error() is None]
            if not messages:
                continue
            self.read += len(messages)
            try:
                for place in self._consumer.commit(asynchronous=False) or ():
                    if place.error is not None:
                        self.told.add(place.error.code())
                    elif place.offset > self._committed.get(place.partition, -1):
                        self._committed[place.partition] = place.offset
            except KafkaException as error:
                self.told.add(error.args[0].code())
        self._consumer.close()

    def _assigned(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        with contextlib.suppress(KafkaException):
            known = dict(self._committed)
            for place in consumer.committed(places, 20):
                if place.error is None and place.offset < known.get(place.partition, -1001):
                    self.errors.append(f"{place.partition} is at {place.offset} after {known[place.partition]}")

    def stop(self) -> None:
        self._stopping.set()
        self.join(60)


@row("group-coordinator")
def group_coordinator(times: int = 3) -> Verdict:
    """The group coordinator is killed in a rebalance: the group is stable again, and no committed offset is lost."""
    with Stage() as stage:
        oracle = stage.load(transactional=0)
        group, committed = f"group-{uuid.uuid4().hex[:6]}", dict[int, int]()
        members = [Member(stage.cluster.bootstrap, stage.topic, group, committed) for _ in range(2)]
        for member in members:
            member.start()
        until(lambda: len(committed) == oracle.partitions, "first commits", 60)
        slowest = 0.0
        for _ in range(times):
            members.append(Member(stage.cluster.bootstrap, stage.topic, group, committed))
            members[-1].start()  # a rebalance begins
            victim = _coordinator(stage, "__consumer_offsets", group)
            stage.cluster.brokers[victim].kill()
            before = dict(committed)
            slowest = max(
                slowest,
                until(lambda before=before: all(committed[p] > before[p] for p in before), "commits go on", 60),  # type: ignore[misc]
            )
            stage.cluster.brokers[victim].start()
            stage.await_in_sync(stage.topic)
        stage.figures["slowest group s"] = round(slowest, 1)
        stage.claim(slowest < SESSION_MS / 1000 + 10, "stable", f"commits went on after {slowest:.1f} s only")
        for member in members:
            member.stop()
            for error in member.errors:
                stage.broken("committed", error)
            # Codes below zero are the client's own: connections that broke, and waits.
            if strange := {code for code in member.told if code >= 0} - MOVING - REBALANCING:
                stage.broken("told", f"a member was told {', '.join(KafkaError(code).name() for code in strange)}")
        return stage.judge()


@row("transaction-coordinator")
def transaction_coordinator(times: int = 4) -> Verdict:
    """The transaction coordinator is killed under transactions: the next one finishes what was decided."""
    with Stage() as stage:
        oracle = stage.load(transactional=3, writers=1)
        slowest = 0.0
        for _ in range(times):
            victim = _coordinator(stage, "__transaction_state", oracle.transactors[0].name)
            stage.cluster.brokers[victim].kill()
            before = _done(oracle)
            slowest = max(
                slowest,
                until(lambda before=before: _done(oracle) >= before + 10, "transactions go on", 60),  # type: ignore[misc]
            )
            stage.cluster.brokers[victim].start()
            stage.await_in_sync(stage.topic)
        stage.figures["slowest s"] = round(slowest, 1)
        return stage.judge()


def _done(oracle: ClusterOracle) -> int:
    return sum(len(writer.outcomes.committed) + len(writer.outcomes.aborted) for writer in oracle.transactors)


class Transformer(threading.Thread):
    """Reads, transforms and writes in transactions; started anew after each error, as a process would be."""

    def __init__(self, bootstrap: str, source: str, target: str, partitions: int) -> None:
        super().__init__(daemon=True)
        self._servers = bootstrap
        self._source = source
        self._target = target
        self._partitions = partitions
        self._stopping = threading.Event()
        self.dying = threading.Event()
        self.restarts = 0
        self.done = 0

    def run(self) -> None:
        while not self._stopping.is_set():
            with contextlib.suppress(KafkaException):
                self._live()
            self.restarts += 1

    def _live(self) -> None:
        common: dict[str, Any] = {"bootstrap.servers": self._servers, "reconnect.backoff.max.ms": 200, "log_level": 2}
        producer = Producer({**common, "transactional.id": "transformer", "transaction.timeout.ms": 20_000})
        producer.init_transactions(60)
        consumer = Consumer(
            {
                **common,
                "group.id": "transformer",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "session.timeout.ms": SESSION_MS,
            }
        )
        consumer.subscribe([self._source])
        try:
            while not self._stopping.is_set():
                messages = [m for m in consumer.consume(300, 0.3) if m.error() is None]
                if not messages:
                    continue
                producer.begin_transaction()
                for message in messages:
                    producer.produce(self._target, message.value(), partition=message.partition())
                producer.send_offsets_to_transaction(
                    consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), 30
                )
                if self.dying.is_set():
                    self.dying.clear()
                    return  # as a kill would: neither committed nor aborted
                producer.commit_transaction(60)
                self.done += len(messages)
        finally:
            consumer.close()

    def stop(self) -> None:
        self._stopping.set()
        self.join(120)


@row("transform")
def transform(times: int = 3) -> Verdict:
    """Consume, transform, produce, under kills of brokers and of the client: the output is the input, once."""
    with Stage() as stage:
        oracle = stage.load(transactional=0)
        with Client(stage.cluster.bootstrap) as client:
            client.admin.create_topic("output", 6, 3, {"min.insync.replicas": "2"})
        transformer = Transformer(stage.cluster.bootstrap, stage.topic, "output", 6)
        transformer.start()
        until(lambda: transformer.done > 100, "first transactions", 60)
        for round_ in range(times):
            victim = stage.cluster.brokers[1 + round_ % 3]
            victim.kill()
            transformer.dying.set()
            before = transformer.done
            until(lambda before=before: transformer.done > before + 100, "transactions go on", 90)  # type: ignore[misc]
            victim.start()
            stage.await_in_sync(stage.topic)
        stage.figures["restarts"] = transformer.restarts
        verdict = stage.judge()
        output = Reader(stage.cluster.bootstrap, "output", 6, "output", "read_committed")
        output.start()
        wanted = set(oracle.readers[0].seen.values())
        with contextlib.suppress(FaultFailed):
            until(lambda: len(set(output.seen.values())) >= len(wanted), "all transformed", 90)
        transformer.stop()
        time.sleep(1)
        output.stop()
        found = list(output.seen.values())
        if len(found) != len(set(found)):
            verdict.broken("exactly once", f"{len(found) - len(set(found))} records are in the output twice")
        if set(found) != wanted:
            missing, more = len(wanted - set(found)), len(set(found) - wanted)
            verdict.broken("exactly once", f"the output lacks {missing} records and has {more} that were not read")
        return verdict
