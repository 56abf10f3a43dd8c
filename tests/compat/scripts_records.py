"""Scripts of raw requests about records: produce, fetch, list offsets, delete records."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from typing import Any

from kafka.protocol.admin import CreateTopicsRequest, DeleteRecordsRequest
from kafka.protocol.consumer import FetchRequest, ListOffsetsRequest, OffsetForLeaderEpochRequest
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.producer import InitProducerIdRequest, ProduceRequest
from wiretap import Wire, batch

Steps = Iterator[tuple[str, Any]]
RECORDS = [b"a", b"bb", b"ccc"]


def create(wire: Wire, name: str, partitions: int = 1, **configs: str) -> None:
    """Makes a topic and waits until its partitions take records."""
    wanted = [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()]
    topic = CreateTopicsRequest.CreatableTopic
    config = topic.CreatableTopicConfig
    wire.raw(
        CreateTopicsRequest,
        5,
        topics=[
            topic(
                name=name,
                num_partitions=partitions,
                replication_factor=1,
                assignments=[],
                configs=[config(**one) for one in wanted],
            )
        ],
        timeout_ms=30_000,
    )
    for partition in range(partitions):
        while fetch_once(wire, name, partition).responses[0].partitions[0].error_code in (3, 5, 6):
            pass


def topic_id_of(wire: Wire, name: str) -> Any:
    asked = MetadataRequest.MetadataRequestTopic(name=name)
    return wire.raw(MetadataRequest, 12, topics=[asked], allow_auto_topic_creation=False).topics[0].topic_id


def produce(wire: Wire, topic: str, records: bytes, version: int = 9, acks: int = -1, partition: int = 0) -> Any:
    """The answer about the one partition, or "closed"."""
    data = ProduceRequest.TopicProduceData
    one = data.PartitionProduceData(index=partition, records=records)
    which = {"topic_id": topic_id_of(wire, topic)} if version >= 13 else {"name": topic}
    answer = wire.ask(
        ProduceRequest,
        version,
        transactional_id=None,
        acks=acks,
        timeout_ms=10_000,
        topic_data=[data(partition_data=[one], **which)],
    )
    return answer if answer == "closed" else answer["responses"][0]["partition_responses"][0]


def new_producer(wire: Wire, transactional_id: str | None = None, version: int = 4, timeout_ms: int = 60_000) -> Any:
    """A producer id, as soon as the coordinator is there to give one and has ended what was open."""
    fields = {"transactional_id": transactional_id, "transaction_timeout_ms": timeout_ms}
    known = {"producer_id": -1, "producer_epoch": -1} if version >= 3 else {}
    while (answer := wire.raw(InitProducerIdRequest, version, **fields, **known)).error_code in (14, 15, 16, 51):
        time.sleep(0.05)
    return answer


def fetch_request(
    topic: str | None,
    partition: int = 0,
    offset: int = 0,
    *,
    topic_id: Any = None,
    max_wait_ms: int = 0,
    min_bytes: int = 0,
    max_bytes: int = 1 << 20,
    partition_max_bytes: int = 1 << 20,
    current_leader_epoch: int = -1,
    isolation_level: int = 0,
    session_id: int = 0,
    session_epoch: int = -1,
    forgotten: list[Any] | None = None,
) -> dict[str, Any]:
    kind = FetchRequest.FetchTopic
    one = kind.FetchPartition(
        partition=partition,
        current_leader_epoch=current_leader_epoch,
        fetch_offset=offset,
        partition_max_bytes=partition_max_bytes,
    )
    which: dict[str, Any] = {"topic_id": topic_id} if topic_id is not None else {"topic": topic}
    topics = [] if topic is None and topic_id is None else [kind(partitions=[one], **which)]
    return {
        "max_wait_ms": max_wait_ms,
        "min_bytes": min_bytes,
        "max_bytes": max_bytes,
        "isolation_level": isolation_level,
        "session_id": session_id,
        "session_epoch": session_epoch,
        "topics": topics,
        "forgotten_topics_data": forgotten or [],
    }


def fetch_once(wire: Wire, topic: str, partition: int = 0) -> Any:
    return wire.raw(FetchRequest, 12, **fetch_request(topic, partition))


def produce_versions(wire: Wire) -> Steps:
    create(wire, "versions")
    for version in range(3, 14):
        yield f"v{version}", produce(wire, "versions", batch(RECORDS), version)
        yield f"v{version} unknown partition", produce(wire, "versions", batch(RECORDS), version, partition=7)
    yield "unknown topic", produce(wire, "nowhere", batch(RECORDS))
    for acks in (2, -2):
        yield f"acks {acks}", produce(wire, "versions", batch(RECORDS), acks=acks)


def produce_wrong_batches(wire: Wire) -> Steps:
    create(wire, "wrong")
    good = batch(RECORDS)
    cases = {
        "bad checksum": batch(RECORDS, break_crc=True),
        "magic 3": batch(RECORDS, magic=3),
        "no records": b"",
        "two batches": good + good,
        "cut batch": good[:-3],
        "cut header": good[:40],
        "length too small": good[:8] + struct.pack(">i", 20) + good[12:],
        "trailing bytes": good + b"\x00\x00",
        "base offset 5": batch(RECORDS, base_offset=5),
        "count 2 of 3": batch(RECORDS, count=2),
        "count 4 of 3": batch(RECORDS, count=4),
        "last delta 7": batch(RECORDS, last_delta=7),
        "control batch": batch(RECORDS, attributes=0x20),
        "transactional, no transaction": batch(RECORDS, attributes=0x10, producer_id=5, epoch=0, sequence=0),
        "log append time flag": batch(RECORDS, attributes=0x08),
        "empty batch": batch([]),
        "negative timestamp": batch(RECORDS, timestamp_ms=-1, max_timestamp_ms=-1),
        "far future": batch(RECORDS, timestamp_ms=4_000_000_000_000),
        "too large": batch([b"x" * 1_100_000]),
        "producer without epoch": batch(RECORDS, producer_id=5, epoch=-1, sequence=0),
    }
    for label, records in cases.items():
        yield label, produce(wire, "wrong", records)
    # Apache Kafka calls these an unknown server error; any refusal will do.
    unreadable = {
        "codec 5": batch(RECORDS, attributes=5),
        "gzip that is none": batch(RECORDS, attributes=1),
        "garbled records": batch(RECORDS, alter=lambda records: b"\xff" * len(records)),
    }
    for label, records in unreadable.items():
        answer = produce(wire, "wrong", records)
        yield label, {"refused": answer["error_code"] != 0, "base_offset": answer["base_offset"]}
    yield "and a good one", produce(wire, "wrong", good)["error_code"]


def produce_by_topic_rules(wire: Wire) -> Steps:
    create(wire, "compacted", cleanup_policy="compact")
    yield "compacted, no key", produce(wire, "compacted", batch(RECORDS))
    yield "compacted, key", produce(wire, "compacted", batch(RECORDS, key=b"k"))
    create(wire, "small", max_message_bytes="200")
    yield "over the topic's limit", produce(wire, "small", batch([b"x" * 300]))
    yield "within it", produce(wire, "small", batch([b"x" * 100]))
    create(wire, "appended", message_timestamp_type="LogAppendTime")
    yield "log append time", produce(wire, "appended", batch(RECORDS))
    create(wire, "timely", message_timestamp_before_max_ms="1000")
    yield "too old", produce(wire, "timely", batch(RECORDS, timestamp_ms=5))
    data = ProduceRequest.TopicProduceData
    several = [data.PartitionProduceData(index=partition, records=batch(RECORDS)) for partition in (0, 1)]
    topics = [data(name=name, partition_data=several) for name in ("small", "nowhere")]
    answer = wire.ask(ProduceRequest, 9, acks=1, timeout_ms=1_000, topic_data=topics)
    yield "shape of a whole answer", answer


def produce_idempotent(wire: Wire) -> Steps:
    create(wire, "idempotent")
    answer = new_producer(wire)
    yield "producer id", wire.seen(answer)
    producer_id = answer.producer_id

    def send(sequence: int, epoch: int = 0, count: int = 3, who: int = producer_id) -> Any:
        values = [b"%d" % n for n in range(count)]
        return produce(wire, "idempotent", batch(values, producer_id=who, epoch=epoch, sequence=sequence))

    yield "starts at 5 (unknown producer)", send(5)
    yield "follows the unknown one's", send(8)
    yield "follows", send(11)
    yield "repeat of the last", send(11)
    yield "repeat of an earlier one", send(8)
    yield "gap", send(20)
    yield "same sequence, other count", send(11, count=2)
    for n in range(5):
        yield f"on {n}", send(14 + 3 * n)
    yield "repeat of the fifth last", send(14)
    yield "repeat of what is forgotten", send(8)
    yield "new epoch starts at 3", send(3, epoch=1)
    yield "new epoch starts at 0", send(0, epoch=1)
    yield "old epoch", send(29, epoch=0)
    other = producer_id + 1_000
    yield "wraps: near the end", send(2**31 - 3, who=other)
    yield "wraps: over the end", send(0, who=other)
    yield "another producer's first at 7", send(7, who=producer_id + 2_000)


def fetch_versions(wire: Wire) -> Steps:
    create(wire, "fetched")
    for _ in range(3):
        produce(wire, "fetched", batch(RECORDS))
    topic_id = topic_id_of(wire, "fetched")
    wire.normal({"topic_id": topic_id})
    for version in range(4, 19):
        which: dict[str, Any] = {"topic_id": topic_id} if version >= 13 else {}
        name = None if version >= 13 else "fetched"
        yield f"v{version}", wire.ask(FetchRequest, version, **fetch_request(name, **which))
        yield f"v{version} past the end", wire.ask(FetchRequest, version, **fetch_request(name, offset=10, **which))
        yield f"v{version} at the end", wire.ask(FetchRequest, version, **fetch_request(name, offset=9, **which))


def fetch_edges(wire: Wire) -> Steps:
    create(wire, "edges", 2)
    for _ in range(4):
        produce(wire, "edges", batch(RECORDS))

    def fetch(topic: str | None = "edges", version: int = 12, **how: Any) -> Any:
        return wire.ask(FetchRequest, version, **fetch_request(topic, **how))

    yield "inside a batch", fetch(offset=4)
    yield "negative offset", fetch(offset=-1)
    yield "unknown topic", fetch("nowhere")
    yield "unknown partition", fetch(partition=9)
    yield "empty partition", fetch(partition=1)
    yield "one byte gives one batch", fetch(partition_max_bytes=1)
    yield "no bytes in all", fetch(max_bytes=0)
    yield "no bytes of the partition", fetch(partition_max_bytes=0)
    yield "cut at a batch and a half", fetch(partition_max_bytes=130)
    yield "leader epoch 0", fetch(current_leader_epoch=0)
    yield "leader epoch too new", fetch(current_leader_epoch=9)
    yield "unknown topic id", fetch(None, version=13, topic_id="11111111-1111-1111-1111-111111111111")
    yield "read committed", fetch(isolation_level=1)
    yield "waits and returns nothing", fetch(offset=12, max_wait_ms=50, min_bytes=1)


def fetch_sessions(wire: Wire) -> Steps:
    create(wire, "session", 2)
    produce(wire, "session", batch(RECORDS))

    def fetch(topic: str | None, **how: Any) -> Any:
        return wire.raw(FetchRequest, 12, **fetch_request(topic, **how))

    full = fetch("session", session_epoch=0)
    session = full.session_id
    yield "a new session", wire.seen(full)
    yield "nothing changed", wire.seen(fetch(None, session_id=session, session_epoch=1))
    moved = fetch("session", offset=3, session_id=session, session_epoch=2)
    yield "the place moved", wire.seen(moved)
    produce(wire, "session", batch(RECORDS))
    yield "only what is new", wire.seen(fetch(None, session_id=session, session_epoch=3))
    produce(wire, "session", batch(RECORDS), partition=1)
    added = fetch("session", partition=1, session_id=session, session_epoch=4)
    yield "a partition is added", wire.seen(added)
    forgotten = FetchRequest.ForgottenTopic(topic="session", partitions=[0, 1])
    yield (
        "all are forgotten",
        wire.seen(fetch(None, session_id=session, session_epoch=5, forgotten=[forgotten])),
    )
    yield "wrong epoch", wire.seen(fetch(None, session_id=session, session_epoch=9))
    yield "unknown session", wire.seen(fetch(None, session_id=session + 1, session_epoch=1))
    yield "closed", wire.seen(fetch(None, session_id=session, session_epoch=-1))
    yield "gone", wire.seen(fetch(None, session_id=session, session_epoch=6))


def list_offsets(wire: Wire) -> Steps:
    create(wire, "listed", 2)
    for stamp in (5_000, 9_000, 7_000):
        produce(wire, "listed", batch(RECORDS, timestamp_ms=stamp))
    kind = ListOffsetsRequest.ListOffsetsTopic

    def ask(version: int, timestamp: int, partition: int = 0, topic: str = "listed", epoch: int = -1) -> Any:
        one = kind.ListOffsetsPartition(partition_index=partition, timestamp=timestamp, current_leader_epoch=epoch)
        answer = wire.ask(
            ListOffsetsRequest, version, replica_id=-1, isolation_level=0, topics=[kind(name=topic, partitions=[one])]
        )
        return answer if answer == "closed" else answer["topics"][0]["partitions"][0]

    for version in range(1, 11):
        for timestamp in (-1, -2, -3, -4, -5, 0, 5_000, 6_000, 8_000, 9_001):
            yield f"v{version} {timestamp}", ask(version, timestamp)
    for timestamp in (-1, -2, -3, 1):
        yield f"empty {timestamp}", ask(7, timestamp, partition=1)
    yield "unknown partition", ask(7, -1, partition=5)
    yield "unknown topic", ask(7, -1, topic="nowhere")
    yield "leader epoch too new", ask(7, -1, epoch=9)
    yield "leader epoch 0", ask(7, -1, epoch=0)
    yield "unknown special", ask(7, -9)


def leader_epochs(wire: Wire) -> Steps:
    create(wire, "epochs")
    produce(wire, "epochs", batch(RECORDS))
    kind = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    cases = (("0", 0, -1, 0), ("5", 5, -1, 0), ("current 9", 0, 9, 0), ("no such partition", 0, -1, 8))
    for version in range(2, 5):
        for label, epoch, current, partition in cases:
            one = kind.OffsetForLeaderPartition(partition=partition, current_leader_epoch=current, leader_epoch=epoch)
            asked = [kind(topic="epochs", partitions=[one])]
            yield f"v{version} {label}", wire.ask(OffsetForLeaderEpochRequest, version, replica_id=-1, topics=asked)


def delete_records(wire: Wire) -> Steps:
    create(wire, "deleted")
    produce(wire, "deleted", batch(RECORDS))
    kind = DeleteRecordsRequest.DeleteRecordsTopic

    def delete(version: int, offset: int, topic: str = "deleted", partition: int = 0) -> Any:
        one = kind.DeleteRecordsPartition(partition_index=partition, offset=offset)
        return wire.ask(DeleteRecordsRequest, version, topics=[kind(name=topic, partitions=[one])], timeout_ms=5_000)

    for version in range(3):
        yield f"v{version} to 1", delete(version, 1)
    yield "back to 0", delete(2, 0)
    yield "past the end", delete(2, 4)
    yield "negative", delete(2, -7)
    yield "unknown topic", delete(2, 0, topic="nowhere")
    yield "unknown partition", delete(2, 0, partition=3)
    yield "to the end", delete(2, -1)


SCRIPTS = (
    produce_versions,
    produce_wrong_batches,
    produce_by_topic_rules,
    produce_idempotent,
    fetch_versions,
    fetch_edges,
    fetch_sessions,
    list_offsets,
    leader_epochs,
    delete_records,
)
