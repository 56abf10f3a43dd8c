"""Raw requests and answers in a form that two brokers' answers can be compared in.

Requests are built and answers decoded by kafka-python's own schemas, an implementation that is neither Apache Kafka's
nor ours. What differs from run to run (ids, times, addresses, texts) is replaced by a name that stays the same.
"""

from __future__ import annotations

import itertools
import socket
import struct
import uuid
from collections.abc import Callable, Iterator
from typing import Any

from bench.raw import crc32c, varint
from kafka.protocol.api_message import ApiMessage

#: Dropped: a throttle time depends on load, and a message's wording is not a protocol.
_DROPPED = {"throttle_time_ms", "error_message", "batch_index_error_message"}
_NAMED = {
    "host": "host", "port": "port", "cluster_id": "cluster", "log_dir": "dir", "total_bytes": "bytes",
    "usable_bytes": "bytes", "client_host": "host",
}  # fmt: skip
#: Numbered in the order in which they are first seen, so that "the same one again" can be told.
_NUMBERED = {"topic_id", "producer_id", "member_id", "session_id", "leader", "member_ids"}
_TIMES = {"timestamp", "log_append_time_ms", "transaction_start_time_ms", "last_timestamp"}
_LONG_AGO_MS = 1_750_000_000_000


class Closed:
    """The broker closed the connection instead of answering."""


class Wire:
    """A connection that is made again when the broker closes it."""

    def __init__(self, host: str, port: int) -> None:
        self._address = (host, port)
        self._socket: socket.socket | None = None
        self._correlation = itertools.count(1)
        self._seen: dict[tuple[str, object], str] = {}

    def ask(self, kind: type[ApiMessage], version: int, **fields: Any) -> Any:
        """The normalised answer, or "closed"."""
        answer = self.raw(kind, version, **fields)
        return "closed" if answer is Closed else self.seen(answer)

    def raw(self, kind: type[ApiMessage], version: int, **fields: Any) -> Any:
        request = kind(version=version, **fields)
        request.with_header(correlation_id=next(self._correlation), client_id="differential")
        answer = self.exchange(bytes(request.encode(header=True, framed=True)))
        if answer is Closed:
            return Closed
        response = _response_of(kind)
        return response.decode(answer, version=version, header=True)

    def exchange(self, frame: bytes, expect_answer: bool = True) -> Any:
        connection = self._connected()
        try:
            connection.sendall(frame)
            if not expect_answer:
                return b""
            (size,) = struct.unpack(">i", self._receive(connection, 4))
            return self._receive(connection, size)
        except (ConnectionError, EOFError):
            self.close()
            return Closed

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _connected(self) -> socket.socket:
        if self._socket is None:
            self._socket = socket.create_connection(self._address, timeout=12)
        return self._socket

    @staticmethod
    def _receive(connection: socket.socket, size: int) -> bytes:
        data = b""
        while len(data) < size:
            chunk = connection.recv(size - len(data))
            if not chunk:
                raise EOFError
            data += chunk
        return data

    # -- what two brokers' answers are compared in

    def seen(self, answer: Any) -> Any:
        return self.normal(answer.to_dict(json=False))

    def normal(self, value: Any, name: str = "") -> Any:
        if isinstance(value, dict):
            # Null or empty, it says nothing beside an error; Apache Kafka itself does both.
            dropped = _DROPPED | ({"aborted_transactions"} if value.get("error_code") else set())
            return {key: self.normal(one, key) for key, one in value.items() if key not in dropped}
        if isinstance(value, set | frozenset):
            return sorted(str(one) for one in value)
        if isinstance(value, list | tuple):
            return [self.normal(one, name) for one in sorted(value, key=_identity)]
        if isinstance(value, bytes | bytearray | memoryview):
            return batches(bytes(value)) if name == "records" else bytes(value).hex()
        if name in _NAMED and value not in (None, "", -1):
            return f"<{_NAMED[name]}>"
        if name in _NUMBERED:
            return self._number(name, value)
        if name in _TIMES and isinstance(value, int) and value > _LONG_AGO_MS:
            return "<now>"
        return str(value) if isinstance(value, uuid.UUID) else value

    def _number(self, name: str, value: Any) -> Any:
        plain = str(value) if isinstance(value, uuid.UUID) else value
        if plain in (None, "", -1, "00000000-0000-0000-0000-000000000000") or (name == "session_id" and plain == 0):
            return plain
        kind = {"leader": "member_id", "member_ids": "member_id"}.get(name, name)
        if (kind, plain) not in self._seen:
            number = sum(one == kind for one, _ in self._seen)
            self._seen[kind, plain] = f"<{kind} {number}>"
        return self._seen[kind, plain]


def _identity(one: Any) -> tuple[str, int]:
    """What an answer's lists are sorted by, where they are about named things: their order has no meaning."""
    if not isinstance(one, dict):
        return ("", 0)
    name = next((str(one[key]) for key in ("name", "topic", "group_id", "resource_name") if one.get(key)), "")
    number = next((one[key] for key in ("partition_index", "index", "partition", "api_key") if key in one), 0)
    return (name, number)


_responses: dict[str, type[ApiMessage]] = {}


def _response_of(kind: type[ApiMessage]) -> type[ApiMessage]:
    name = kind.__name__.replace("Request", "Response")
    if name not in _responses:
        _responses.update({one.__name__: one for one in _subclasses(ApiMessage)})
    return _responses[name]


def _subclasses(kind: type) -> Iterator[type]:
    for one in kind.__subclasses__():
        yield one
        yield from _subclasses(one)


def batches(data: bytes) -> list[dict[str, int]]:
    """A record set as its whole batches: whether a cut one follows them is the broker's choice."""
    found = []
    at = 0
    while at + 61 <= len(data):
        base, length, epoch, magic, _, attributes, delta = struct.unpack_from(">qiibIhi", data, at)
        if at + 12 + length > len(data):
            break
        (count,) = struct.unpack_from(">i", data, at + 57)
        names = ("base", "last", "count", "epoch", "magic", "attributes")
        found.append(dict(zip(names, (base, base + delta, count, epoch, magic, attributes), strict=True)))
        at += 12 + length
    return found


def batch(
    values: list[bytes],
    *,
    key: bytes | None = None,
    base_offset: int = 0,
    magic: int = 2,
    attributes: int = 0,
    timestamp_ms: int = 1_000,
    max_timestamp_ms: int | None = None,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    count: int | None = None,
    last_delta: int | None = None,
    break_crc: bool = False,
    alter: Callable[[bytes], bytes] = lambda records: records,
) -> bytes:
    """A record batch that is right unless told otherwise."""
    records = b""
    for n, value in enumerate(values):
        keyed = varint(-1) if key is None else varint(len(key)) + key
        body = b"\x00" + varint(0) + varint(n) + keyed + varint(len(value)) + value + b"\x00"
        records += varint(len(body)) + body
    last = len(values) - 1 if last_delta is None else last_delta
    latest = timestamp_ms if max_timestamp_ms is None else max_timestamp_ms
    fields = (
        attributes,
        last,
        timestamp_ms,
        latest,
        producer_id,
        epoch,
        sequence,
        len(values) if count is None else count,
    )
    tail = struct.pack(">hiqqqhii", *fields) + alter(records)
    checksum = crc32c(tail) ^ (1 if break_crc else 0)
    return struct.pack(">qiibI", base_offset, len(tail) + 9, -1, magic, checksum) + tail
