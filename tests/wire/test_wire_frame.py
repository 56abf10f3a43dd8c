"""Frames: headers of every API and version, size prefixes, and records that stay apart."""

from __future__ import annotations

from typing import Any

import pytest
from kio.schema.request_header.v1.header import RequestHeader as KioHeaderV1
from kio.schema.request_header.v2.header import RequestHeader as KioHeaderV2
from kio.serial import entity_reader

from tidelog.wire import messages
from tidelog.wire.apis import APIS, ApiKey
from tidelog.wire.codec import request_codec, response_codec
from tidelog.wire.frame import (
    decode_request_header,
    decode_response_header,
    encode_request,
    encode_response,
)
from tidelog.wire.malformed import WireError


class Slice:
    """Stands for bytes of a file, as the log gives them."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.size_bytes = len(data)


def joined(parts: list[Any]) -> bytes:
    return b"".join(part.data if isinstance(part, Slice) else part for part in parts)


def frame_of(parts: list[Any]) -> bytes:
    data = joined(parts)
    assert int.from_bytes(data[:4], "big") == len(data) - 4
    return data[4:]


VERSIONS = [(api.key, version) for api in APIS.values() for version in range(api.min_version, api.max_version + 1)]


def test_a_request_frame_reads_back_in_every_version() -> None:
    for key, version in VERSIONS:
        message = request_codec(key, version).message_class()
        for client_id in ("client-1", "", None):
            frame = frame_of(encode_request(key, version, 77, client_id, message))
            header = decode_request_header(memoryview(frame))
            without_client_id = key == ApiKey.CONTROLLED_SHUTDOWN and version == 0
            assert (header.api_key, header.api_version, header.correlation_id) == (key, version, 77)
            assert header.client_id == (None if without_client_id else client_id)
            assert request_codec(key, version).decode(frame, header.body_at) == (message, len(frame))


def test_request_headers_are_those_of_kio() -> None:
    for key, version in VERSIONS:
        if key == ApiKey.CONTROLLED_SHUTDOWN and version == 0:
            continue
        flexible = version >= APIS[key].flexible_from
        message = request_codec(key, version).message_class()
        frame = frame_of(encode_request(key, version, 5, "me", message))
        header, size = entity_reader(KioHeaderV2 if flexible else KioHeaderV1)(frame, 0)
        assert (header.request_api_key, header.request_api_version, header.client_id) == (key, version, "me")
        assert size == decode_request_header(frame).body_at


def test_a_response_frame_reads_back_in_every_version() -> None:
    for key, version in VERSIONS:
        message = response_codec(key, version).message_class()
        frame = frame_of(encode_response(key, version, -3, message))
        correlation_id, body_at = decode_response_header(key, version, frame)
        assert correlation_id == -3
        assert response_codec(key, version).decode(frame, body_at) == (message, len(frame))


def test_the_header_of_api_versions_has_no_tags_in_any_version() -> None:
    for version in range(5):
        frame = frame_of(encode_response(ApiKey.API_VERSIONS, version, 1, messages.ApiVersionsResponse(error_code=35)))
        assert frame[4:6] == b"\0\x23"
    assert frame_of(encode_response(ApiKey.METADATA, 9, 1, messages.MetadataResponse()))[4:5] == b"\0"
    assert decode_response_header(ApiKey.API_VERSIONS, 4, b"\0\0\0\x01\x02")[1] == 4


def test_a_version_from_the_future_still_has_a_header() -> None:
    header = decode_request_header(b"\0\x12\x03\xe7\0\0\0\x09\0\x02me\x01\x00\x01z" + b"body")
    assert (header.api_key, header.api_version, header.correlation_id, header.client_id) == (18, 999, 9, "me")
    assert header.body_at == 16


def test_tags_in_headers_are_skipped() -> None:
    header = decode_request_header(b"\0\x03\0\x09\0\0\0\x01\xff\xff" + b"\x02\x00\x01x\x01\x02yz" + b"body")
    assert (header.client_id, header.body_at) == (None, 18)
    assert decode_response_header(3, 9, b"\0\0\0\x05\x01\x00\x02xybody") == (5, 9)


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\0\x03\0\x09\0\0\0",
        b"\0\x03\0\x09\0\0\0\x01\0",
        b"\0\x03\0\x09\0\0\0\x01\0\x05abcd",
        b"\0\x03\0\x09\0\0\0\x01\0\x02\xc3\x28\0",
        b"\0\x03\0\x09\0\0\0\x01\0\x02ab",
        b"\0\x03\0\x09\0\0\0\x01\0\x02ab\x09\x01\x01",
        b"\x03\xe7\0\0\0\0\0\x01\0\x00",
    ],
)
def test_a_broken_header_is_malformed(frame: bytes) -> None:
    with pytest.raises(WireError):
        decode_request_header(frame)
    with pytest.raises(WireError):
        decode_request_header(memoryview(frame))


@pytest.mark.parametrize("frame", [b"", b"\0\0\0", b"\0\0\0\x01", b"\0\0\0\x01\x01\x00\x09x"])
def test_a_broken_response_header_is_malformed(frame: bytes) -> None:
    with pytest.raises(WireError):
        decode_response_header(3, 9, frame)


def fetch_response(*records: Any) -> Any:
    Response = messages.FetchResponse
    partitions = [Response.PartitionData(partition_index=index, records=part) for index, part in enumerate(records)]
    return Response(responses=[Response.FetchableTopicResponse(topic="t", topic_id=b"i" * 16, partitions=partitions)])


@pytest.mark.parametrize("version", [4, 7, 11, 12, 13, 16, 18])
def test_a_file_slice_is_a_part_of_its_own_and_counted_in_the_size(version: int) -> None:
    contents = [b"a" * 300, b"", b"b" * 20000, b"c"]
    slices = [Slice(data) for data in contents]
    parts = encode_response(ApiKey.FETCH, version, 1, fetch_response(*slices))
    assert [part for part in parts if isinstance(part, Slice)] == [slices[0], slices[2], slices[3]]
    inline = encode_response(ApiKey.FETCH, version, 1, fetch_response(*contents))
    assert frame_of(parts) == frame_of(inline)


def test_large_records_in_memory_are_not_copied_and_small_ones_are_joined() -> None:
    large, small = memoryview(bytes(20000)), memoryview(b"small")
    parts = encode_response(ApiKey.FETCH, 16, 1, fetch_response(small, large, None, b""))
    assert [type(part) for part in parts] == [bytes, memoryview, bytes]
    assert parts[1] is large
    body = joined(parts)[9:]
    partitions = response_codec(ApiKey.FETCH, 16).decode(body)[0].responses[0].partitions
    assert [partition.records for partition in partitions] == [b"small", large, None, b""]


def test_a_response_without_slices_is_one_part() -> None:
    parts = encode_response(ApiKey.METADATA, 12, 1, messages.MetadataResponse())
    assert [type(part) for part in parts] == [bytes]


def test_large_records_of_a_request_are_a_part_of_their_own() -> None:
    Request = messages.ProduceRequest
    records = bytes(100_000)
    topic = Request.TopicProduceData(name="t", partition_data=[Request.PartitionProduceData(index=0, records=records)])
    parts = encode_request(ApiKey.PRODUCE, 9, 1, "me", Request(acks=-1, timeout_ms=1, topic_data=[topic]))
    assert parts[1] is records
    frame = frame_of(parts)
    message, end = request_codec(ApiKey.PRODUCE, 9).decode(frame, decode_request_header(frame).body_at)
    assert end == len(frame)
    assert message.topic_data[0].partition_data[0].records == records
