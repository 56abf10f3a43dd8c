"""A simulated administrator, who moves replicas, elects leaders, changes settings and deletes records all the time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from tidelog.peers.requester import Answered, Failure
from tidelog.sim.log_place import LogPlace
from tidelog.sim.oracle import Oracle
from tidelog.sim.simulated_client import RETRIABLE, SimulatedClient
from tidelog.sim.violation import Violation
from tidelog.sim.world import World
from tidelog.wire import messages
from tidelog.wire.classes import RequestMessage
from tidelog.wire.errors import ErrorCode

TIMEOUT_MS: Final = 6_000
#: after which a move is cancelled, about
CANCEL_MS: Final = 60
INTERNAL_TOPICS: Final = ("__consumer_offsets", "__transaction_state")
TOPIC_RESOURCE: Final = 2
SET: Final = 0
#: settings that may be had at any time, and values of them
SETTINGS: Final = (
    ("segment.ms", ("500", "3000", "604800000")),
    ("segment.bytes", ("1048576", "1073741824")),
    ("index.interval.bytes", ("0", "100", "4096")),
    ("flush.messages", ("1", "3", "9223372036854775807")),
    ("max.message.bytes", ("100000", "1048588")),
    ("min.insync.replicas", ("1", "2", "2")),
)
#: answers that say that there is nothing to do, or that it cannot be done as things stand
USUAL: Final = frozenset(
    (
        ErrorCode.NONE,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.POLICY_VIOLATION,
    )
)


class SimulatedAdmin(SimulatedClient):
    """`deletable` says how far the records of a partition are no longer needed by anybody."""

    def __init__(
        self,
        world: World,
        oracle: Oracle,
        name: str,
        places: Sequence[LogPlace],
        pause_ms: int,
        deletable: Callable[[LogPlace], int],
    ) -> None:
        super().__init__(world, oracle, name)
        self._places = places
        self._pause_ms = pause_ms
        self._deletable = deletable
        self._chores: tuple[Callable[[], None], ...] = (
            self._move_replicas,
            self._move_replicas,
            self._move_and_cancel,
            self._cancel_move,
            self._elect,
            self._configure,
            self._delete_records,
        )
        self._rest()

    def _rest(self) -> None:
        if not self.is_stopped:
            self.soon(1, 2 * self._pause_ms, lambda: None if self.is_stopped else self.random.choice(self._chores)())

    def _do(
        self,
        what: str,
        request: RequestMessage[Any],
        code_of: Callable[[Any], int],
        done: Callable[[ErrorCode | None], None] = lambda code: None,
        broker_id: int | None = None,
        rests: bool = True,
    ) -> None:
        """`done` with None where nobody knows what became of it; `rests`: the next chore waits for the answer."""

        def answered(outcome: Answered[Any] | Failure) -> None:
            if isinstance(outcome, Failure):
                self.count(what, outcome.kind.value)
                done(None)
            else:
                code = ErrorCode.of(code_of(outcome.message))
                self.count(what, code.name)
                if code not in USUAL and code not in RETRIABLE:
                    raise Violation("administration", f"{self.name} is answered {code.name} to: {what}")
                done(None if code in RETRIABLE else code)
            if rests:
                self._rest()

        target = self.any_broker() if broker_id is None else broker_id
        self.ask(target, request, answered, TIMEOUT_MS)

    def _any_place(self) -> LogPlace:
        chance = self.random.random()
        if chance < 0.6:
            return self.random.choice(list(self._places))
        return LogPlace(self.random.choice(INTERNAL_TOPICS), self.random.randrange(2))

    # --- replicas -----------------------------------------------------------------------------------------

    def _move_replicas(self) -> None:
        brokers = list(self.world.brokers)
        self._reassign("move", self.random.sample(brokers, self.random.choice((2, 3, 3, 3))))

    def _cancel_move(self) -> None:
        """Of a partition that is being moved at this moment, where there is one."""
        topics = self.world.stored().topics.values()
        moving = [LogPlace(t.name, p.partition_index) for t in topics for p in t.partitions if p.is_reassigning]
        self._reassign("cancel", None, self.random.choice(moving) if moving else None)

    def _move_and_cancel(self) -> None:
        """The cancel is on its way while the move begins, runs, or ends."""
        place = self._any_place()
        self._reassign("move", self.random.sample(list(self.world.brokers), 3), place)
        self.soon(0, 2 * CANCEL_MS, lambda: None if self.is_stopped else self._reassign("cancel", None, place, False))

    def _reassign(
        self, what: str, replicas: list[int] | None, place: LogPlace | None = None, rests: bool = True
    ) -> None:
        place = place or self._any_place()
        request = messages.AlterPartitionReassignmentsRequest
        partition = request.ReassignablePartition(partition_index=place.partition, replicas=replicas)
        wanted = request(
            timeout_ms=TIMEOUT_MS // 2,
            topics=[request.ReassignableTopic(name=place.topic, partitions=[partition])],
        )
        self.world.trace.add(self.name, f"{what} {place} to {replicas}")
        self._do(
            f"{what} replicas",
            wanted,
            lambda answer: answer.error_code or answer.responses[0].partitions[0].error_code,
            rests=rests,
        )

    def _elect(self) -> None:
        place = self._any_place()
        request = messages.ElectLeadersRequest
        which = [request.TopicPartitions(topic=place.topic, partitions=[place.partition])]
        wanted = request(election_type=0, topic_partitions=which, timeout_ms=TIMEOUT_MS // 2)

        def code_of(answer: messages.ElectLeadersResponse) -> int:
            results = [each for topic in answer.replica_election_results for each in topic.partition_result]
            return answer.error_code or (results[0].error_code if results else 0)

        self._do("elect", wanted, code_of)

    # --- settings -----------------------------------------------------------------------------------------

    def _configure(self) -> None:
        topic = self.random.choice(sorted({place.topic for place in self._places}))
        name, values = self.random.choice(SETTINGS)
        value = self.random.choice(values)
        request = messages.IncrementalAlterConfigsRequest
        change = request.AlterableConfig(name=name, config_operation=SET, value=value)
        resource = request.AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=topic, configs=[change])
        self._do(
            "configure",
            request(resources=[resource]),
            lambda answer: answer.responses[0].error_code,
            lambda code: self.oracle.configure(topic, name, value, is_certain=code is ErrorCode.NONE),
        )

    # --- records ------------------------------------------------------------------------------------------

    def _delete_records(self) -> None:
        place = self.random.choice(list(self._places))
        most, leader = self._deletable(place), self.leader(place)
        if most <= 0 or leader is None:
            self.refresh(place.topic, self._rest)
            return
        offset = self.random.randint(0, most)
        self.oracle[place].deletable_end = max(self.oracle[place].deletable_end, offset)
        request = messages.DeleteRecordsRequest
        partition = request.DeleteRecordsPartition(partition_index=place.partition, offset=offset)
        wanted = request(
            topics=[request.DeleteRecordsTopic(name=place.topic, partitions=[partition])], timeout_ms=TIMEOUT_MS // 2
        )

        def code_of(answer: messages.DeleteRecordsResponse) -> int:
            told = answer.topics[0].partitions[0]
            if not told.error_code and told.low_watermark < offset:
                raise Violation(
                    "deletion", f"{place} begins at {told.low_watermark}, though all below {offset} was deleted"
                )
            return told.error_code

        self._do("delete records", wanted, code_of, broker_id=leader)
        self.refresh(place.topic, lambda: None)
