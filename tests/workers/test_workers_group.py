"""Workers among others: rebalances, other clients in the group, transactions, brokers and topics that come and go."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from bench.systems.tidelog import Tidelog
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import NewPartitions
from kafka import KafkaConsumer
from workers_bench import Bench, eventually

from tidelog.workers import Message, Send, Workers
from tidelog.workers.offset_map import decode, encode

GROUPS = (
    {"protocol": "classic"},
    {"protocol": "classic", "config": {"partition.assignment.strategy": "cooperative-sticky"}},
    {"protocol": "consumer"},
)
GROUP_IDS = ("classic", "cooperative", "consumer")


def grow(bench: Bench, partitions: int) -> None:
    bench.admin.create_partitions([NewPartitions(bench.topic, partitions)])[bench.topic].result(30)
    eventually(
        lambda: len(bench.admin.list_topics(bench.topic, timeout=10).topics[bench.topic].partitions) == partitions
    )


@pytest.mark.parametrize("options", GROUPS, ids=GROUP_IDS)
def test_a_partition_that_moves_is_handed_over_without_repeating_or_losing_a_record(
    bench: Bench, options: dict[str, Any]
) -> None:
    grow(bench, 4)
    for partition in range(4):
        bench.write(((b"%d" % (n % 5), b"%d" % n) for n in range(300)), partition=partition)
    seen: Counter[tuple[int, int]] = Counter()
    by: list[set[int]] = [set(), set()]

    def handler(member: int) -> Any:
        def handle(message: Message) -> None:
            # The first one takes its time until the second one has something to do.
            time.sleep(0.001 if by[1] else 0.02)
            seen[message.partition, message.offset] += 1
            by[member].add(message.partition)

        return handle

    bench.start(handler(0), concurrency=4, **options)
    eventually(lambda: len(seen) > 50, "the first member works")
    bench.start(handler(1), concurrency=4, **options)
    eventually(lambda: by[1], "the second member works")
    eventually(lambda: len(seen) == 1200, "everything is handled")
    bench.stop()
    assert set(seen.values()) == {1}
    assert [bench.committed(partition).offset for partition in range(4)] == [300] * 4


def test_what_does_not_end_in_time_is_handed_over_to_the_next_owner(bench: Bench) -> None:
    bench.write([(b"a", b"slow"), (b"b", b"quick")])
    forever = threading.Event()
    seen: list[tuple[str, bytes | None]] = []

    def hang(message: Message) -> None:
        if message.value == b"slow":
            forever.wait()
        seen.append(("first", message.value))

    bench.start(hang, drain_timeout_s=0.1)
    eventually(lambda: ("first", b"quick") in seen)
    bench.stop()
    bench.work(lambda m: seen.append(("second", m.value)))
    forever.set()
    eventually(lambda: len(seen) == 3, "the late one returns")
    assert set(seen) == {("first", b"quick"), ("second", b"slow"), ("first", b"slow")}
    assert bench.committed().offset == 2


def test_a_partition_that_is_added_is_worked_on(bench: Bench) -> None:
    bench.write([(b"k", b"old")])
    seen: list[bytes | None] = []
    bench.start(lambda m: seen.append(m.value), config={"topic.metadata.refresh.interval.ms": 200})
    eventually(lambda: seen == [b"old"])
    grow(bench, 2)
    bench.write([(b"k", b"new")], partition=1)
    eventually(lambda: seen == [b"old", b"new"], "the new partition")


def test_a_topic_that_was_deleted_and_created_again_is_read_from_its_beginning(bench: Bench) -> None:
    bench.write((b"k", b"%d" % n) for n in range(10))
    assert bench.work(lambda m: None).handled == 10
    bench.admin.delete_topics([bench.topic])[bench.topic].result(30)
    eventually(lambda: bench.topic not in bench.admin.list_topics(timeout=10).topics, "deleted")
    bench.create()
    # Whether the group's offsets went with the topic is up to the broker.
    bench.write((b"k", b"%d" % n) for n in range(3))
    seen: list[bytes | None] = []
    bench.work(lambda m: seen.append(m.value))
    assert seen == [b"0", b"1", b"2"]
    assert bench.committed().offset == 3


# --- other clients ------------------------------------------------------------------------------------


def test_another_client_of_the_group_goes_on_where_the_commit_says(bench: Bench) -> None:
    """It knows nothing of the map, and repeats what lies behind the record that was stuck; so it is for them."""
    bench.write((b"%d" % n, b"%d" % n) for n in range(10))
    forever = threading.Event()
    seen: list[bytes | None] = []

    def get_stuck(message: Message) -> None:
        if message.value == b"4":
            forever.wait()
        seen.append(message.value)

    bench.start(get_stuck, drain_timeout_s=0)
    eventually(lambda: len(seen) == 9)
    bench.stop()
    consumer = KafkaConsumer(
        bench.topic, bootstrap_servers=bench.bootstrap, group_id=bench.group, enable_auto_commit=False
    )
    try:
        values = [record.value for record in itertools.islice(consumer, 2)]
        assert values == [b"4", b"5"]
        consumer.commit()
    finally:
        consumer.close(autocommit=False)
    forever.set()
    # Its commit has no map: the rest is handled once more by ours.
    again: list[bytes | None] = []
    bench.work(lambda m: again.append(m.value))
    assert set(again) <= {b"%d" % n for n in range(5, 10)} and b"9" in again


@pytest.mark.parametrize(
    "metadata",
    ["", '{"by": "somebody"}', "tlw1:", "tlw1:!!!!", "x" * 4000, encode(4, [4], 9)[0]],
    ids=["none", "json", "mark", "garbage", "long", "of another offset"],
)
def test_metadata_that_are_not_ours_skip_nothing(bench: Bench, metadata: str) -> None:
    bench.write((b"%d" % n, b"%d" % n) for n in range(10))
    other = Consumer({"bootstrap.servers": bench.bootstrap, "group.id": bench.group})
    other.commit(offsets=[TopicPartition(bench.topic, 0, 3, metadata)], asynchronous=False)
    other.close()
    seen: set[bytes | None] = set()
    done = bench.work(lambda m: seen.add(m.value))
    assert seen == {b"%d" % n for n in range(3, 10)} and done.skipped == 0


def test_control_records_and_aborted_ones_leave_no_gap(bench: Bench) -> None:
    producer = Producer({"bootstrap.servers": bench.bootstrap, "transactional.id": bench.group})
    producer.init_transactions(30)
    for number in range(6):
        producer.begin_transaction()
        producer.produce(bench.topic, str(number), "k", partition=0)
        if number % 2:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
    seen: list[bytes | None] = []
    bench.work(lambda m: seen.append(m.value))
    assert seen == [b"0", b"2", b"4"]
    assert bench.work(lambda m: seen.append(m.value)).handled == 0


# --- transactions -------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_what_is_sent_and_the_offsets_are_committed_together(bench: Bench, protocol: Any) -> None:
    bench.create(bench.out)
    bench.write((b"k%d" % (n % 3), b"%d" % n) for n in range(60))
    done = bench.work(
        lambda m: Send(bench.out, m.value, m.key),
        transactional_id=bench.group,
        commit_interval_s=0.02,
        protocol=protocol,
    )
    assert done.handled == 60
    found = bench.read(bench.out, 60)
    for key in range(3):
        assert [int(r.value()) for r in found if r.key() == b"k%d" % key] == list(range(key, 60, 3))
    assert bench.committed().offset == 60


def test_what_is_finished_behind_a_stuck_record_is_committed_in_the_transaction_and_not_repeated(bench: Bench) -> None:
    bench.create(bench.out)
    bench.write((b"%d" % n, b"%d" % n) for n in range(10))
    forever = threading.Event()

    def handle(message: Message) -> Send:
        if message.value == b"2" and not forever.is_set():
            forever.wait()
        return Send(bench.out, message.value)

    workers, _ = bench.start(handle, drain_timeout_s=0, transactional_id=bench.group)
    eventually(lambda: workers.progress().handled == 9)
    bench.stop()
    at = bench.committed()
    assert at.offset == 2 and decode(2, at.metadata) == ((2,), 10)
    forever.set()
    bench.work(handle, transactional_id=bench.group)
    assert sorted(r.value() for r in bench.read(bench.out, 10)) == [b"%d" % n for n in range(10)]


def test_a_dead_letter_is_part_of_the_transaction(bench: Bench) -> None:
    bench.create(bench.out)
    bench.write([(b"k", b"bad"), (b"k", b"good")])

    def handle(message: Message) -> Send:
        if message.value == b"bad":
            raise ValueError("bad")
        return Send(bench.out, message.value)

    done = bench.work(handle, transactional_id=bench.group, attempts=2, dead_letters=bench.out)
    assert (done.handled, done.dead) == (1, 1)
    assert [r.value() for r in bench.read(bench.out, 2)] == [b"bad", b"good"]


# --- brokers ------------------------------------------------------------------------------------------


def test_a_broker_that_restarts_holds_the_work_up_and_no_more(tmp_path: Path) -> None:
    with Tidelog(tmp_path, {"group.initial.rebalance.delay.ms": "0"}) as broker:
        bench = Bench(broker.bootstrap)
        bench.create()
        bench.write((b"%d" % n, b"%d" % n) for n in range(50))
        seen: Counter[bytes | None] = Counter()
        workers, _ = bench.start(lambda m: seen.update([m.value]), config={"reconnect.backoff.max.ms": 200})
        eventually(lambda: len(seen) == 50)
        eventually(lambda: bench.committed().offset == 50)
        broker.kill()
        broker.start()
        bench.write((b"%d" % n, b"%d" % n) for n in range(50, 100))
        eventually(lambda: len(seen) == 100, "the work goes on")
        bench.stop()
        assert set(seen.values()) == {1} and workers.progress().handled == 100
        assert bench.committed().offset == 100


def test_a_broker_that_takes_only_short_metadata_gets_shorter_maps(tmp_path: Path) -> None:
    """Those records that do not fit are repeated after a restart; the work goes on."""
    settings = {"group.initial.rebalance.delay.ms": "0", "offset.metadata.max.bytes": "100"}
    with Tidelog(tmp_path, settings) as broker:
        bench = Bench(broker.bootstrap)
        bench.create()
        bench.write((None, b"%d" % n) for n in range(400))
        go_on = threading.Event()

        def handle(message: Message) -> None:
            if message.offset % 2 == 0 and message.offset < 200:
                go_on.wait()

        workers, _ = bench.start(handle, concurrency=150, max_pending=400)
        eventually(lambda: workers.progress().handled == 300)
        eventually(lambda: (bench.committed().metadata or "").startswith("tlw1:"), "a shorter map")
        go_on.set()
        eventually(lambda: bench.committed().offset == 400, "all committed")
        bench.stop()


def test_workers_need_nothing_of_the_broker() -> None:
    """A library for any Kafka: what it imports of ours is itself."""
    import subprocess
    import sys

    program = "import sys, tidelog.workers; print([m for m in sys.modules if m.startswith('tidelog.')])"
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env={**os.environ})
    modules = eval(shown.stdout)
    assert modules and all(name.startswith("tidelog.workers") for name in modules)
    assert Workers.__module__ in modules


@pytest.mark.parametrize("options", GROUPS, ids=GROUP_IDS)
def test_a_member_that_gets_partitions_while_it_leaves_leaves(bench: Bench, options: dict[str, Any]) -> None:
    workers = bench.workers(print, **options)
    member = workers._connected()
    member.join()

    def has_partitions() -> bool:
        # The client hears of them in its own threads, and tells of them when it is next asked for anything.
        described = bench.admin.describe_consumer_groups([bench.group])[bench.group].result(30)
        return any(each.assignment.topic_partitions for each in described.members)

    eventually(has_partitions, "the member has partitions", every_s=0.2)
    leaving = threading.Thread(target=member.leave, daemon=True)
    leaving.start()
    leaving.join(20)
    assert not leaving.is_alive()
