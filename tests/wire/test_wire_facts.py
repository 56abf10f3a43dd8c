"""Facts of the protocol that the tables state, held against kio and against bytes that Apache Kafka wrote."""

from __future__ import annotations

from base64 import urlsafe_b64decode
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode as KioErrorCode
from wire_values import all_codecs, by_schema

from tidelog.wire import messages
from tidelog.wire.apis import APIS, FIRST_FLEXIBLE, ApiKey
from tidelog.wire.classes import Message
from tidelog.wire.codec import schema_of
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.ids import ZERO_UUID, uuid_to_base64
from tidelog.wire.malformed import WireError
from tidelog.wire.schema import STORED
from tidelog.wire.stored import TRANSACTION_RECORDS, decode_versioned, encode_versioned, peek_version

CODECS = by_schema(all_codecs())

#: The families of `__consumer_offsets` by key type: `X` has the schemas `XKey` and `XValue`.
GROUP_RECORDS = {
    0: "OffsetCommit",
    1: "OffsetCommit",
    2: "GroupMetadata",
    3: "ConsumerGroupMetadata",
    4: "ConsumerGroupPartitionMetadata",
    5: "ConsumerGroupMemberMetadata",
    6: "ConsumerGroupTargetAssignmentMetadata",
    7: "ConsumerGroupTargetAssignmentMember",
    8: "ConsumerGroupCurrentMemberAssignment",
    10: "ShareGroupMemberMetadata",
    11: "ShareGroupMetadata",
    12: "ShareGroupTargetAssignmentMetadata",
    13: "ShareGroupTargetAssignmentMember",
    14: "ShareGroupCurrentMemberAssignment",
    15: "ShareGroupStatePartitionMetadata",
    16: "ConsumerGroupRegularExpression",
    17: "StreamsGroupMetadata",
    19: "StreamsGroupMemberMetadata",
    20: "StreamsGroupTargetAssignmentMetadata",
    21: "StreamsGroupTargetAssignmentMember",
    22: "StreamsGroupCurrentMemberAssignment",
    23: "StreamsGroupTopology",
}
SHARE_STATE_RECORDS = {0: "ShareSnapshot", 1: "ShareUpdate"}
#: Schemas of `__cluster_metadata` by record type.
METADATA_RECORDS = {
    0: "RegisterBrokerRecord",
    1: "UnregisterBrokerRecord",
    2: "TopicRecord",
    3: "PartitionRecord",
    4: "ConfigRecord",
    5: "PartitionChangeRecord",
    7: "FenceBrokerRecord",
    8: "UnfenceBrokerRecord",
    9: "RemoveTopicRecord",
    10: "DelegationTokenRecord",
    11: "UserScramCredentialRecord",
    12: "FeatureLevelRecord",
    14: "ClientQuotaRecord",
    15: "ProducerIdsRecord",
    17: "BrokerRegistrationChangeRecord",
    18: "AccessControlEntryRecord",
    19: "RemoveAccessControlEntryRecord",
    20: "NoOpRecord",
    21: "ZkMigrationStateRecord",
    22: "RemoveUserScramCredentialRecord",
    23: "BeginTransactionRecord",
    24: "EndTransactionRecord",
    25: "AbortTransactionRecord",
    26: "RemoveDelegationTokenRecord",
    27: "RegisterControllerRecord",
    28: "ClearElrRecord",
}


def test_error_codes_are_kafkas() -> None:
    theirs = {code.value: (code.name.upper(), code.retriable) for code in KioErrorCode}
    ours = {int(code): (code.name, code.retriable) for code in ErrorCode}
    assert set(theirs) <= set(ours)
    assert [ours[code][1] for code in theirs] == [retriable for _, retriable in theirs.values()]
    assert [ours[code][0] for code in theirs] == [name for name, _ in theirs.values()]
    assert max(ours) == 133


def test_every_error_code_has_a_message_of_its_own() -> None:
    assert all(code.message for code in ErrorCode)
    assert len({code.message for code in ErrorCode}) == len(ErrorCode)
    assert ErrorCode(6) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER == 6


def test_a_kafka_error_says_what_its_code_says_unless_it_knows_more() -> None:
    assert str(KafkaError(ErrorCode.NOT_CONTROLLER)) == ErrorCode.NOT_CONTROLLER.message
    error = KafkaError(ErrorCode.INVALID_CONFIG, "retention.ms must be a number")
    assert (error.code, error.message, str(error)) == (40, "retention.ms must be a number", error.message)


def test_the_tables_have_the_versions_that_the_apis_announce() -> None:
    for key, api in APIS.items():
        assert api.key == key == ApiKey(key)
        for suffix in ("Request", "Response"):
            schema = schema_of(api.name + suffix)
            # InitProducerId 6 is known and not announced.
            last = 6 if key == ApiKey.INIT_PRODUCER_ID else api.max_version
            assert schema.versions == (api.min_version, last), schema.name
            flexible_from = FIRST_FLEXIBLE[key] if schema.flexible_from is not None else None
            assert schema.flexible_from == flexible_from, schema.name
            assert api.flexible_from == FIRST_FLEXIBLE[key]


def test_only_brokers_speak_the_apis_of_the_controller() -> None:
    inter_broker = {api.key for api in APIS.values() if api.inter_broker}
    assert inter_broker == {4, 5, 6, 7, 56, 67, 10001}


def test_ids_read_as_kafka_writes_them() -> None:
    assert uuid_to_base64(ZERO_UUID) == "AAAAAAAAAAAAAAAAAAAAAA"
    assert uuid_to_base64(bytes.fromhex("6889ba79af840842d5ad1463184e6fb8")) == "aIm6ea-ECELVrRRjGE5vuA"


@given(st.binary(min_size=16, max_size=16))
def test_ids_read_back(raw: bytes) -> None:
    text = uuid_to_base64(raw)
    assert len(text) == 22
    assert urlsafe_b64decode(text + "==") == raw


def test_what_is_not_an_id_is_refused() -> None:
    with pytest.raises(ValueError, match="16"):
        uuid_to_base64(b"short")


# Stored records and messages between brokers: bytes that Apache Kafka's own classes read and wrote


def golden() -> list[list[str]]:
    """Name, version, bytes and what they say, for what kio does not know; Kafka's classes wrote the same bytes."""
    text = (Path(__file__).parent / "golden_messages.txt").read_text(encoding="utf-8")
    return [line.split(" ", 3) for line in text.splitlines()]


def test_messages_read_and_written_by_kafka_are_the_same_here() -> None:
    checked = set()
    for name, version, data, text in golden():
        codec = next(codec for codec in CODECS[name] if codec.version == int(version))
        raw = bytes.fromhex(data.removeprefix("-"))
        message, end = codec.decode(raw)
        assert end == len(raw)
        assert codec.encode(message) == raw
        # Records show as a view of memory.
        assert repr(message) == text or name == "ProduceRequest"
        checked.add(name)
    assert set(STORED) - checked == {
        "ConsumerProtocolAssignment",
        "ConsumerProtocolSubscription",
        "DefaultPrincipalData",
        "DelayCancellation",
        "DelayPicture",
        "EndTxnMarker",
        "LeaderChangeMessage",
        "RequestHeader",
        "ResponseHeader",
    }


def check_stored(version: int, message: Message, data: str) -> None:
    assert encode_versioned(message, version).hex() == data.replace(" ", "")
    assert decode_versioned(type(message), bytes.fromhex(data)) == message


def test_offset_commits_are_stored_as_kafka_stores_them() -> None:
    key = messages.OffsetCommitKey(group="g", topic="t", partition=3)
    check_stored(1, key, "0001 000167 000174 00000003")
    value = messages.OffsetCommitValue(offset=42, leader_epoch=7, metadata="m", commit_timestamp=1000)
    check_stored(3, value, "0003 000000000000002a 00000007 00016d 00000000000003e8")


def test_transactions_are_stored_as_kafka_stores_them() -> None:
    check_stored(0, messages.TransactionLogKey(transactional_id="tx"), "0000 00027478")
    Value = messages.TransactionLogValue
    value = Value(
        producer_id=1,
        producer_epoch=2,
        transaction_timeout_ms=60000,
        transaction_status=1,
        transaction_partitions=[Value.PartitionsSchema(topic="t", partition_ids=[0, 5])],
        transaction_last_update_timestamp_ms=3,
        transaction_start_timestamp_ms=4,
    )
    start = "0000000000000001 0002 0000ea60 01"
    times = "0000000000000003 0000000000000004"
    plain = f"0000 {start} 00000001 000174 00000002 00000000 00000005 {times}"
    check_stored(0, value, plain)
    value.next_producer_epoch = 9
    tagged = f"0001 {start} 02 0274 03 00000000 00000005 00 {times} 01 03 02 0009"
    check_stored(1, value, tagged)


def test_a_message_of_a_version_from_the_future_is_malformed() -> None:
    newest = schema_of("ConsumerProtocolSubscription").versions[1]
    subscription = messages.ConsumerProtocolSubscription(topics=["a", "b"], rack_id="r")
    data = encode_versioned(subscription, newest)
    future = (newest + 1).to_bytes(2, "big") + data[2:] + b"what the future adds"
    with pytest.raises(WireError):
        decode_versioned(messages.ConsumerProtocolSubscription, future)


def test_every_type_of_record_has_schemas_and_every_stored_schema_a_type() -> None:
    families = [GROUP_RECORDS, TRANSACTION_RECORDS, SHARE_STATE_RECORDS]
    named = {name + suffix for family in families for name in family.values() for suffix in ("Key", "Value")}
    named |= set(METADATA_RECORDS.values())
    others = {
        "ConsumerProtocolAssignment",
        "ConsumerProtocolSubscription",
        "DefaultPrincipalData",
        "DelayCancellation",
        "DelayPicture",
        "EndTxnMarker",
        "LeaderChangeMessage",
        "ProducerSnapshot",
        "RequestHeader",
        "ResponseHeader",
    }
    assert named | others == set(STORED)
    for family in families:
        for kind, name in family.items():
            first, last = schema_of(name + "Key").versions
            assert first <= kind <= last


def test_what_is_shorter_than_its_version_is_malformed() -> None:
    with pytest.raises(WireError):
        peek_version(b"\0")
