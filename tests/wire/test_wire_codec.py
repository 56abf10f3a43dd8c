"""The codec by itself: round trips, defaults, tagged fields, null, versions, what it shares with its input."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wire_values import all_codecs, by_schema, label, random_message

import tidelog
from tidelog.wire import messages
from tidelog.wire.apis import ApiKey
from tidelog.wire.codec import Codec, request_codec, response_codec, schema_of, stored_codec
from tidelog.wire.ids import ZERO_UUID
from tidelog.wire.malformed import UnsupportedFieldError, WireError
from tidelog.wire.varint import encode_uvarint, read_uvarint

CODECS = list(all_codecs())
SCHEMAS = by_schema(CODECS)


def check_round_trip(codec: Codec, message: Any) -> bytes:
    data = codec.encode(message)
    assert codec.decode(data) == (message, len(data))
    around = b"before" + data + b"after"
    for form in (around, bytearray(around), memoryview(around)):
        assert codec.decode(form, 6) == (message, 6 + len(data))
    return data


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_version_reads_back_what_it_wrote(name: str) -> None:
    for codec in SCHEMAS[name]:
        check_round_trip(codec, codec.message_class())
        for number in range(5):
            check_round_trip(codec, random_message(codec, Random(f"{label(codec)} {number}")))


@settings(deadline=None, max_examples=200)
@given(codec=st.sampled_from(CODECS), seed=st.integers(0, 1 << 32))
def test_any_message_reads_back(codec: Codec, seed: int) -> None:
    check_round_trip(codec, random_message(codec, Random(seed)))


def test_the_versions_of_request_and_response_agree() -> None:
    requests = [name for name in SCHEMAS if name.endswith("Request")]
    assert len(requests) > 70
    for name in requests:
        request, response = schema_of(name), schema_of(name.removesuffix("Request") + "Response")
        assert request.versions == response.versions, name
        assert request.flexible_from == response.flexible_from, name


# Messages as objects


def test_a_message_starts_with_kafkas_defaults() -> None:
    request = messages.FetchRequest()
    assert (request.replica_id, request.max_bytes, request.session_epoch) == (-1, 0x7FFFFFFF, -1)
    assert request.topics == []
    assert request.cluster_id is None
    assert messages.MetadataRequest().allow_auto_topic_creation is True
    assert messages.MetadataResponse().cluster_authorized_operations == -(1 << 31)
    assert messages.FetchRequest.FetchTopic().topic_id == ZERO_UUID


def test_messages_do_not_share_their_default_lists_and_structs() -> None:
    first, second = messages.FetchRequest(), messages.FetchRequest()
    first.topics.append(messages.FetchRequest.FetchTopic())
    assert second.topics == []
    Member = messages.ConsumerGroupDescribeResponse.Member
    first, second = Member(), Member()
    first.assignment.topic_partitions.append(1)
    assert second.assignment.topic_partitions == []


def test_messages_are_slotted_take_keywords_only_and_show_their_fields() -> None:
    topic = messages.ProduceResponse.TopicProduceResponse(name="t")
    with pytest.raises(AttributeError):
        topic.nmae = "t"
    with pytest.raises(TypeError):
        messages.HeartbeatRequest("group")
    with pytest.raises(TypeError):
        messages.HeartbeatRequest(no_such_field=1)
    assert repr(messages.HeartbeatResponse(error_code=7)) == "HeartbeatResponse(throttle_time_ms=0, error_code=7)"
    assert repr(topic).startswith("ProduceResponse.TopicProduceResponse(name='t', topic_id=")


def test_messages_are_equal_by_type_and_value() -> None:
    Broker = messages.MetadataResponse.MetadataResponseBroker
    assert Broker(node_id=1, host="h") == Broker(node_id=1, host="h")
    assert Broker(node_id=1) != Broker(node_id=2)
    assert messages.HeartbeatResponse() != messages.LeaveGroupResponse()
    with pytest.raises(TypeError):
        hash(Broker())


def test_the_module_has_no_messages_that_no_table_has() -> None:
    with pytest.raises(AttributeError, match="NoSuchRequest"):
        _ = messages.NoSuchRequest
    with pytest.raises(ImportError):
        from tidelog.wire.messages import Request  # noqa: F401


def test_a_name_gives_the_same_class_that_decoding_gives() -> None:
    codec = response_codec(12, 1)
    message, _ = codec.decode(codec.encode(messages.HeartbeatResponse(error_code=25)))
    assert type(message) is messages.HeartbeatResponse


def test_importing_the_codec_reads_no_table() -> None:
    program = (
        "import sys, tidelog.wire.codec, tidelog.wire.frame, tidelog.wire.messages\n"
        "print([name for name in sys.modules if name.startswith('tidelog.wire.schema.')])\n"
        "print([name for name in ('asyncio', 'dataclasses', 'inspect') if name in sys.modules])\n"
    )
    # Without site, so that nothing but the package itself can have imported anything.
    env = {"PYTHONPATH": str(Path(tidelog.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-S", "-c", program], capture_output=True, text=True, check=True, env=env)
    assert done.stdout.split("\n")[:2] == ["[]", "[]"]


# Versions


@pytest.mark.parametrize("version", [-1, 99])
def test_a_version_without_a_schema_is_malformed(version: int) -> None:
    for codec_of in (request_codec, response_codec):
        with pytest.raises(WireError, match="version"):
            codec_of(0, version)
    with pytest.raises(WireError, match="version"):
        stored_codec("TransactionLogValue", version)


def test_an_unknown_api_or_schema_is_malformed() -> None:
    with pytest.raises(WireError, match="999"):
        request_codec(999, 0)
    with pytest.raises(WireError, match="NoSuchKey"):
        stored_codec("NoSuchKey", 0)


def test_a_request_refuses_a_field_that_the_version_cannot_carry() -> None:
    request = messages.ProduceRequest(transactional_id="tx")
    with pytest.raises(UnsupportedFieldError, match="transactional_id"):
        request_codec(0, 2).encode(request)
    assert request_codec(0, 3).decode(request_codec(0, 3).encode(request))[0] == request


def test_a_request_drops_an_ignorable_field_that_the_version_lacks() -> None:
    request = messages.FetchRequest(rack_id="r1", session_id=3, session_epoch=4)
    message, _ = request_codec(1, 4).decode(request_codec(1, 4).encode(request))
    assert (message.rack_id, message.session_id, message.session_epoch) == ("", 0, -1)


def test_a_stored_record_refuses_a_field_that_the_version_cannot_carry() -> None:
    with pytest.raises(UnsupportedFieldError, match="previous_producer_id"):
        stored_codec("TransactionLogValue", 0).encode(messages.TransactionLogValue(previous_producer_id=5))


def test_a_response_drops_whatever_the_version_lacks() -> None:
    Response = messages.MetadataResponse
    response = Response(throttle_time_ms=5, cluster_id="c", controller_id=3, error_code=9, brokers=[])
    response.topics = [Response.MetadataResponseTopic(name="t", topic_id=b"i" * 16, is_internal=True)]
    assert response_codec(3, 0).encode(response) == b"\0\0\0\0" + b"\0\0\0\x01" + b"\0\0" + b"\0\x01t" + b"\0\0\0\0"


# Tagged fields


def test_a_tagged_field_with_its_default_is_not_written() -> None:
    codec = response_codec(18, 3)
    assert codec.encode(messages.ApiVersionsResponse()) == b"\0\0" + b"\x01" + b"\0\0\0\0" + b"\0"


def test_an_unknown_tagged_field_is_skipped() -> None:
    codec = response_codec(12, 4)
    plain = codec.encode(messages.HeartbeatResponse(error_code=27))
    assert plain[-1:] == b"\0"
    tags = b"\x02" + b"\x05\x03abc" + encode_uvarint(9000) + b"\x81\x01" + bytes(129)
    message, end = codec.decode(plain[:-1] + tags + b"rest")
    assert message == messages.HeartbeatResponse(error_code=27)
    assert end == len(plain) - 1 + len(tags)


def test_unknown_tags_stand_between_known_ones() -> None:
    codec = response_codec(18, 3)
    message = messages.ApiVersionsResponse(finalized_features_epoch=77, zk_migration_ready=True)
    assert codec.encode(message)[7:] == b"\x02" + b"\x01\x08" + (77).to_bytes(8, "big") + b"\x03\x01\x01"
    mixed = b"\x04" + b"\x03\x01\x01" + b"\x7e\x02xy" + b"\x01\x08" + (77).to_bytes(8, "big") + b"\x7f\0"
    assert codec.decode(codec.encode(message)[:7] + mixed) == (message, 7 + len(mixed))


def test_tagged_fields_are_counted_against_the_bytes_that_remain() -> None:
    codec = response_codec(12, 4)
    plain = codec.encode(messages.HeartbeatResponse())[:-1]
    for tags in (b"\xff\xff\xff\xff\x07", b"\x01\x00\x05abc", b"\x01", b"\x01\x00"):
        with pytest.raises(WireError):
            codec.decode(plain + tags)


def test_an_absent_tagged_struct_is_none_and_stands_for_its_defaults() -> None:
    codec = request_codec(1, 15)
    request = messages.FetchRequest()
    assert codec.decode(codec.encode(request))[0].replica_state is None
    defaults = messages.FetchRequest(replica_state=messages.FetchRequest.ReplicaState())
    assert codec.encode(defaults) == codec.encode(request)
    follower = messages.FetchRequest(replica_state=messages.FetchRequest.ReplicaState(replica_id=2, replica_epoch=9))
    assert codec.decode(codec.encode(follower))[0].replica_state.replica_id == 2


def test_null_and_absence_of_a_nullable_tagged_struct_differ() -> None:
    # Kafka's own bytes: the struct's defaults, null, and a value.
    Value = messages.ConsumerGroupMemberMetadataValue
    codec = stored_codec("ConsumerGroupMemberMetadataValue", 0)
    empty = bytes.fromhex("010101010101ffffffff01")
    given = Value.ClassicMemberMetadata(session_timeout_ms=5)
    for message, tags in (
        (Value(), "00"),
        (Value(classic_member_metadata=None), "01000100"),
        (Value(classic_member_metadata=given), "01000701000000050100"),
    ):
        assert codec.encode(message) == empty + bytes.fromhex(tags)
        assert codec.decode(empty + bytes.fromhex(tags))[0] == message


# Null, lengths, text


def test_null_is_malformed_where_it_is_not_allowed() -> None:
    for version, null in ((0, b"\xff\xff"), (4, b"\0")):
        with pytest.raises(WireError, match="group_id"):
            request_codec(12, version).decode(null + bytes(50))
    for version, null in ((0, b"\xff\xff\xff\xff"), (9, b"\0")):
        with pytest.raises(WireError):
            request_codec(3, version).decode(null) if version == 0 else response_codec(3, version).decode(
                bytes(4) + null + bytes(50)
            )


def test_a_nullable_struct_is_null_or_there() -> None:
    codec = request_codec(75, 0)
    Request = messages.DescribeTopicPartitionsRequest
    without = codec.encode(Request(response_partition_limit=7))
    assert without == b"\x01" + b"\0\0\0\x07" + b"\xff" + b"\0"
    cursor = Request.Cursor(topic_name="t", partition_index=3)
    there = codec.encode(Request(response_partition_limit=7, cursor=cursor))
    assert there == b"\x01" + b"\0\0\0\x07" + b"\x01" + b"\x02t" + b"\0\0\0\x03" + b"\0" + b"\0"
    assert codec.decode(there)[0].cursor == cursor


@pytest.mark.parametrize("version", [3, 4])
def test_a_string_has_at_most_32767_bytes(version: int) -> None:
    codec = request_codec(12, version)
    check_round_trip(codec, messages.HeartbeatRequest(group_id="x" * 32767))
    with pytest.raises(Exception, match="32767"):
        codec.encode(messages.HeartbeatRequest(group_id="x" * 32768))


def test_a_compact_string_beyond_32767_bytes_is_malformed() -> None:
    with pytest.raises(WireError, match="32767"):
        request_codec(12, 4).decode(encode_uvarint(32769) + b"x" * 40000)


def test_text_that_is_not_utf_8_is_malformed() -> None:
    with pytest.raises(WireError, match="utf-8"):
        request_codec(12, 0).decode(b"\0\x02\xc3\x28" + bytes(20))


@given(st.integers(0, (1 << 31) - 1))
def test_varints_read_back(value: int) -> None:
    data = encode_uvarint(value)
    assert read_uvarint(b"x" + data, 1) == (value, 1 + len(data))
    assert all(byte > 127 for byte in data[:-1])
    assert data[-1] < 128


def test_varints_beyond_31_bits_are_refused() -> None:
    for data in (b"\xff\xff\xff\xff\x08", b"\xff\xff\xff\xff\xff\x01", b"\x80\x80\x80\x80\x80\x00"):
        with pytest.raises(WireError):
            read_uvarint(data, 0)
    with pytest.raises(ValueError, match="32-bit"):
        encode_uvarint(1 << 31)


# What is shared with the input


@pytest.mark.parametrize("version", [3, 9, 13])
def test_records_are_a_writable_view_of_the_frame(version: int) -> None:
    Request = messages.ProduceRequest
    partition = Request.PartitionProduceData(index=1, records=b"some records")
    codec = request_codec(0, version)
    frame = bytearray(codec.encode(Request(topic_data=[Request.TopicProduceData(partition_data=[partition])])))
    message, _ = codec.decode(memoryview(frame))
    records = message.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    records[:4] = b"SOME"
    assert b"SOME records" in frame


def test_bytes_fields_are_bytes_whatever_the_input_is() -> None:
    codec = request_codec(36, 2)
    data = codec.encode(messages.SaslAuthenticateRequest(auth_bytes=b"\0user\0pw"))
    for form in (data, bytearray(data), memoryview(bytearray(data))):
        assert type(codec.decode(form)[0].auth_bytes) is bytes


def test_empty_records_are_not_null() -> None:
    Response = messages.FetchResponse
    for version in (4, 12, 16):
        codec = response_codec(1, version)
        for records in (b"", None):
            partition = Response.PartitionData(records=records)
            data = codec.encode(Response(responses=[Response.FetchableTopicResponse(partitions=[partition])]))
            read = codec.decode(data)[0].responses[0].partitions[0].records
            assert (read is None) == (records is None)


def test_a_counted_decoder_reads_as_many_elements_as_it_may() -> None:
    codec = request_codec(ApiKey.LIST_OFFSETS, 7)
    request = codec.message_class
    topics = [
        request.ListOffsetsTopic(name="t", partitions=[request.ListOffsetsPartition(partition_index=i) for i in (1, 2)])
        for _ in range(3)
    ]
    whole = codec.encode(request(topics=topics))
    assert codec.decode_counted(whole, 0, 9) == codec.decode(whole)
    with pytest.raises(WireError, match="more elements than are read"):
        codec.decode_counted(whole, 0, 8)


def test_tagged_fields_beyond_any_message_are_refused() -> None:
    codec = request_codec(ApiKey.METADATA, 12)
    whole = codec.encode(codec.message_class(topics=[]))
    for count, taken in ((500, True), (2_000, False)):
        tags = b"".join(encode_uvarint(100 + tag) + b"\0" for tag in range(count))
        stretched = whole[:-1] + encode_uvarint(count) + tags
        if taken:
            assert codec.decode(stretched)[1] == len(stretched)
        else:
            with pytest.raises(WireError):
                codec.decode(stretched)
