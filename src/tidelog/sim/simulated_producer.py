"""A simulated idempotent producer: acks=all, several batches on their way, each repeated until it is acknowledged."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from tidelog.peers.requester import Answered, Failure
from tidelog.sim.log_place import LogPlace
from tidelog.sim.oracle import Oracle
from tidelog.sim.simulated_client import RETRIABLE, SimulatedClient
from tidelog.sim.violation import Violation
from tidelog.sim.world import World
from tidelog.wire import messages
from tidelog.wire.errors import ErrorCode
from tidelog.wire.records import Headers, build_batch, iter_records

#: names, not topic ids
PRODUCE_VERSION = 12
REQUEST_TIMEOUT_MS = 4_000
#: batches that wait for one partition; more are not made
MOST_UNACKNOWLEDGED = 12
NO_OFFSET = -1
MOST_BYTES = 1 << 24


class SentBatch:
    __slots__ = ("headers", "is_sent", "sequence", "tries", "values")

    def __init__(self, sequence: int, values: list[bytes], headers: list[Headers]) -> None:
        self.sequence = sequence
        self.values = values
        #: of each of them
        self.headers = headers
        self.is_sent = False
        self.tries = 0


class ProducerLane:
    """One partition: batches are sent in order, and after an error again from the first."""

    def __init__(self, place: LogPlace) -> None:
        self.place = place
        self.next_sequence = 0
        self.unacknowledged: deque[SentBatch] = deque()
        self.in_flight = 0
        self.is_waiting = False


class IdempotentProducer(SimulatedClient):
    def __init__(
        self, world: World, oracle: Oracle, name: str, places: Sequence[LogPlace], pause_ms: int, in_flight: int
    ) -> None:
        super().__init__(world, oracle, name)
        self._lanes = [ProducerLane(place) for place in places]
        self._pause_ms = pause_ms
        self._in_flight = in_flight
        self._producer_id = -1
        self._producer_epoch = -1
        self._number = 0
        self._is_writing = False
        self._initialize()

    @property
    def unacknowledged(self) -> int:
        return sum(len(lane.unacknowledged) for lane in self._lanes)

    def _initialize(self) -> None:
        request = messages.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)

        def answered(outcome: Answered[messages.InitProducerIdResponse] | Failure) -> None:
            if isinstance(outcome, Failure) or outcome.message.error_code:
                self.soon(50, 200, self._initialize)
                return
            self._producer_id = outcome.message.producer_id
            self._producer_epoch = outcome.message.producer_epoch
            if not self._is_writing:
                self._is_writing = True
                self._write()

        self.ask(self.any_broker(), request, answered, REQUEST_TIMEOUT_MS)

    # --- making -------------------------------------------------------------------------------------------

    @property
    def _is_written(self) -> bool:
        """Nothing more is to be made."""
        return self.is_stopped

    def _write(self) -> None:
        if self._is_written:
            return
        lane = self.random.choice(self._lanes)
        if self._producer_id >= 0 and len(lane.unacknowledged) < MOST_UNACKNOWLEDGED:
            headers = self._next_records(lane.place)
            if headers:
                values = [f"{self.name}:{self._number + at}".encode() for at in range(len(headers))]
                self._number += len(values)
                lane.unacknowledged.append(SentBatch(lane.next_sequence, values, headers))
                lane.next_sequence += len(values)
                self.oracle[lane.place].sent.update(values)
                self._made(lane.place, values, headers)
                self._pump(lane)
        self.soon(1, 2 * self._pause_ms, self._write)

    def _next_records(self, place: LogPlace) -> list[Headers]:
        """The headers of each record of the next batch."""
        return [[] for _ in range(self.random.randint(1, 4))]

    def _made(self, place: LogPlace, values: list[bytes], headers: list[Headers]) -> None:
        """A batch will be sent."""

    def _is_acknowledged(self, place: LogPlace, batch: SentBatch, first_offset: int) -> None:
        """`first_offset` is NO_OFFSET where it is not told."""
        self.oracle[place].acknowledge(first_offset, batch.values)

    # --- sending ------------------------------------------------------------------------------------------

    def _pump(self, lane: ProducerLane) -> None:
        if lane.is_waiting:
            return
        leader = self.leader(lane.place)
        if leader is None:
            if lane.unacknowledged:
                self._try_again(lane)
            return
        for batch in lane.unacknowledged:
            if lane.in_flight >= self._in_flight:
                return
            if not batch.is_sent:
                self._send(lane, batch, leader)

    def _send(self, lane: ProducerLane, batch: SentBatch, leader: int) -> None:
        batch.is_sent = True
        batch.tries += 1
        lane.in_flight += 1
        now_ms = self.host.clock.wall_ms()
        records = build_batch(
            [(now_ms, None, value, headers) for value, headers in zip(batch.values, batch.headers, strict=True)],
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            base_sequence=batch.sequence,
        )
        request = messages.ProduceRequest
        partition = request.PartitionProduceData(index=lane.place.partition, records=records)
        wanted = request(
            acks=-1,
            timeout_ms=REQUEST_TIMEOUT_MS // 2,
            topic_data=[request.TopicProduceData(name=lane.place.topic, partition_data=[partition])],
        )
        self.ask(
            leader, wanted, lambda outcome: self._answered(lane, batch, outcome), REQUEST_TIMEOUT_MS, PRODUCE_VERSION
        )

    def _answered(
        self, lane: ProducerLane, batch: SentBatch, outcome: Answered[messages.ProduceResponse] | Failure
    ) -> None:
        lane.in_flight -= 1
        if lane not in self._lanes:
            return  # given up
        if isinstance(outcome, Failure):
            self.count("produce", outcome.kind.value)
            self._try_again(lane)
            return
        (topic,) = outcome.message.responses
        (partition,) = topic.partition_responses
        code = partition.error_code
        self.count("produce", ErrorCode.of(code).name)
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            lane.unacknowledged.remove(batch)
            offset = partition.base_offset if code == ErrorCode.NONE else NO_OFFSET
            self._is_acknowledged(lane.place, batch, offset)
            if lane.is_waiting and not lane.in_flight:
                return
            self._pump(lane)
        elif code in RETRIABLE:
            self._try_again(lane)
        elif code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and lane.unacknowledged[0] is not batch:
            # One before it was not written: both are sent again.
            self._try_again(lane)
        elif code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and (
            self._may_be_overtaken(batch) or self._may_be_forgotten(lane.place, batch)
        ):
            self._begin_anew()
        else:
            raise Violation(
                "sequence",
                f"{self.name} is answered {ErrorCode.of(code).name} for sequence {batch.sequence} in {lane.place}, "
                f"though all before {lane.unacknowledged[0].sequence} are acknowledged",
            )

    def _may_be_overtaken(self, batch: SentBatch) -> bool:
        """Whether one behind it may have been the first that a leader took of this producer.

        As in Apache Kafka, a producer of whom nothing is known may begin with any sequence. So when the first batch is
        refused because too few replicas are in sync, the second may be taken a moment later.
        """
        return batch.sequence == 0 and batch.tries > 1 and self._in_flight > 1

    def _may_be_forgotten(self, place: LogPlace, batch: SentBatch) -> bool:
        """Whether a broker has it, and has restarted: only the simulation can know.

        As in Apache Kafka, a snapshot of producers has only their last batch: after a restart the ones before it are
        not known as duplicates.
        """
        for site in self.world.brokers.values():
            partition = None if site.broker is None else site.broker.data.replicas.partitions.get(place)
            if site.lives == 1 or partition is None or site.has_failed_directory:
                continue
            with site.disk.undisturbed():
                found = partition.log.read(partition.log.log_start_offset, MOST_BYTES, 1 << 62, True)
                records = b"" if found is None else found.read()
            if any(record.value == batch.values[0] for record in iter_records(records)):
                return True
        return False

    def _begin_anew(self) -> None:
        """Another producer id; what became of the batches that are not acknowledged is left open."""
        self.witness("producer id given up")
        self._lanes = [ProducerLane(lane.place) for lane in self._lanes]
        self._producer_id = -1
        self._initialize()

    def _try_again(self, lane: ProducerLane) -> None:
        """Looks for the leader; then, when nothing is on its way any more, sends from the first batch on."""
        if lane.is_waiting:
            return
        lane.is_waiting = True

        def found() -> None:
            self.soon(20, 150, go_on)

        def go_on() -> None:
            if lane not in self._lanes:
                return
            if lane.in_flight:
                self.soon(10, 50, go_on)
                return
            lane.is_waiting = False
            for batch in lane.unacknowledged:
                batch.is_sent = False
            self._pump(lane)

        self.refresh(lane.place.topic, found)
