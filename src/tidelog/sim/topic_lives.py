"""A simulated client that creates a topic, writes to it, reads it, deletes it, and creates it again.

deletion   what was written to a topic is never read under the id of another, and a deleted topic does not come back
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tidelog.peers.requester import Answered, Failure
from tidelog.sim.log_place import LogPlace
from tidelog.sim.oracle import Oracle
from tidelog.sim.simulated_client import RETRIABLE, SimulatedClient
from tidelog.sim.violation import Violation
from tidelog.sim.world import World
from tidelog.wire import messages
from tidelog.wire.batch import crc_matches, iter_headers
from tidelog.wire.classes import RequestMessage
from tidelog.wire.errors import ErrorCode
from tidelog.wire.records import build_batch, iter_records

TIMEOUT_MS: Final = 5_000
MAX_BYTES: Final = 1 << 16
MOST_WRITES: Final = 6


class TopicLives(SimulatedClient):
    def __init__(self, world: World, oracle: Oracle, topic: str) -> None:
        super().__init__(world, oracle, topic)
        self.topic = topic
        self._place = LogPlace(topic, 0)
        #: of the topic as it is now; None where there is none, as far as is known
        self.topic_id: bytes | None = None
        self.deleted: set[bytes] = set()
        #: offset -> value, of what was acknowledged in this life of the topic
        self._acknowledged: dict[int, bytes] = {}
        self._number = 0
        self._writes = 0
        self.is_idle = False
        self._create()

    def _then(self, least_ms: int, most_ms: int, step: Callable[[], None]) -> None:
        if self.is_stopped:
            self.is_idle = True
        else:
            self.soon(least_ms, most_ms, step)

    def _ask(
        self,
        what: str,
        broker_id: int,
        request: RequestMessage[Any],
        code_of: Callable[[Any], int],
        done: Callable[[Any, ErrorCode], None],
        again: Callable[[], None],
        usual: frozenset[ErrorCode] = frozenset(),
    ) -> None:
        def answered(outcome: Answered[Any] | Failure) -> None:
            if isinstance(outcome, Failure):
                self.count(what, outcome.kind.value)
                self._then(20, 200, again)
                return
            code = ErrorCode.of(code_of(outcome.message))
            self.count(what, code.name)
            if code is ErrorCode.NONE or code in usual:
                done(outcome.message, code)
            elif code in RETRIABLE:
                self._then(20, 200, again)
            else:
                raise Violation("administration", f"{self.name} is answered {code.name} to: {what}")

        self.ask(broker_id, request, answered, TIMEOUT_MS)

    # --- its beginning and its end ------------------------------------------------------------------------------

    def _create(self) -> None:
        request = messages.CreateTopicsRequest
        partitions, factor = self.random.randint(1, 2), self.random.choice((-1, 2, 3))
        wanted = request.CreatableTopic(name=self.topic, num_partitions=partitions, replication_factor=factor)

        def created(answer: messages.CreateTopicsResponse, code: ErrorCode) -> None:
            told = answer.topics[0].topic_id
            if code is ErrorCode.TOPIC_ALREADY_EXISTS:
                self._look(self._find_id)
                return
            self._live(told)

        self._ask(
            "create",
            self.any_broker(),
            request(topics=[wanted], timeout_ms=TIMEOUT_MS // 2),
            lambda answer: answer.topics[0].error_code,
            created,
            self._create,
            frozenset((ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.INVALID_REPLICATION_FACTOR)),
        )

    def _find_id(self) -> None:
        """An earlier request has created it, or a deletion is not known everywhere."""
        found = [each for each, name in self.topic_names.items() if name == self.topic and each not in self.deleted]
        if found:
            self._live(found[-1])
        else:
            self._then(100, 500, self._create)

    def _live(self, topic_id: bytes) -> None:
        if topic_id in self.deleted:
            raise Violation("deletion", f"{self.topic} is back under the id {topic_id.hex()}")
        if not any(topic_id):
            self._then(100, 500, self._create)  # too few brokers for it
            return
        self.topic_id = topic_id
        self._acknowledged, self._writes = {}, self.random.randint(0, MOST_WRITES)
        self._look(self._write)

    def _delete(self) -> None:
        topic_id = self.topic_id
        assert topic_id is not None
        request = messages.DeleteTopicsRequest
        wanted = request(topics=[request.DeleteTopicState(topic_id=topic_id)], timeout_ms=TIMEOUT_MS // 2)

        def deleted(answer: Any, code: ErrorCode) -> None:
            if code is ErrorCode.NONE:
                self.deleted.add(topic_id)
            else:
                # An earlier request has deleted it; or this broker has not heard of it, and it is found again.
                self.topic_names.pop(topic_id, None)
            self.topic_id = None
            self._then(0, 600, self._create)

        self._ask(
            "delete",
            self.any_broker(),
            wanted,
            lambda answer: answer.responses[0].error_code,
            deleted,
            self._delete,
            frozenset() if self.is_stopped else frozenset((ErrorCode.UNKNOWN_TOPIC_ID,)),
        )

    # --- its life -----------------------------------------------------------------------------------------------

    def _look(self, then: Callable[[], None]) -> None:
        # Whoever is behind tells of a former life, in which epochs were higher.
        self.forget_leaders(self.topic)
        self.refresh(self.topic, lambda: self._then(10, 150, then))

    def _write(self) -> None:
        topic_id, leader = self.topic_id, self.leader(self._place)
        assert topic_id is not None
        if leader is None:
            self._look(self._write)
            return
        if not self._writes:
            self._read()
            return
        self._number += 1
        value = topic_id.hex().encode() + b":%d" % self._number
        request = messages.ProduceRequest
        records = build_batch([(self.host.clock.wall_ms(), None, value, None)])
        data = request.TopicProduceData(
            name=self.topic,
            topic_id=topic_id,
            partition_data=[request.PartitionProduceData(index=0, records=records)],
        )

        def written(answer: messages.ProduceResponse, code: ErrorCode) -> None:
            self._writes -= 1
            self._acknowledged[answer.responses[0].partition_responses[0].base_offset] = value
            self._then(0, 100, self._write)

        self._ask(
            "produce to a new topic",
            leader,
            request(acks=-1, timeout_ms=TIMEOUT_MS // 2, topic_data=[data]),
            lambda answer: answer.responses[0].partition_responses[0].error_code,
            written,
            lambda: self._look(self._write),
        )

    def _read(self, before: bytes = b"") -> None:
        """`before` is what was read already: a fetch brings what one segment has."""
        topic_id, leader = self.topic_id, self.leader(self._place)
        assert topic_id is not None
        if leader is None:
            self._look(self._read)
            return
        offset = max((header.next_offset for _, header in iter_headers(before)), default=0)
        request = messages.FetchRequest
        wanted = request.FetchPartition(
            partition=0, current_leader_epoch=-1, fetch_offset=offset, partition_max_bytes=MAX_BYTES
        )
        topics = [request.FetchTopic(topic=self.topic, topic_id=topic_id, partitions=[wanted])]

        def read(answer: messages.FetchResponse, code: ErrorCode) -> None:
            data = answer.responses[0].partitions[0]
            if data.high_watermark <= max(self._acknowledged, default=-1):
                # A new leader that does not know yet how far everybody is.
                self._look(self._read)
                return
            records = before + bytes(data.records or b"")
            reached = max((header.next_offset for _, header in iter_headers(records)), default=0)
            if offset < reached < data.high_watermark:
                self._read(records)
                return
            if all(crc_matches(records, at, header) for at, header in iter_headers(records)):
                self._check(topic_id, records)
            self._then(0, 1_500, self._delete)

        self._ask(
            "fetch from a new topic",
            leader,
            request(max_wait_ms=0, min_bytes=0, max_bytes=MAX_BYTES, topics=topics),
            lambda answer: answer.error_code or answer.responses[0].partitions[0].error_code,
            read,
            lambda: self._look(self._read),
        )

    def _check(self, topic_id: bytes, records: bytes) -> None:
        found = {record.offset: record.value or b"" for record in iter_records(records)}
        for offset, value in found.items():
            if not value.startswith(topic_id.hex().encode()):
                raise Violation("deletion", f"{value!r} is at {offset} of {self.topic} with the id {topic_id.hex()}")
        for offset, value in self._acknowledged.items():
            if found.get(offset) != value:
                raise Violation(
                    "acknowledged",
                    f"{value!r} was acknowledged at offset {offset} of {self.topic}, where {found.get(offset)!r} is",
                )
