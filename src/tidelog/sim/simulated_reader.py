"""A simulated consumer of some partitions, each read from its beginning as fast as records come."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tidelog.client.reader import AbortedTransactions
from tidelog.peers.requester import Answered, Failure
from tidelog.sim.log_place import LogPlace
from tidelog.sim.oracle import Oracle
from tidelog.sim.simulated_client import RETRIABLE, SimulatedClient
from tidelog.sim.violation import Violation
from tidelog.sim.world import World
from tidelog.wire import messages
from tidelog.wire.batch import BatchHeader, crc_matches, iter_headers
from tidelog.wire.errors import ErrorCode
from tidelog.wire.records import read_records

#: names, not topic ids
FETCH_VERSION: Final = 12
FETCH_TIMEOUT_MS: Final = 5_000
MAX_WAIT_MS: Final = 500
MAX_BYTES: Final = 4096
READ_UNCOMMITTED, READ_COMMITTED = 0, 1


def fetch_request(place: LogPlace, offset: int, leader_epoch: int, isolation_level: int = 0) -> messages.FetchRequest:
    request = messages.FetchRequest
    wanted = request.FetchPartition(
        partition=place.partition,
        current_leader_epoch=leader_epoch,
        fetch_offset=offset,
        partition_max_bytes=MAX_BYTES,
    )
    topics = [request.FetchTopic(topic=place.topic, partitions=[wanted])]
    return request(
        max_wait_ms=MAX_WAIT_MS, min_bytes=1, max_bytes=MAX_BYTES, isolation_level=isolation_level, topics=topics
    )


class SimulatedReader(SimulatedClient):
    """It never goes back, and never skips anything."""

    def __init__(
        self,
        world: World,
        oracle: Oracle,
        name: str,
        places: Sequence[LogPlace],
        isolation_level: int = READ_UNCOMMITTED,
    ) -> None:
        super().__init__(world, oracle, name)
        self.positions = dict.fromkeys(places, 0)
        self._isolation_level = isolation_level
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
            fetch_request(place, self.positions[place], self.leader_epoch(place), self._isolation_level),
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
        code = ErrorCode.of(data.error_code)
        self.count("fetch", code.name)
        if code in RETRIABLE:
            self._look(place)
            return
        if code:
            raise Violation(
                "forward",
                f"{self.name} is answered {code.name} at offset {self.positions[place]} of {place} by broker "
                f"{leader}, having read everything below",
            )
        if self._take(place, leader, data):
            self._go_on(place)
        else:
            self.soon(500, 1_000, lambda: self._look(place))

    def _take(self, place: LogPlace, leader: int, data: messages.FetchResponse.PartitionData) -> bool:
        """False where something in it is damaged."""
        teller = leader, self.world.brokers[leader].lives
        told_by, high_watermark = self._told.get(place, (None, 0))
        if told_by == teller and data.high_watermark < high_watermark:
            raise Violation(
                "high watermark",
                f"broker {leader} told {self.name} {high_watermark} of {place}, and now {data.high_watermark}",
            )
        self._told[place] = teller, data.high_watermark
        end = data.last_stable_offset if self._isolation_level else data.high_watermark
        records = memoryview(bytes(data.records or b""))
        aborted = AbortedTransactions((each.producer_id, each.first_offset) for each in data.aborted_transactions or ())
        for at, header in iter_headers(records):
            batch = records[at : at + header.size_bytes]
            if not crc_matches(records, at, header):
                self._find_damage(place, leader, header)
                return False
            is_hidden = aborted.hides(header, batch)
            if header.next_offset <= self.positions[place]:
                continue
            if header.base_offset > self.positions[place]:
                raise Violation(
                    "forward", f"{self.name} got offset {header.base_offset} of {place} after {self.positions[place]}"
                )
            if header.last_offset >= end:
                raise Violation(
                    "committed only", f"{self.name} got offset {header.last_offset} of {place}, which ends at {end}"
                )
            self._see(place, header, batch, is_hidden)
            self.positions[place] = header.next_offset
        return True

    def _see(self, place: LogPlace, header: BatchHeader, batch: memoryview, is_hidden: bool) -> None:
        truth, position = self.oracle[place], self.positions[place]
        waiting = self.oracle.waiting.watched.get(place)
        if header.is_control:
            truth.see_marker(header.base_offset)
            return
        for record in read_records(batch):
            if record.offset >= position:
                value = record.value or b""
                truth.see(record.offset, value)
                if waiting is not None:
                    waiting(record)
                if self._isolation_level and header.is_transactional and not is_hidden:
                    self.oracle.transactions.see(place, record.offset, value)

    def _find_damage(self, place: LogPlace, leader: int, header: BatchHeader) -> None:
        self.witness("damaged batch")
        if not self.world.brokers[leader].is_damaged:
            raise Violation("damage", f"broker {leader} serves a damaged batch at {header.base_offset} of {place}")
