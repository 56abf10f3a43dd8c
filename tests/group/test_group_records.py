"""Records of __consumer_offsets: their bytes are Kafka's, whatever cannot be read is an error of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
import test_group_classic
import test_group_consumer
import test_group_migration
from group_script import PAIR, run
from hypothesis import given
from hypothesis import strategies as st

from tidelog.deciding.decision import CoordinatorRecord
from tidelog.group.groups import Groups
from tidelog.group.records import RecordType, decode_key, encode_key, offset_commit_record, offset_key
from tidelog.group.replay import decoded
from tidelog.wire import messages
from tidelog.wire.codec import stored_codec
from tidelog.wire.malformed import WireError

NAMES = st.text(max_size=20)

KEYS = {
    RecordType.GROUP_METADATA: ("GroupMetadataKey", ["group"]),
    RecordType.CONSUMER_GROUP_METADATA: ("ConsumerGroupMetadataKey", ["group_id"]),
    RecordType.CONSUMER_GROUP_PARTITION_METADATA: ("ConsumerGroupPartitionMetadataKey", ["group_id"]),
    RecordType.CONSUMER_GROUP_MEMBER_METADATA: ("ConsumerGroupMemberMetadataKey", ["group_id", "member_id"]),
    RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA: ("ConsumerGroupTargetAssignmentMetadataKey", ["group_id"]),
    RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER: (
        "ConsumerGroupTargetAssignmentMemberKey",
        ["group_id", "member_id"],
    ),
    RecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT: (
        "ConsumerGroupCurrentMemberAssignmentKey",
        ["group_id", "member_id"],
    ),
    RecordType.CONSUMER_GROUP_REGULAR_EXPRESSION: (
        "ConsumerGroupRegularExpressionKey",
        ["group_id", "regular_expression"],
    ),
}


@pytest.mark.parametrize("kind", KEYS)
@given(first=NAMES, second=NAMES)
def test_keys_are_those_of_the_schema(kind, first, second):
    name, fields = KEYS[kind]
    values = [first, second][: len(fields)]
    message = getattr(messages, name)(**dict(zip(fields, values, strict=True)))
    key = encode_key(kind, *values)
    assert key == int(kind).to_bytes(2, "big") + stored_codec(name, int(kind)).encode(message)
    assert decode_key(key) == (kind, first, second if len(fields) == 2 else "", -1)


@given(group=NAMES, topic=NAMES, partition=st.integers(0, 2**31 - 1))
def test_offset_keys_are_those_of_the_schema(group, topic, partition):
    message = messages.OffsetCommitKey(group=group, topic=topic, partition=partition)
    key = offset_key(group, topic, partition)
    assert key == b"\0\1" + stored_codec("OffsetCommitKey", 1).encode(message)
    assert decode_key(key) == (RecordType.OFFSET_COMMIT, group, topic, partition)


@given(
    offset=st.integers(0, 2**63 - 1),
    epoch=st.integers(-1, 2**31 - 1),
    metadata=st.one_of(st.just(""), NAMES),
    now_ms=st.integers(0, 2**62),
    retention_ms=st.sampled_from([-1, 0, 1000]),
    topic_id=st.one_of(st.just(bytes(16)), st.binary(min_size=16, max_size=16)),
)
def test_offset_values_are_those_of_the_schema(offset, epoch, metadata, now_ms, retention_ms, topic_id):
    expires_ms = -1 if retention_ms < 0 else now_ms + retention_ms
    record = offset_commit_record("g", "t", 3, offset, epoch, metadata, now_ms, expires_ms, topic_id)
    version = 4 if retention_ms < 0 else 1
    message = messages.OffsetCommitValue(
        offset=offset,
        leader_epoch=epoch,
        metadata=metadata,
        commit_timestamp=now_ms,
        expire_timestamp=expires_ms,
        topic_id=topic_id,
    )
    assert record.value == version.to_bytes(2, "big") + stored_codec("OffsetCommitValue", version).encode(message)
    assert record.meaning in (None, decoded(record.key, record.value))


def test_offsets_of_the_oldest_type_are_read():
    groups = Groups()
    partition = groups.partition_for("g")
    groups.load_begin(partition, 0)
    value = b"\0\0" + (42).to_bytes(8, "big") + b"\0\2hi" + (7).to_bytes(8, "big")
    groups.replay(partition, CoordinatorRecord(b"\0\0" + offset_key("g", "t", 3)[2:], value))
    stored = groups._shards[partition].offsets.get("g", "t", 3)
    assert stored is not None
    assert (stored.offset, stored.metadata, stored.commit_timestamp_ms) == (42, "hi", 7)


def test_records_of_share_and_streams_groups_are_read_past():
    script = run(PAIR)
    for kind in (9, 10, 11, 15, 17, 19):
        script.groups.replay(0, CoordinatorRecord(kind.to_bytes(2, "big") + b"\0\1g", b"\0\0whatever"))
    assert script.do("list") == "-: g consumer Stable classic"


@given(st.binary(max_size=40))
def test_a_key_is_readable_or_a_wire_error(raw):
    try:
        decode_key(raw)
    except WireError:
        pass


@pytest.mark.parametrize("kind", [0, 1, 2, 3, 5, 8, 16])
@given(value=st.binary(max_size=60))
def test_a_value_is_readable_or_a_wire_error(kind, value):
    groups = Groups()
    groups.load_begin(0, 0)
    key = kind.to_bytes(2, "big") + b"\0\1g" + (b"\0\1m" if kind not in (2, 3) else b"") + bytes(4)
    try:
        groups.replay(0, CoordinatorRecord(key, value))
    except WireError:
        pass


def scenes():
    """Groups of every kind, so that every type of record is written and deleted."""
    regex = run(test_group_consumer.REGEX, **test_group_consumer.EAGER)
    regex.do("hb a epoch=-1")
    regex.do("delete")
    yield regex
    yield run(test_group_consumer.TWO, **test_group_consumer.EAGER)
    yield run(test_group_consumer.STATIC, **test_group_consumer.EAGER)
    mixed = run(test_group_migration.SETTLED, **test_group_migration.EAGER)
    mixed.do("hb b epoch=-1")
    yield mixed
    yield run(test_group_classic.STATIC)
    yield run("""
        topics t:1
        commit - t-0=5:note
        commit - u-1=6 retention=1000 v=4
        delete
    """)


def test_records_are_those_that_kafka_read_and_wrote_back_unchanged():
    """Each line of the file went through GroupCoordinatorRecordSerde of Apache Kafka 4.3.0 and came out the same."""
    expected = (Path(__file__).parent / "kafka_group_records.txt").read_text().split("\n")[1:-1]
    written = [
        f"{key.hex()} {'null' if value is None else value.hex()}" for s in scenes() for _, key, value, _ in s.log
    ]
    assert written == expected
    assert {RecordType(int(line[:4], 16)) for line in expected} == set(RecordType) - {RecordType.LEGACY_OFFSET_COMMIT}
