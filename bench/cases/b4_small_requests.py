"""B4: small requests: one record each, no linger, 20 in flight per connection, on 1 to 100 connections.

The load generator is as light as it can be, so that it does not become what is measured: all connections in one
epoll loop, the request's bytes made once and sent again and again, and answers only counted, since each of them has
the same size. That every one was a success is checked afterwards, by the end offsets.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

from bench import clients, raw
from bench.measure import Benchmark, Sample, Scale
from bench.systems.process import BrokerProcess

IN_FLIGHT = 20
CONNECTIONS = (1, 4, 32, 100)
MEASURED_S = 3.0
WARMUP_S = 1.0
BURST_S = 4.0


class Load:
    """`connections` sockets that each keep `IN_FLIGHT` Produce requests of one record under way."""

    def __init__(self, broker: BrokerProcess, topic: str, connections: int) -> None:
        self.acknowledged = 0
        self.answer_size = 0
        self._buffer = memoryview(bytearray(1 << 16))
        self._epoll = select.epoll()
        self._requests: dict[int, tuple[socket.socket, memoryview, int]] = {}
        self._partial: dict[int, int] = {}
        batch = raw.record_batch([b"x" * 100], int(time.time() * 1000))
        for n in range(connections):
            request = raw.produce_frame(topic, n % clients.PARTITIONS, batch)
            connection = raw.Connection(broker.host, broker.port)
            answer = connection.produce_first(request)
            self.acknowledged += 1
            self.answer_size = 4 + len(answer)
            one = connection.socket
            one.setblocking(False)
            self._requests[one.fileno()] = (one, memoryview(request * IN_FLIGHT), len(request))
            self._partial[one.fileno()] = 0
            self._epoll.register(one.fileno(), select.EPOLLIN)

    def start(self) -> None:
        for one, requests, _ in self._requests.values():
            one.sendall(requests)

    def step(self, refill: bool = True) -> int:
        """Takes what has come, and sends as many requests again; returns the number of answers."""
        answered = 0
        for number, _ in self._epoll.poll(5):
            one, requests, size = self._requests[number]
            count = one.recv_into(self._buffer)
            if count == 0:
                raise ConnectionError("closed by the broker")
            whole, self._partial[number] = divmod(self._partial[number] + count, self.answer_size)
            answered += whole
            if refill and whole:
                self._send(one, requests[: whole * size])
        self.acknowledged += answered
        return answered

    @staticmethod
    def _send(one: socket.socket, data: memoryview) -> None:
        sent = one.send(data)
        while sent < len(data):
            select.select([], [one], [])
            sent += one.send(data[sent:])

    def run_for(self, seconds: float) -> float:
        """Requests a second."""
        began = time.perf_counter()
        answered = 0
        while (taken := time.perf_counter() - began) < seconds:
            answered += self.step()
        return answered / taken

    def drain(self) -> None:
        expected = self.acknowledged + IN_FLIGHT * len(self._requests)
        while self.acknowledged < expected:
            assert self.step(refill=False), "answers are missing"
        for one, *_ in self._requests.values():
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            one.close()
        self._epoll.close()


def warm_up(broker: BrokerProcess, seconds: float) -> None:
    """A burst that is not measured: a JVM is slow until it has compiled what runs most."""
    topic = clients.new_topic(broker.bootstrap)
    load = Load(broker, topic, 4)
    load.start()
    load.run_for(seconds)
    load.drain()
    clients.delete_topic(broker.bootstrap, topic)


def run(broker: BrokerProcess, scale: Scale, directory: Path) -> Iterator[Sample]:
    warm_up(broker, scale.seconds(BURST_S))
    for connections in CONNECTIONS:
        topic = clients.new_topic(broker.bootstrap)
        load = Load(broker, topic, connections)
        load.start()
        load.run_for(scale.seconds(WARMUP_S))
        requests_per_s = load.run_for(scale.seconds(MEASURED_S))
        load.drain()
        arrived = clients.end_offsets(broker.bootstrap, topic)
        assert arrived == load.acknowledged, f"{load.acknowledged} acknowledged, the log holds {arrived}"
        clients.delete_topic(broker.bootstrap, topic)
        noun = "connection" if connections == 1 else "connections"
        yield Sample(f"{connections} {noun}", requests_per_s / 1000, "thousand/s", "higher")


BENCHMARK = Benchmark("B4", "small requests", run)
