"""Kafka requests by hand: whole frames as bytes, for load that no client library stands in the way of.

Independent of Tidelog's own codec on purpose. One version per API, each served by both brokers:
Produce 9, Fetch 12, ListOffsets 6, Metadata 9 (all with compact fields and the request header version 2).
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass

from fastcrc.crc32 import iscsi as crc32c

PRODUCE, FETCH, LIST_OFFSETS, METADATA = 0, 1, 2, 3


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def varint(value: int) -> bytes:
    return uvarint((value << 1) ^ (value >> 63))


def compact(text: bytes) -> bytes:
    return uvarint(len(text) + 1) + text


def record_batch(values: list[bytes], first_timestamp_ms: int, step_ms: int = 0) -> bytes:
    """One uncompressed batch without producer id; record n is stamped `first_timestamp_ms + n * step_ms`."""
    records = bytearray()
    for n, value in enumerate(values):
        body = b"\x00" + varint(n * step_ms) + varint(n) + varint(-1) + varint(len(value)) + value + b"\x00"
        records += varint(len(body)) + body
    count = len(values)
    last_ms = first_timestamp_ms + (count - 1) * step_ms
    tail = struct.pack(">hiqqqhii", 0, count - 1, first_timestamp_ms, last_ms, -1, -1, -1, count) + records
    return struct.pack(">qiibI", 0, len(tail) + 9, -1, 2, crc32c(tail)) + tail


def restamped(batch: bytes, first_timestamp_ms: int) -> bytes:
    """The same batch at another time, with its checksum made right again."""
    base, last = struct.unpack_from(">qq", batch, 27)
    tail = bytearray(batch[21:])
    struct.pack_into(">qq", tail, 6, first_timestamp_ms, first_timestamp_ms + last - base)
    return batch[:17] + struct.pack(">I", crc32c(bytes(tail))) + bytes(tail)


def frame(api_key: int, version: int, body: bytes) -> bytes:
    header = struct.pack(">hhih", api_key, version, 7, 5) + b"bench" + b"\x00"
    return struct.pack(">i", len(header) + len(body)) + header + body


def produce_frame(topic: str, partition: int, batch: bytes, acks: int = 1) -> bytes:
    return produce_frame_to(topic, (partition,), batch, acks)


def produce_frame_to(topic: str, partitions: Sequence[int], batch: bytes, acks: int = 1) -> bytes:
    """The same batch for each partition."""
    behind = uvarint(len(batch) + 1) + batch + b"\x00"
    each = b"".join(struct.pack(">i", partition) + behind for partition in partitions)
    topics = b"\x02" + compact(topic.encode()) + uvarint(len(partitions) + 1) + each + b"\x00"
    return frame(PRODUCE, 9, b"\x00" + struct.pack(">hi", acks, 30_000) + topics + b"\x00")


def fetch_frame(topic: str, partition: int, offset: int, max_bytes: int) -> bytes:
    one = struct.pack(">iiqiqi", partition, -1, offset, -1, -1, max_bytes) + b"\x00"
    topics = b"\x02" + compact(topic.encode()) + b"\x02" + one + b"\x00"
    limits = struct.pack(">iiiibii", -1, 0, 1, 50_000_000, 0, 0, -1)
    return frame(FETCH, 12, limits + topics + b"\x01" + b"\x01" + b"\x00")


def list_offsets_frame(topic: str, partition: int, timestamp_ms: int) -> bytes:
    one = struct.pack(">iiq", partition, -1, timestamp_ms) + b"\x00"
    topics = b"\x02" + compact(topic.encode()) + b"\x02" + one + b"\x00"
    return frame(LIST_OFFSETS, 6, struct.pack(">ib", -1, 0) + topics + b"\x00")


def auto_create_frame(topic: str) -> bytes:
    """Metadata about one topic, which makes the topic where it is missing."""
    topics = b"\x02" + compact(topic.encode()) + b"\x00"
    return frame(METADATA, 9, topics + b"\x01\x00\x00" + b"\x00")


@dataclass(frozen=True, slots=True)
class Produced:
    error_code: int
    base_offset: int


class Connection:
    """A blocking connection: one request, one answer."""

    def __init__(self, host: str, port: int, timeout: float = 60) -> None:
        self.socket = socket.create_connection((host, port), timeout=timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray(1 << 20)

    def ask(self, request: bytes) -> bytes:
        """The answer without its size; its correlation id is the first four bytes."""
        self.socket.sendall(request)
        return self.answer()

    def answer(self) -> bytes:
        (size,) = struct.unpack(">i", self._receive(4))
        return self._receive(size)

    def _receive(self, size: int) -> bytes:
        if size > len(self._buffer):
            self._buffer = bytearray(size)
        view, at = memoryview(self._buffer), 0
        while at < size:
            count = self.socket.recv_into(view[at:size])
            if count == 0:
                raise ConnectionError("closed by the broker")
            at += count
        return bytes(view[:size])

    def produce(self, request: bytes) -> Produced:
        return parse_produced(self.ask(request))

    def produce_first(self, request: bytes, deadline_s: float = 30) -> bytes:
        """The answer of the first success: a new topic's leader may still be on its way into office."""
        deadline = time.monotonic() + deadline_s
        while (produced := parse_produced(answer := self.ask(request))).error_code != 0:
            if time.monotonic() > deadline:
                raise TimeoutError(f"the first record was refused with error {produced.error_code}")
            time.sleep(0.002)
        return answer

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def parse_produced(answer: bytes) -> Produced:
    """The one partition of a Produce 9 answer; the topic's name is shorter than 127 bytes."""
    at = 4 + 1 + 1  # correlation id, header tags, one topic
    at += 1 + (answer[at] - 1) + 1  # its name, one partition
    _, error_code, base_offset = struct.unpack_from(">ihq", answer, at)
    return Produced(error_code, base_offset)


def parse_listed(answer: bytes) -> tuple[int, int]:
    """Timestamp and offset of the one partition of a ListOffsets 6 answer."""
    at = 4 + 1 + 4 + 1  # correlation id, header tags, throttle time, one topic
    at += 1 + (answer[at] - 1) + 1
    _, error_code, timestamp_ms, offset = struct.unpack_from(">ihqq", answer, at)
    assert error_code == 0, f"ListOffsets answered error {error_code}"
    return timestamp_ms, offset


def make_topic(host: str, port: int, topic: str) -> None:
    """Has a topic made by asking for it, and returns when partition 0 has taken a first record."""
    with Connection(host, port) as connection:
        connection.ask(auto_create_frame(topic))
        connection.produce_first(produce_frame(topic, 0, record_batch([b"first"], 1)))
