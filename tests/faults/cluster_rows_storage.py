"""Rows of the table of faults: disks that are lost, damaged or full, and elections that they lead to."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from bench import raw
from confluent_kafka import Consumer, KafkaError, TopicPartition
from tests.faults.cluster_judge import Verdict, batches_of
from tests.faults.cluster_rows import row
from tests.faults.clusterkit import LAG_MS, FaultFailed, Stage, until
from tests.faults.damagekit import SmallVolume
from tests.faults.faultkit import batch


def active_segment(data_dir: Path, topic: str, partition: int) -> Path:
    return sorted((data_dir / f"{topic}-{partition}").glob("*.log"))[-1]


def cut_tail(data_dir: Path, topic: str, partition: int, size: int) -> None:
    path = active_segment(data_dir, topic, partition)
    with open(path, "r+b") as file:
        file.truncate(max(0, path.stat().st_size - size))


@row("last-in-sync")
def last_in_sync() -> Verdict:
    """The last member of the ISR dies, unclean elections are off: offline, and nothing is lost when it is back."""
    with Stage() as stage:
        stage.load()
        leader = stage.leader()
        others = [i for i in stage.cluster.brokers if i != leader]
        for other in others:
            stage.cluster.brokers[other].kill()
        until(lambda: stage.isr() == [leader], "an ISR of one")
        stage.cluster.brokers[leader].kill()
        for other in others:
            stage.cluster.brokers[other].launch()
        for other in others:
            stage.cluster.brokers[other].await_ready()
        time.sleep(3)
        state = stage.state()
        stage.claim(state["leader"] in (-1, leader), "offline", f"{state} is led by one that was not in sync")
        stage.claim(state["isr"] == [leader], "offline", f"{state} has lost the last one in sync")
        stage.cluster.brokers[leader].start()
        stage.figures["in sync again s"] = round(stage.await_in_sync(stage.topic), 1)
        stage.flow()
        return stage.judge()


@row("power-loss")
def power_loss(times: int = 2) -> Verdict:
    """kill -9 the leader, cut its unsynced tail, restart it within its session: it does not lead, and fetches again."""
    with Stage({"zookeeper.session.timeout.ms": "20000"}) as stage:
        stage.load()
        for _ in range(times):
            leader = stage.leader()
            broker = stage.cluster.brokers[leader]
            broker.kill()
            for partition in range(6):
                cut_tail(broker.data_dir, stage.topic, partition, 3_000)
            broker.start()
            now = stage.leader()
            stage.claim(now != leader, "power loss", f"{leader} leads again with its tail cut: {stage.state()}")
            stage.await_in_sync(stage.topic)
            stage.flow()
        return stage.judge()


@row("power-loss-all")
def power_loss_all() -> Verdict:
    """All brokers are killed at once and started again: what was acknowledged is there (the system kept its pages)."""
    with Stage() as stage:
        stage.load()
        for broker in stage.cluster.brokers.values():
            broker.kill()
        stage.cluster.start()
        stage.figures["serving again s"] = round(stage.flow(), 1)
        return stage.judge()


@row("empty-disk")
def empty_disk(times: int = 2) -> Verdict:
    """A follower comes back with an empty disk, at once, as if it were still in the ISR."""
    with Stage({"zookeeper.session.timeout.ms": "20000"}) as stage:
        stage.load()
        for _ in range(times):
            leader = stage.leader()
            follower = next(i for i in stage.cluster.brokers if i != leader)
            broker = stage.cluster.brokers[follower]
            broker.kill()
            shutil.rmtree(broker.data_dir)
            broker.start()
            stage.claim(
                stage.leader() != follower or follower in stage.isr(), "empty disk", f"{stage.state()} for {follower}"
            )
            stage.figures["filled again s"] = round(stage.await_in_sync(stage.topic), 1)
            stage.flow()
        return stage.judge()


@row("power-loss-all-empty-disk")
def power_loss_all_empty_disk() -> Verdict:
    """All brokers are killed at once, one loses its disk, and that one is back first: it waits for the others."""
    with Stage() as stage:
        stage.load()
        first = stage.leader()
        for broker in stage.cluster.brokers.values():
            broker.kill()
        shutil.rmtree(stage.cluster.brokers[first].data_dir)
        stage.cluster.brokers[first].start()
        time.sleep(3)
        for broker_id, broker in stage.cluster.brokers.items():
            if broker_id != first:
                broker.start()
        stage.figures["in sync again s"] = round(stage.await_in_sync(stage.topic), 1)
        stage.flow()
        return stage.judge()


@row("unclean-election")
def unclean_election() -> Verdict:
    """With unclean elections on, one that was left behind leads: consumers hear of the truncation, none starts anew."""
    with Stage({"unclean.leader.election.enable": "true"}) as stage:
        # The oracle judges another topic of the cluster meanwhile: this one loses records, as its owner allowed.
        stage.load(transactional=0)
        topic, leader = "lossy", stage.leader()
        behind = next(i for i in stage.cluster.brokers if i != leader)
        _create(stage, topic, [leader, behind])
        _produce(stage, topic, 50)
        stage.cluster.brokers[behind].kill()
        until(lambda: stage.isr(topic) == [leader], "an ISR of one")
        _produce(stage, topic, 50)
        consumer = Consumer(
            {
                "bootstrap.servers": stage.cluster.bootstrap,
                "group.id": "lossy",
                "auto.offset.reset": "error",
                "enable.auto.commit": False,
                "log_level": 2,
            }
        )
        consumer.assign([TopicPartition(topic, 0, 0)])
        seen = [m.offset() for m in _poll(consumer, 100, 20) if m.error() is None]
        stage.claim(seen == list(range(100)), "forward", f"read {len(seen)} of 100 before the election")
        stage.cluster.brokers[leader].kill()
        stage.cluster.brokers[behind].start()
        until(lambda: stage.leader(topic) == behind, "an unclean leader")
        _produce(stage, topic, 10)
        told = _poll(consumer, 1, 20)
        stage.claim(bool(told), "truncation", "the consumer was told nothing")
        if told and told[0].error() is None:
            stage.broken("truncation", f"the consumer goes on at {told[0].offset()} as if nothing had been lost")
        elif told:
            stage.figures["consumer told"] = told[0].error().code()
        consumer.close()
        stage.cluster.brokers[leader].start()
        stage.await_in_sync(topic)
        copies = {
            tuple(b for _, _, b in batches_of(stage.cluster.brokers[i].data_dir / f"{topic}-0"))
            for i in (leader, behind)
        }
        stage.claim(len(copies) == 1, "identical", "the old leader did not cut its log to the new one's")
        return stage.judge()


def _create(stage: Stage, topic: str, replicas: list[int]) -> None:
    from tidelog.client import Client

    with Client(stage.cluster.bootstrap) as client:
        client.admin.create_topic(topic, assignments={0: replicas}, configs={"min.insync.replicas": "1"})


def _produce(stage: Stage, topic: str, records: int) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": stage.cluster.bootstrap, "acks": "all", "log_level": 2})
    for number in range(records):
        producer.produce(topic, f"{number}", partition=0)
    if producer.flush(30):
        raise FaultFailed(f"records for {topic} were not taken")


def _poll(consumer: Consumer, count: int, seconds: float) -> list:  # type: ignore[type-arg]
    found: list = []  # type: ignore[type-arg]
    deadline = time.monotonic() + seconds
    while len(found) < count and time.monotonic() < deadline:
        message = consumer.poll(0.5)
        if message is None:
            continue
        error = message.error()
        if error is None or error.code() in (
            KafkaError._AUTO_OFFSET_RESET,
            KafkaError._LOG_TRUNCATION,
            KafkaError.OFFSET_OUT_OF_RANGE,
        ):
            found.append(message)
    return found


@row("damaged-tails")
def damaged_tails() -> Verdict:
    """A tail cut by some bytes, a bit flipped in the last batches, garbage behind them: repaired from the leader."""
    with Stage() as stage:
        stage.load()
        damages = {"cut": _cut_some, "bit": _flip_bit, "garbage": _add_garbage}
        for number, damage in enumerate(damages.values()):
            broker_id = 1 + number % 3
            broker = stage.cluster.brokers[broker_id]
            broker.kill()
            for partition in range(6):
                damage(active_segment(broker.data_dir, stage.topic, partition), 1 + 37 * partition)
            until(lambda broker_id=broker_id: stage.leader() != broker_id, "a new leader")  # type: ignore[misc]
            stage.flow()
            broker.start()
            stage.await_in_sync(stage.topic)
        return stage.judge()


def _cut_some(path: Path, some: int) -> None:
    with open(path, "r+b") as file:
        file.truncate(max(0, path.stat().st_size - some))


def _flip_bit(path: Path, some: int) -> None:
    with open(path, "r+b") as file:
        at = max(0, path.stat().st_size - some)
        file.seek(at)
        (byte,) = file.read(1) or b"\0"
        file.seek(at)
        file.write(bytes([byte ^ 0x10]))


def _add_garbage(path: Path, some: int) -> None:
    with open(path, "ab") as file:
        file.write(bytes(range(256)) * (some % 5 + 1))


@row("disk-full")
def disk_full() -> Verdict:
    """The leader's disk is full: it acknowledges nothing that it has not written, and recovers when there is room."""
    with SmallVolume(48 << 20) as volume, Stage({"log.segment.bytes": str(1 << 20)}) as stage:
        broker = stage.cluster.brokers[1]
        broker.stop()
        broker.data_dir = volume.path / "data"
        broker.start()
        stage.load()
        partition = next(p for p in range(6) if stage.leader(partition=p) == 1)
        volume.fill()
        with raw.Connection(broker.host, broker.port, timeout=40) as connection:
            answer = connection.produce(
                raw.produce_frame(stage.topic, partition, batch(b"full:0:" + b"." * 100_000), acks=-1)
            )
        stage.figures["answered code"] = answer.error_code
        stage.claim(answer.error_code != 0, "disk full", f"acknowledged {answer}")
        moved_s = until(lambda: stage.leader(partition=partition) != 1, "another leader")
        stage.figures["another leader s"] = round(moved_s, 1)
        time.sleep(LAG_MS / 1000)
        volume.make_room()
        stage.await_in_sync(stage.topic)
        stage.flow()
        return stage.judge()


@row("failed-directory")
def failed_directory() -> Verdict:
    """One of a broker's two log directories fails: others lead at once what was in it, and the broker goes on."""
    with Stage({"replica.lag.time.max.ms": "60000", "replica.high.watermark.checkpoint.interval.ms": "500"}) as stage:
        broker = stage.cluster.brokers[1]
        broker.stop()
        first, second = broker.data_dir, broker.data_dir.with_name("broker-1-second")
        broker.data_dir = Path(f"{first},{second}")
        broker.start()
        oracle = stage.load()
        lost = {p for p in range(6) if (second / f"{oracle.plain}-{p}").exists()}
        stage.claim(0 < len(lost) < 6, "stage", f"the second directory holds {lost}")
        away = second.with_name("away")
        second.rename(away)
        second.write_bytes(b"")  # as where a file system is mounted no longer

        def is_left() -> bool:
            return all(1 not in stage.isr(partition=p) and stage.leader(partition=p) != -1 for p in lost)

        stage.figures["left s"] = round(until(is_left, "broker 1 is in no ISR of what it lost", 20), 1)
        for partition in set(range(6)) - lost:
            isr = stage.isr(partition=partition)
            stage.claim(1 in isr, "goes on", f"partition {partition} of the healthy directory has the ISR {isr}")
        stage.flow(seconds=2)
        stage.claim(broker.running, "goes on", broker.stderr())
        broker.kill()
        second.unlink()
        away.rename(second)
        broker.start()
        stage.figures["whole again s"] = round(stage.await_in_sync(stage.topic), 1)
        stage.flow()
        return stage.judge(errors_allowed=False)
