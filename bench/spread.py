"""Load that is spread over thousands of partitions: each request goes to others than the one before."""

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
#: stands for a partition's number where that is still to be put; not found anywhere else in a request
_FIRST_MARK = 0x01020300
_PARTITION = struct.Struct(">i")
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
    """`each`: to how many partitions a request goes, with one batch for each of them."""

    def __init__(self, broker: BrokerProcess, topic: str, partitions: int, batch: bytes, each: int = 1) -> None:
        self._partitions = partitions
        self._next = 0
        # Everything of a request but the numbers of its partitions.
        marks = [_FIRST_MARK + n for n in range(each)]
        self._whole = raw.produce_frame_to(topic, marks, batch)
        self._places = [self._whole.index(struct.pack(">i", mark)) for mark in marks]
        super().__init__(broker, min(CONNECTIONS // min(each, 4), partitions), IN_FLIGHT, FIRST_S, PATIENCE_S)

    def requests(self, connection: int, count: int) -> memoryview:
        return memoryview(b"".join([self._request() for _ in range(count)]))

    def _request(self) -> bytearray:
        request = bytearray(self._whole)
        for place in self._places:
            self._next = (self._next + _STRIDE) % self._partitions
            _PARTITION.pack_into(request, place, self._next)
        return request
