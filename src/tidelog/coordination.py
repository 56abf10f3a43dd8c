"""Carries out what a coordinator (group, txn) decides, over the partitions of its internal topic.

    decision ─▶ append its records as one batch ─▶ replay each ─▶ set its timers ─▶ reply, once they are committed

Where the topic is to be flushed before it acknowledges (`flush.messages`), what follows waits for the flush as well.

A coordinator owns the partitions of its topic that this broker leads. Leading one, it first reads the partition from
its start and replays it; until that is done the room answers COORDINATOR_LOAD_IN_PROGRESS. Reading happens on a
worker, a chunk at a time, so that a long partition keeps nobody waiting.

An append that fails changes nothing: the room says what to answer instead. A commit that takes too long is answered
with the error that such a wait has; the records stay, and a later try finds them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from tidelog.decision import CancelTimer, CoordinatorRecord, Decision, Reply
from tidelog.log.errors import LogError
from tidelog.log.producers import NO_GUARD, AppendOrigin, ProducerRefused
from tidelog.wire.batch import InvalidBatch, iter_headers
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.records import COMMIT, build_batch, read_end_txn_marker, read_records

if TYPE_CHECKING:
    from tidelog.broker import Broker
    from tidelog.group.groups import Groups
    from tidelog.replica.partition import Partition
    from tidelog.timer.wheel import TimerTask

CHUNK_BYTES: Final = 1 << 20
NO_PRODUCER: Final = -1
PATIENCE_MS: Final = 60_000
FLUSH_AGAIN_MS: Final = 1_000
#: of the records that become one batch where they need not be one
PIECE_BYTES: Final = 1 << 18
RECORD_OVERHEAD_BYTES: Final = 24


class Room(Protocol):
    """What every coordinator's room offers; see `tidelog.group.groups`."""

    def sized(self, partitions: int | None) -> None: ...

    def load_end(self, partition: int, now_ms: int, wall_ms: int) -> Decision: ...

    def unload(self, partition: int) -> Decision: ...

    def append_failed(self, decision: Any, error: ErrorCode, now_ms: int, wall_ms: int) -> Decision: ...

    def on_timer(self, key: Any, now_ms: int, wall_ms: int) -> Decision: ...

    def failed(self, message: Any, error: ErrorCode) -> Any: ...


class Loaded(NamedTuple):
    """A record or, where `record` is None, the end of a transaction, as found in the log."""

    record: CoordinatorRecord | None
    producer_id: int
    offset: int
    commit: bool = False


class Coordination(ABC):
    def __init__(self, broker: Broker, topic: str, room: Room, commit_timeout_ms: Callable[[], int]) -> None:
        self._broker = broker
        self.topic = topic
        self._room = room
        self._commit_timeout_ms = commit_timeout_ms
        self._timers: dict[Hashable, TimerTask] = {}
        #: the leader epoch in which each owned partition was or is being loaded
        self._owned: dict[int, int] = {}

    # --- coming and going of partitions -------------------------------------------------------------

    def sized(self, partitions: int | None) -> None:
        """How many partitions the topic has, whatever the settings say by now; None where it does not exist."""
        self._room.sized(partitions)

    def leadership_changed(self, partition: Partition) -> None:
        """Called after every change: owns what this broker leads, and nothing else."""
        index = partition.index
        if partition.is_leader:
            if self._owned.get(index) != partition.leader_epoch:
                self.removed(index)
                self._owned[index] = partition.leader_epoch
                self.carry_out(self._begin(partition))
                self._load(partition, partition.leader_epoch, partition.log.log_start_offset)
        else:
            self.removed(index)

    def removed(self, index: int) -> None:
        if self._owned.pop(index, None) is not None:
            self.carry_out(self._room.unload(index))

    @abstractmethod
    def _begin(self, partition: Partition) -> Decision:
        """The room takes the partition and waits for its records."""

    @abstractmethod
    def _replay(self, index: int, record: CoordinatorRecord, producer_id: int, offset: int) -> None:
        """Hands a record of the partition, new or loaded, to the room."""

    @abstractmethod
    def _replay_end(self, index: int, producer_id: int, commit: bool) -> None:
        """Tells the room that a transaction has ended whose records are in the partition."""

    def _load(self, partition: Partition, leader_epoch: int, offset: int) -> None:
        """Replays the partition from `offset` on, a chunk after the other."""
        if offset >= partition.log.log_end_offset:
            self._load_ended(partition.index)
            return

        def chunk_read(found: list[Loaded] | None, error: BaseException | None) -> None:
            if self._owned.get(partition.index) != leader_epoch:
                return
            if error is not None or found is None:
                self._load_failed(partition, offset, error)
                return
            try:
                for record, producer_id, at, commit in found:
                    if record is not None:
                        self._replay(partition.index, record, producer_id, at)
                    else:
                        self._replay_end(partition.index, producer_id, commit)
            except Exception as broken:
                self._load_failed(partition, offset, broken)
                return
            self._load(partition, leader_epoch, next_offset)

        try:
            piece = partition.log.read(offset, CHUNK_BYTES, partition.log.log_end_offset)
        except LogError as error:
            self._load_failed(partition, offset, error)
            return
        if piece is None:
            self._load_ended(partition.index)
            return
        next_offset = piece.next_offset
        self._broker.workers.in_worker(lambda: parse(piece.read(), offset), chunk_read)

    def _load_failed(self, partition: Partition, offset: int, error: BaseException | None) -> None:
        """What lives on the partition has no coordinator here; everything else goes on."""
        self._broker.report(f"{partition.log.name} cannot be loaded from offset {offset}", error)
        self.removed(partition.index)

    def _load_ended(self, index: int) -> None:
        clock = self._broker.clock
        self.carry_out(self._room.load_end(index, clock.monotonic_ms(), clock.wall_ms()))

    # --- decisions ----------------------------------------------------------------------------------

    def carry_out(self, decision: Decision, guard: int = NO_GUARD) -> None:
        """`guard` is what the verification of a transaction gave, where the records belong to one."""
        flush_due = False
        if decision.records:
            try:
                flush_due = self._append(decision, guard)
            except (KafkaError, LogError, InvalidBatch, ProducerRefused) as error:
                clock = self._broker.clock
                code = ErrorCode.of(error.code)
                decision = self._room.append_failed(decision, code, clock.monotonic_ms(), clock.wall_ms())
        self._set_timers(decision)
        effects = self._effects(decision)
        if flush_due:
            self._conclude_when_flushed(decision, effects)
        else:
            self._conclude(decision.partition, decision.replies, effects)

    def _conclude(self, index: int, replies: list[Reply], effects: Callable[[], None] | None) -> None:
        if replies:
            self._reply_when_committed(index, replies)
        if effects is not None:
            self._when_committed(index, effects)

    def _conclude_when_flushed(self, decision: Decision, effects: Callable[[], None] | None) -> None:
        broker, index = self._broker, decision.partition
        partition = broker.partition(self.topic, index)
        replies = decision.replies

        def flushed(error_code: int) -> None:
            nonlocal replies
            if not error_code:
                self._conclude(index, replies, effects)
                return
            code = ErrorCode.of(error_code)
            _send([Reply(each.ticket, self._room.failed(each.message, code)) for each in replies])
            replies = []
            if effects is not None and broker.replicas.partitions.get(partition.key) is partition:
                # The records stay, and what follows from them must not come before they are safe.
                broker.timer.add(broker.clock.monotonic_ms() + FLUSH_AGAIN_MS, flush)

        def flush() -> None:
            broker.flushing.flush(partition.log, flushed)

        flush()

    def _effects(self, decision: Decision) -> Callable[[], None] | None:
        """What follows from the records once they are committed, beside the replies."""
        return None

    def _when_committed(self, index: int, effects: Callable[[], None]) -> None:
        """However long it takes; if this broker stops leading, the next leader finds the records and does it."""
        partition = self._broker.replicas.partitions.get((self.topic, index))
        if partition is None or partition.high_watermark >= partition.log.log_end_offset:
            effects()
            return
        end = partition.log.log_end_offset

        def try_complete() -> bool:
            if partition.is_leader and partition.high_watermark < end:
                return False
            if partition.is_leader:
                effects()
            return True

        def again() -> None:
            if not try_complete():
                park()

        def park() -> None:
            deadline_ms = self._broker.clock.monotonic_ms() + PATIENCE_MS
            self._broker.parking.park([partition.key], deadline_ms, try_complete, again)

        park()

    def _append(self, decision: Decision, guard: int) -> bool:
        """Whether the log is to be flushed before anybody hears of it."""
        flush_due = False
        broker = self._broker
        partition = broker.partition(self.topic, decision.partition)
        now_ms = broker.clock.wall_ms()
        producer_id = decision.producer_id
        for records in (decision.records,) if decision.atomic else in_pieces(decision.records):
            batch = build_batch(
                [(now_ms, key, value, None) for key, value, _ in records],
                producer_id=producer_id,
                producer_epoch=decision.producer_epoch,
                transactional=producer_id != NO_PRODUCER,
            )
            info = partition.append(memoryview(batch), -1, now_ms, origin=AppendOrigin.COORDINATOR, guard=guard)
            for offset, record in enumerate(records, info.first_offset):
                self._replay(decision.partition, record, producer_id, offset)
            flush_due = flush_due or info.flush_due
        broker.appended(partition)
        return flush_due

    def _set_timers(self, decision: Decision) -> None:
        for change in decision.timers:
            present = self._timers.pop(change.key, None)
            if present is not None:
                present.cancel()
            if not isinstance(change, CancelTimer):
                self._timers[change.key] = self._broker.timer.add(change.deadline_ms, self._due(change.key))

    def _due(self, key: Hashable) -> Callable[[], None]:
        def due() -> None:
            self._timers.pop(key, None)
            clock = self._broker.clock
            self.carry_out(self._room.on_timer(key, clock.monotonic_ms(), clock.wall_ms()))

        return due

    def _reply_when_committed(self, index: int, replies: list[Reply]) -> None:
        """Answers at once where nothing is to be waited for, else when the followers have it."""
        partition = self._broker.replicas.partitions.get((self.topic, index))
        if partition is None or partition.high_watermark >= partition.log.log_end_offset:
            _send(replies)
            return
        end = partition.log.log_end_offset

        def try_complete() -> bool:
            if not partition.is_leader:
                _send(
                    [Reply(r.ticket, self._room.failed(r.message, ErrorCode.NOT_LEADER_OR_FOLLOWER)) for r in replies]
                )
                return True
            if partition.high_watermark < end:
                return False
            _send(replies)
            return True

        def expire() -> None:
            _send([Reply(r.ticket, self._room.failed(r.message, ErrorCode.REQUEST_TIMED_OUT)) for r in replies])

        deadline_ms = self._broker.clock.monotonic_ms() + self._commit_timeout_ms()
        self._broker.parking.park([partition.key], deadline_ms, try_complete, expire)


class GroupCoordination(Coordination):
    def __init__(self, broker: Broker, topic: str, room: Groups, commit_timeout_ms: Callable[[], int]) -> None:
        super().__init__(broker, topic, room, commit_timeout_ms)
        self._groups = room

    def _begin(self, partition: Partition) -> Decision:
        return self._groups.load_begin(partition.index)

    def _replay(self, index: int, record: CoordinatorRecord, producer_id: int, offset: int) -> None:
        key, value, meaning = record
        self._groups.replay(index, key, value, producer_id, offset, meaning)

    def _replay_end(self, index: int, producer_id: int, commit: bool) -> None:
        self._groups.replay_end_transaction(index, producer_id, commit)


def _send(replies: list[Reply]) -> None:
    for reply in replies:
        reply.ticket.reply(reply.message)


def in_pieces(records: list[CoordinatorRecord]) -> Iterator[list[CoordinatorRecord]]:
    """The records in order, in pieces that fit into a batch."""
    piece: list[CoordinatorRecord] = []
    size_bytes = 0
    for record in records:
        size = len(record.key) + len(record.value or b"") + RECORD_OVERHEAD_BYTES
        if piece and size_bytes + size > PIECE_BYTES:
            yield piece
            piece, size_bytes = [], 0
        piece.append(record)
        size_bytes += size
    if piece:
        yield piece


def parse(data: bytes, least_offset: int) -> list[Loaded]:
    """What a chunk of a coordinator's log says, from `least_offset` on."""
    found = []
    view = memoryview(data)
    for at, header in iter_headers(view):
        batch = view[at : at + header.size_bytes]
        producer_id = header.producer_id if header.is_transactional else NO_PRODUCER
        if header.is_control:
            marker = read_end_txn_marker(batch)
            if marker is not None and header.base_offset >= least_offset:
                found.append(Loaded(None, header.producer_id, header.base_offset, marker.type == COMMIT))
            continue
        for record in read_records(batch):
            if record.offset >= least_offset and record.key is not None:
                found.append(Loaded(CoordinatorRecord(record.key, record.value), producer_id, record.offset))
    return found
