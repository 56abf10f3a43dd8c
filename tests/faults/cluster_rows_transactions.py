"""Rows of the table of faults: several transactional writers, late requests, and producers whose state got lost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Producer
from tests.faults import transactions_wire as wire
from tests.faults.cluster_judge import Verdict
from tests.faults.cluster_rows import row
from tests.faults.cluster_rows_life import _coordinator
from tests.faults.clusterkit import Stage, until
from tests.faults.transactions_wire import TOPIC, Line, initialised, produced

from tidelog.client import Client
from tidelog.wire.errors import ErrorCode

E = ErrorCode
NAME = "by-hand"


@row("transactional-writers")
def transactional_writers() -> Verdict:
    """Several transactional writers while leaders are killed: none fences another; a rival of the same name does."""
    with Stage() as stage:
        oracle = stage.load(transactional=4, writers=1)
        for _ in range(2):
            victim = stage.leader(oracle.transacted)
            stage.cluster.brokers[victim].kill()
            stage.flow(seconds=3)
            stage.cluster.brokers[victim].start()
            stage.await_in_sync(oracle.transacted)
        for writer in oracle.transactors:
            for error in writer.fatal:
                stage.broken("fenced", f"{writer.name} was told {error} without a rival")
        first, *others = oracle.transactors
        rival = Producer({"bootstrap.servers": stage.cluster.bootstrap, "transactional.id": first.name, "log_level": 2})
        rival.init_transactions(30)
        stage.figures["fenced s"] = round(until(lambda: bool(first.fatal), "the first of two of one name is fenced"), 1)
        stage.flow(seconds=2)
        for writer in others:
            stage.claim(not writer.fatal, "fenced", f"{writer.name} was told {writer.fatal} of somebody else's rival")
        return stage.judge()


@contextmanager
def _by_hand(stage: Stage) -> Iterator[tuple[Client, Line, Line]]:
    """A client, and lines to the coordinator of `NAME` and to the leader of all partitions of `TOPIC`, which is
    another broker."""
    coordinator = _coordinator(stage, "__transaction_state", NAME)
    leader, third = (i for i in stage.cluster.brokers if i != coordinator)
    with Client(stage.cluster.bootstrap) as client:
        placed = [leader, coordinator, third]
        client.admin.create_topic(TOPIC, assignments={0: placed, 1: placed}, configs={"min.insync.replicas": "2"})
        lines = Line(stage.cluster.brokers[coordinator]), Line(stage.cluster.brokers[leader])
        yield (client, *lines)
        for line in lines:
            line.lose()


def _write(line: Line, identity: tuple[int, int], sequence: int, value: bytes, version: int = 12) -> ErrorCode:
    request = wire.produce(NAME, *identity, sequence, 0, [value], version=version)
    return produced(wire.settled(lambda: line.ask(request), lambda answer: produced(answer)[0]))[0]


def _committed(client: Client) -> list[bytes | None]:
    def is_closed() -> bool:
        stable = client.offsets(TOPIC, [0], isolation="read_committed")[0].offset
        return stable == client.offsets(TOPIC, [0])[0].offset

    wire.eventually(is_closed, "the last stable offset hangs")
    return [record.value for record in client.read(TOPIC, 0, isolation="read_committed")]


@row("late-requests")
def late_requests() -> Verdict:
    """A Produce after its EndTxn, and an EndTxn after the next begin, between brokers: refused, and nothing hangs."""
    with Stage() as stage:
        stage.load()
        with _by_hand(stage) as (client, coordinator, leader):
            identity = initialised(coordinator, wire.init_producer_id(NAME))
            adding = wire.add_partitions(NAME, *identity, [0])
            stage.claim(
                wire.added(wire.settled(lambda: coordinator.ask(adding), wire.added)) is E.NONE, "late", "not added"
            )
            stage.claim(_write(leader, identity, 0, b"first", 10) is E.NONE, "late", "the first was not taken")
            end = wire.end_txn(NAME, *identity, True, version=4)
            ended = wire.settled(lambda: coordinator.ask(end), lambda answer: answer.error_code)
            stage.claim(ended.error_code == 0, "late", f"not ended: {E.of(ended.error_code).name}")
            # Until the marker is there the transaction is open where the append happens, and takes what comes.
            stage.claim(_committed(client) == [b"first"], "late", "the first is not committed")
            told = _write(leader, identity, 1, b"late", 10)
            stage.claim(told is E.INVALID_TXN_STATE, "late", f"a late Produce was told {told.name}")
            # Where every end raises the epoch, an end that is late has that of a transaction that is over.
            identity = initialised(coordinator, wire.init_producer_id(NAME))
            stage.claim(_write(leader, identity, 0, b"second") is E.NONE, "late", "the second was not taken")
            delayed = wire.end_txn(NAME, *identity, False)
            ended = wire.settled(
                lambda: coordinator.ask(wire.end_txn(NAME, *identity, True)), lambda answer: answer.error_code
            )
            after = ended.producer_id, ended.producer_epoch
            stage.claim(_write(leader, after, 0, b"third") is E.NONE, "late", "the third was not taken")
            told = E.of(coordinator.ask(delayed).error_code)
            stage.claim(told is E.PRODUCER_FENCED, "late", f"a delayed EndTxn was told {told.name}")
            late = _write(leader, identity, 1, b"late")
            stage.claim(late is E.INVALID_PRODUCER_EPOCH, "late", f"a late Produce was told {late.name}")
            ended = wire.settled(
                lambda: coordinator.ask(wire.end_txn(NAME, *after, True)), lambda answer: answer.error_code
            )
            stage.claim(ended.error_code == 0, "late", f"the third was not ended: {E.of(ended.error_code).name}")
            found = _committed(client)
            stage.claim(found == [b"first", b"second", b"third"], "late", f"committed are {found}")
        return stage.judge()


@row("producer-state")
def producer_state() -> Verdict:
    """Producer state is lost, on the disks of each broker in turn, and by a client: no duplicate, and no zombie."""
    with Stage() as stage:
        oracle = stage.load(transactional=2)
        for broker_id, broker in stage.cluster.brokers.items():
            broker.kill()
            for topic in (oracle.plain, oracle.transacted):
                for snapshot in broker.data_dir.glob(f"{topic}-*/*.snapshot"):
                    snapshot.unlink()
            broker.start()
            for topic in (oracle.plain, oracle.transacted):
                stage.await_in_sync(topic)
            # It leads with what it has found in its log.
            with Client(stage.cluster.bootstrap) as client:
                described = client.describe([oracle.plain, oracle.transacted]).topics
                preferred = [
                    (topic.name, p.partition)
                    for topic in described.values()
                    for p in topic.partitions.values()
                    if p.replicas[0] == broker_id
                ]
                client.admin.elect_leaders(preferred)
            stage.flow(seconds=2)
        with _by_hand(stage) as (_, line, _leader):
            producer_id, epoch = initialised(line, wire.init_producer_id(NAME))
            lost = wire.init_producer_id(NAME, producer_id=producer_id, producer_epoch=epoch)
            for _ in range(2):  # the answer may be lost: the same question has the same answer
                given = initialised(line, lost)
                stage.claim(given == (producer_id, epoch + 1), "producer state", f"{lost} was given {given}")
            given = initialised(line, wire.init_producer_id(NAME))
            stage.claim(given == (producer_id, epoch + 2), "producer state", f"the next was given {given}")
            told = E.of(line.ask(lost._replace(at_most=3)).error_code)
            stage.claim(told is E.INVALID_PRODUCER_EPOCH, "producer state", f"a zombie was told {told.name}")
        return stage.judge()
