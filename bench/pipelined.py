"""Requests over raw sockets, several under way on each.

As light as it can be, so that it does not become what is measured: all connections in one epoll loop, and answers only
counted, since each of them has the same size. That every one was a success is checked afterwards, by the end offsets.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from abc import ABC, abstractmethod

from bench import raw
from bench.systems.process import BrokerProcess


class PipelinedLoad(ABC):
    """`connections` sockets that each keep `in_flight` Produce requests under way.

    The first request of a connection has `first_s` to succeed; later on, some answer comes within `patience_s`.
    """

    def __init__(
        self, broker: BrokerProcess, connections: int, in_flight: int, first_s: float, patience_s: float
    ) -> None:
        self.acknowledged = 0
        self.answer_size = 0
        self._in_flight = in_flight
        self._patience_s = patience_s
        self._buffer = memoryview(bytearray(1 << 16))
        self._epoll = select.epoll()
        self._sockets: dict[int, tuple[socket.socket, int]] = {}
        self._partial: dict[int, int] = {}
        for n in range(connections):
            connection = raw.Connection(broker.host, broker.port)
            self.answer_size = 4 + len(connection.produce_first(bytes(self.requests(n, 1)), first_s))
            self.acknowledged += 1
            one = connection.socket
            one.setblocking(False)
            self._sockets[one.fileno()] = one, n
            self._partial[one.fileno()] = 0
            self._epoll.register(one.fileno(), select.EPOLLIN)

    @abstractmethod
    def requests(self, connection: int, count: int) -> memoryview:
        """The next ones for a connection, as bytes; at most `in_flight`."""

    def start(self) -> None:
        for one, n in self._sockets.values():
            _send(one, self.requests(n, self._in_flight))

    def step(self, refill: bool = True) -> int:
        """Takes what has come, and sends as many requests again; returns the number of answers."""
        answered = 0
        for number, _ in self._epoll.poll(self._patience_s):
            one, n = self._sockets[number]
            count = one.recv_into(self._buffer)
            if count == 0:
                raise ConnectionError("closed by the broker")
            whole, self._partial[number] = divmod(self._partial[number] + count, self.answer_size)
            answered += whole
            if refill and whole:
                _send(one, self.requests(n, whole))
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
        expected = self.acknowledged + self._in_flight * len(self._sockets)
        while self.acknowledged < expected:
            assert self.step(refill=False), "answers are missing"
        for one, _ in self._sockets.values():
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            one.close()
        self._epoll.close()


def _send(one: socket.socket, data: memoryview) -> None:
    sent = 0
    while sent < len(data):
        try:
            sent += one.send(data[sent:])
        except BlockingIOError:
            select.select([], [one], [])
