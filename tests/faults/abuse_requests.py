"""Requests that no client sends, by hand: what the tests of abuse and the soak have in common."""

from __future__ import annotations

import struct
import time
from typing import Any

from bench import raw
from fastcrc.crc32 import iscsi as crc32c

from tidelog.wire import messages
from tidelog.wire.apis import ApiKey
from tidelog.wire.compression import compress
from tidelog.wire.frame import encode_request

MIB = 1 << 20
CODECS = {"gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


def framed(api_key: int, version: int, message: Any) -> bytes:
    return b"".join(bytes(part) for part in encode_request(api_key, version, 7, "abuse", message))


def fetch_of(partitions: int, topic: str = "healthy") -> bytes:
    """A Fetch 12 of one topic with so many partitions, most of which do not exist."""
    each = b"".join(
        struct.pack(">iiqiqi", index, -1, 0, -1, -1, 1000) + b"\x00" for index in range(min(partitions, 1000))
    )
    indexes = (each * (partitions // 1000 + 1))[: 33 * partitions]
    topics = b"\x02" + raw.compact(topic.encode()) + raw.uvarint(partitions + 1) + indexes + b"\x00"
    limits = struct.pack(">iiiibii", -1, 0, 1, 50_000_000, 0, 0, -1)
    return raw.frame(raw.FETCH, 12, limits + topics + b"\x01" + b"\x01" + b"\x00")


def metadata_of(topics: int) -> bytes:
    """A Metadata 9 of so many topics that do not exist, without having them made."""
    names = b"".join(raw.compact(b"unknown-%d" % number) + b"\x00" for number in range(topics))
    return raw.frame(raw.METADATA, 9, raw.uvarint(topics + 1) + names + b"\x00\x00\x00" + b"\x00")


def packed(codec: int, payload: bytes, count: int) -> bytes:
    """A batch whose records are `payload` as it is."""
    now_ms = int(time.time() * 1000)
    tail = struct.pack(">hiqqqhii", codec, count - 1, now_ms, now_ms, -1, -1, -1, count) + payload
    return struct.pack(">qiibI", 0, len(tail) + 9, -1, 2, crc32c(tail)) + tail


def one_record(size: int) -> bytes:
    """The payload of a batch of one record with so many zeros."""
    body = b"\x00" + raw.varint(0) + raw.varint(0) + raw.varint(-1) + raw.varint(size) + bytes(size) + b"\x00"
    return raw.varint(len(body)) + body


def bomb(codec: str, unpacked_bytes: int, topic: str = "healthy") -> bytes:
    """A produce of a batch of one record that unpacks to this much; a few kilobytes on the wire, but for snappy."""
    return raw.produce_frame(
        topic, 0, packed(CODECS[codec], bytes(compress(CODECS[codec], one_record(unpacked_bytes))), 1)
    )


def join_of(group: str, metadata_bytes: int) -> bytes:
    protocol = messages.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=bytes(metadata_bytes))
    request = messages.JoinGroupRequest(
        group_id=group,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        protocol_type="consumer",
        protocols=[protocol],
    )
    return framed(ApiKey.JOIN_GROUP, 3, request)


def consumer_join(group: str, member: str, **fields: Any) -> bytes:
    """The first heartbeat of a member of a server-side group."""
    request = messages.ConsumerGroupHeartbeatRequest(
        group_id=group, member_id=member, member_epoch=0, rebalance_timeout_ms=60_000, topic_partitions=[], **fields
    )
    return framed(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, request)


def commit_of(group: str, topic: str) -> bytes:
    """An offset that a consumer without a group membership commits."""
    of_commit = messages.OffsetCommitRequest
    partition = of_commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=0)
    request = of_commit(group_id=group, topics=[of_commit.OffsetCommitRequestTopic(name=topic, partitions=[partition])])
    return framed(ApiKey.OFFSET_COMMIT, 8, request)


def creation_of(names: list[str], partitions: int = 1) -> bytes:
    of_topic = messages.CreateTopicsRequest.CreatableTopic
    topics = [of_topic(name=name, num_partitions=partitions, replication_factor=1) for name in names]
    return framed(ApiKey.CREATE_TOPICS, 5, messages.CreateTopicsRequest(topics=topics, timeout_ms=60_000))


def deletion_of(names: list[str]) -> bytes:
    request = messages.DeleteTopicsRequest(topic_names=names, timeout_ms=60_000)
    return framed(ApiKey.DELETE_TOPICS, 3, request)
