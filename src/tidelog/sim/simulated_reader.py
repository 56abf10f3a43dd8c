"""A simulated consumer of some partitions, each read from its beginning as fast as records come."""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.peers.requester import Answered, Failure
from tidelog.sim.oracle import LogPlace, Oracle
from tidelog.sim.simulated_client import RETRIABLE, SimulatedClient
from tidelog.sim.violation import Violation
from tidelog.sim.world import World
from tidelog.wire import messages
from tidelog.wire.errors import ErrorCode
from tidelog.wire.records import iter_records

#: names, not topic ids
FETCH_VERSION = 12
FETCH_TIMEOUT_MS = 5_000
MAX_WAIT_MS = 500
MAX_BYTES = 4096


def fetch_request(place: LogPlace, offset: int, leader_epoch: int) -> messages.FetchRequest:
    request = messages.FetchRequest
    wanted = request.FetchPartition(
        partition=place.partition,
        current_leader_epoch=leader_epoch,
        fetch_offset=offset,
        partition_max_bytes=MAX_BYTES,
    )
    topics = [request.FetchTopic(topic=place.topic, partitions=[wanted])]
    return request(max_wait_ms=MAX_WAIT_MS, min_bytes=1, max_bytes=MAX_BYTES, topics=topics)


class SimulatedReader(SimulatedClient):
    """It never goes back, and never skips anything."""

    def __init__(self, world: World, oracle: Oracle, name: str, places: Sequence[LogPlace]) -> None:
        super().__init__(world, oracle, name)
        self.positions = dict.fromkeys(places, 0)
        #: (leader and its process, high watermark) as last told
        self._told: dict[LogPlace, tuple[tuple[int, int], int]] = {}
        for place in places:
            self._go_on(place)

    def _go_on(self, place: LogPlace) -> None:
        if self.is_stopped:
            return
        leader = self.leader(place)
        if leader is None:
            self._look(place)
            return
        self.ask(
            leader,
            fetch_request(place, self.positions[place], self.leader_epoch(place)),
            lambda outcome: self._fetched(place, leader, outcome),
            FETCH_TIMEOUT_MS,
            FETCH_VERSION,
        )

    def _look(self, place: LogPlace) -> None:
        self.refresh(place.topic, lambda: self.soon(20, 150, lambda: self._go_on(place)))

    def _fetched(self, place: LogPlace, leader: int, outcome: Answered[messages.FetchResponse] | Failure) -> None:
        if isinstance(outcome, Failure):
            self.count("fetch", outcome.kind.value)
            self._look(place)
            return
        (topic,) = outcome.message.responses
        (data,) = topic.partitions
        self.count("fetch", ErrorCode.of(data.error_code).name)
        if data.error_code in RETRIABLE:
            self._look(place)
            return
        if data.error_code:
            raise Violation(
                "forward",
                f"{self.name} is answered {ErrorCode.of(data.error_code).name} at offset {self.positions[place]} of "
                f"{place} by broker {leader}, having read everything below",
            )
        self._take(place, leader, data)
        self._go_on(place)

    def _take(self, place: LogPlace, leader: int, data: messages.FetchResponse.PartitionData) -> None:
        teller = leader, self.world.brokers[leader].lives
        told_by, high_watermark = self._told.get(place, (None, 0))
        if told_by == teller and data.high_watermark < high_watermark:
            raise Violation(
                "high watermark",
                f"broker {leader} told {self.name} {high_watermark} of {place}, and now {data.high_watermark}",
            )
        self._told[place] = teller, data.high_watermark
        if not data.records:
            return
        truth = self.oracle[place]
        for record in iter_records(bytes(data.records)):
            if record.offset < self.positions[place]:
                continue
            if record.offset != self.positions[place]:
                raise Violation(
                    "forward", f"{self.name} got offset {record.offset} of {place} after {self.positions[place] - 1}"
                )
            if record.offset >= data.high_watermark:
                raise Violation(
                    "committed only",
                    f"{self.name} got offset {record.offset} of {place}, past the high watermark {data.high_watermark}",
                )
            truth.see(record.offset, record.value or b"")
            self.positions[place] = record.offset + 1
