"""Load that is spread over thousands of partitions: one batch a request, each request to another partition."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from bench import raw
from bench.pipelined import PipelinedLoad
from bench.systems.process import BrokerProcess
from bench.systems.tidelog import Tidelog

CONNECTIONS = 32
IN_FLIGHT = 5
FIRST_S = 300
PATIENCE_S = 60
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


class SpreadLoad(PipelinedLoad):
    def __init__(self, broker: BrokerProcess, topic: str, partitions: int, batch: bytes) -> None:
        self._partitions = partitions
        self._next = 0
        # Everything of a request but the number of its partition, which stands before the batch.
        whole = raw.produce_frame(topic, 0x01020304, batch)
        at = whole.index(b"\x01\x02\x03\x04")
        self._before, self._behind = whole[:at], whole[at + 4 :]
        super().__init__(broker, min(CONNECTIONS, partitions), IN_FLIGHT, FIRST_S, PATIENCE_S)

    def requests(self, connection: int, count: int) -> memoryview:
        return memoryview(b"".join([self._request() for _ in range(count)]))

    def _request(self) -> bytes:
        self._next = (self._next + _STRIDE) % self._partitions
        return b"".join((self._before, struct.pack(">i", self._next), self._behind))
