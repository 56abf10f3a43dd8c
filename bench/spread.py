"""Load that is spread over thousands of partitions: one batch a request, each request to another partition.

As light as that of B4: all connections in one epoll loop, and answers only counted, since each of them has the same
size. That every one was a success is checked afterwards, by the end offsets.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

from bench import raw
from bench.systems.process import BrokerProcess
from bench.systems.tidelog import Tidelog

CONNECTIONS = 32
IN_FLIGHT = 5
#: each request goes so many partitions further; a prime, so that all of them come round
_STRIDE = 7919
LAYOUTS = ("shared", "partitioned")


def brokers(broker: BrokerProcess, directory: Path) -> Iterator[tuple[tuple[str, ...], BrokerProcess]]:
    """What is to be measured, and the layouts that its figures stand for: Tidelog in each layout, and another system
    once, which both are compared with."""
    if not isinstance(broker, Tidelog):
        yield LAYOUTS, broker
        return
    for layout in LAYOUTS:
        yield (layout,), type(broker)(directory / layout, {**broker.config, "log.layout": layout})


class SpreadLoad:
    """`CONNECTIONS` sockets that each keep `IN_FLIGHT` Produce requests under way."""

    def __init__(self, broker: BrokerProcess, topic: str, partitions: int, batch: bytes) -> None:
        self.acknowledged = 0
        self._partitions = partitions
        self._next = 0
        # Everything of a request but the number of its partition, which stands before the batch.
        whole = raw.produce_frame(topic, 0x01020304, batch)
        at = whole.index(b"\x01\x02\x03\x04")
        self._before, self._behind = whole[:at], whole[at + 4 :]
        self._buffer = memoryview(bytearray(1 << 16))
        self._epoll = select.epoll()
        self._sockets: dict[int, socket.socket] = {}
        self._partial: dict[int, int] = {}
        self.answer_size = 0
        for _ in range(min(CONNECTIONS, partitions)):
            connection = raw.Connection(broker.host, broker.port)
            self.answer_size = 4 + len(connection.produce_first(self._request(), 300))
            self.acknowledged += 1
            one = connection.socket
            one.setblocking(False)
            self._sockets[one.fileno()] = one
            self._partial[one.fileno()] = 0
            self._epoll.register(one.fileno(), select.EPOLLIN)

    def _request(self) -> bytes:
        self._next = (self._next + _STRIDE) % self._partitions
        return b"".join((self._before, struct.pack(">i", self._next), self._behind))

    def start(self) -> None:
        for one in self._sockets.values():
            self._send(one, IN_FLIGHT)

    def _send(self, one: socket.socket, count: int) -> None:
        data = memoryview(b"".join([self._request() for _ in range(count)]))
        sent = 0
        while sent < len(data):
            try:
                sent += one.send(data[sent:])
            except BlockingIOError:
                select.select([], [one], [])

    def step(self, refill: bool = True) -> int:
        """Takes what has come, and sends as many requests again; returns the number of answers."""
        answered = 0
        for number, _ in self._epoll.poll(60):
            one = self._sockets[number]
            count = one.recv_into(self._buffer)
            if count == 0:
                raise ConnectionError("closed by the broker")
            whole, self._partial[number] = divmod(self._partial[number] + count, self.answer_size)
            answered += whole
            if refill and whole:
                self._send(one, whole)
        self.acknowledged += answered
        return answered

    def run_for(self, seconds: float) -> float:
        """Requests a second."""
        began = time.perf_counter()
        answered = 0
        while (taken := time.perf_counter() - began) < seconds:
            answered += self.step()
        return answered / taken

    def run_until(self, acknowledged: int) -> None:
        while self.acknowledged < acknowledged:
            assert self.step(), "answers are missing"

    def drain(self) -> None:
        expected = self.acknowledged + IN_FLIGHT * len(self._sockets)
        while self.acknowledged < expected:
            assert self.step(refill=False), "answers are missing"
        for one in self._sockets.values():
            one.close()
        self._epoll.close()
