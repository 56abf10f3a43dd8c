"""What a simulated member of a group does in either protocol: it reads what it is given, and commits how far it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tidelog.peers.requester import Answered, Failure
from tidelog.sim.log_place import LogPlace
from tidelog.sim.oracle import Oracle
from tidelog.sim.simulated_client import RETRIABLE, SimulatedClient
from tidelog.sim.simulated_reader import FETCH_VERSION, fetch_request
from tidelog.sim.violation import Violation
from tidelog.sim.world import World
from tidelog.wire import messages
from tidelog.wire.batch import crc_matches, iter_headers
from tidelog.wire.errors import ErrorCode
from tidelog.wire.records import iter_records

TIMEOUT_MS: Final = 4_000
BEAT_MS: Final = 500
COMMIT_MS: Final = 700
#: names, not topic ids
COMMIT_VERSION: Final = 9
REBALANCE_MS: Final = 5_000
#: the group has gone on without this member
OUTCAST: Final = frozenset(
    (
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.ILLEGAL_GENERATION,
    )
)


class SimulatedMember(SimulatedClient):
    def __init__(self, world: World, oracle: Oracle, name: str, group: str, topic: str, partitions: int) -> None:
        super().__init__(world, oracle, name)
        self.group = group
        self._topic = topic
        self._partitions = partitions
        self._member_id = ""
        #: member epoch, or generation
        self._epoch = 0
        self._coordinator: int | None = None
        #: what it has, and where it stands in it; None before it knows
        self.positions: dict[LogPlace, int | None] = {}
        self.after(COMMIT_MS, self._commit)

    def _find(self, then: Callable[[], None]) -> None:
        def answered(outcome: Answered[messages.FindCoordinatorResponse] | Failure) -> None:
            if not isinstance(outcome, Failure):
                (found,) = outcome.message.coordinators
                self._coordinator = None if found.error_code else found.node_id
            self.soon(20, 200, then)

        request = messages.FindCoordinatorRequest(key_type=0, coordinator_keys=[self.group])
        self.ask(self.any_broker(), request, answered, TIMEOUT_MS)

    def _assign(self, given: set[LogPlace]) -> bool:
        """Whether anything has changed."""
        lost = [each for each in self.positions if each not in given]
        won = sorted(given - self.positions.keys())
        for place in lost:
            del self.positions[place]
        for place in won:
            self.positions[place] = None
            self._ask_position(place)
        return bool(lost or won)

    # --- positions ----------------------------------------------------------------------------------------

    def _ask_position(self, place: LogPlace) -> None:
        if place not in self.positions or self.positions[place] is not None:
            return
        if self._coordinator is None:
            self.after(100, lambda: self._ask_position(place))
            return
        least = self.oracle.committed.get((self.group, place), -1)
        request = messages.OffsetFetchRequest
        topic = request.OffsetFetchRequestTopics(name=place.topic, partition_indexes=[place.partition])
        group = request.OffsetFetchRequestGroup(
            group_id=self.group, member_id=self._member_id, member_epoch=self._epoch, topics=[topic]
        )
        self.ask(
            self._coordinator,
            request(groups=[group], require_stable=True),
            lambda outcome: self._told(place, least, outcome),
            TIMEOUT_MS,
            COMMIT_VERSION,
        )

    def _told(self, place: LogPlace, least: int, outcome: Answered[messages.OffsetFetchResponse] | Failure) -> None:
        if place not in self.positions or self.positions[place] is not None:
            return
        if isinstance(outcome, Failure) or outcome.message.groups[0].error_code:
            self.soon(50, 200, lambda: self._ask_position(place))
            return
        ((told,),) = (topic.partitions for topic in outcome.message.groups[0].topics)
        if told.error_code:
            self.soon(50, 200, lambda: self._ask_position(place))
            return
        self.oracle.position(self.group, place, told.committed_offset, least)
        self.positions[place] = max(told.committed_offset, 0)
        self._read(place)

    def _commit(self) -> None:
        if self.is_stopped:
            return
        self.after(COMMIT_MS, self._commit)
        # What is committed already is not committed again and again: the offsets topic would never be at rest.
        known = {
            place: at
            for place, at in self.positions.items()
            if at and at > self.oracle.committed.get((self.group, place), -1)
        }
        if not known or self._coordinator is None:
            return
        request = messages.OffsetCommitRequest
        partitions = [
            request.OffsetCommitRequestPartition(partition_index=place.partition, committed_offset=at)
            for place, at in known.items()
        ]
        wanted = request(
            group_id=self.group,
            generation_id_or_member_epoch=self._epoch,
            member_id=self._member_id,
            topics=[request.OffsetCommitRequestTopic(name=self._topic, partitions=partitions)],
        )

        def committed(outcome: Answered[messages.OffsetCommitResponse] | Failure) -> None:
            if isinstance(outcome, Failure):
                self.count("commit", outcome.kind.value)
                return
            for each in outcome.message.topics[0].partitions:
                code = ErrorCode.of(each.error_code)
                self.count("commit", code.name)
                place = LogPlace(self._topic, each.partition_index)
                if code is ErrorCode.NONE:
                    self.oracle.commit(self.group, place, known[place])
                elif code not in RETRIABLE and code not in OUTCAST and code is not ErrorCode.REBALANCE_IN_PROGRESS:
                    raise Violation("groups", f"{self.name} is answered {code.name} to a commit in {place}")

        self.ask(self._coordinator, wanted, committed, TIMEOUT_MS, COMMIT_VERSION)

    # --- records ------------------------------------------------------------------------------------------

    def _read(self, place: LogPlace) -> None:
        position = self.positions.get(place)
        if self.is_stopped or position is None:
            return
        leader = self.leader(place)
        if leader is None:
            self._look(place)
            return
        self.ask(
            leader,
            fetch_request(place, position, self.leader_epoch(place)),
            lambda outcome: self._fetched(place, position, outcome),
            TIMEOUT_MS,
            FETCH_VERSION,
        )

    def _look(self, place: LogPlace) -> None:
        self.refresh(place.topic, lambda: self.soon(20, 150, lambda: self._read(place)))

    def _fetched(self, place: LogPlace, position: int, outcome: Answered[messages.FetchResponse] | Failure) -> None:
        if self.positions.get(place) != position:
            return  # it was taken away meanwhile
        if isinstance(outcome, Failure) or outcome.message.responses[0].partitions[0].error_code:
            self._look(place)
            return
        records = bytes(outcome.message.responses[0].partitions[0].records or b"")
        if not all(crc_matches(records, at, header) for at, header in iter_headers(records)):
            self.soon(500, 1_000, lambda: self._look(place))
            return
        for record in iter_records(records):
            if record.offset >= position:
                self.oracle[place].see(record.offset, record.value or b"")
                position = record.offset + 1
        self.positions[place] = position
        self._read(place)
