"""Carries out the decisions of a coordinator (group, txn) on the partitions of its internal topic.

    decision ─▶ append its records as one batch ─▶ replay each ─▶ set its timers ─▶ reply, once they are committed

If the topic must be flushed before it acknowledges (`flush.messages`), the following steps wait for the flush as well.

A coordinator owns the partitions of its topic that this broker leads. When it becomes leader of one, it first reads the
partition from its start and replays it; until that is done, the room answers COORDINATOR_LOAD_IN_PROGRESS. A worker
reads it one chunk at a time, so that a long partition does not block anything.

An append that fails changes nothing: the room says what to answer instead, whatever the reason. A room that has not
taken in all that was written decides nothing any more. A commit that takes too long is answered with the error for such
a wait; the records stay, and a later attempt finds them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, Generic, TypeVar

from tidelog.coordinator.loading import LoadedChunk, parse
from tidelog.deciding.decision import CancelTimer, CoordinatorRecord, Decision, Reply, TimerKey
from tidelog.deciding.room import Room
from tidelog.log.errors import LogError
from tidelog.log.producers import NO_GUARD, AppendOrigin
from tidelog.node.data_plane import DataPlane, Held
from tidelog.replica.partition import Partition
from tidelog.timer.host import Host
from tidelog.timer.wheel import TimerTask
from tidelog.wire.batch import NO_PRODUCER_ID, InvalidBatch
from tidelog.wire.errors import CodedError, ErrorCode
from tidelog.wire.malformed import WireError
from tidelog.wire.partitions import TopicPartition
from tidelog.wire.records import build_batch

D = TypeVar("D", bound=Decision)

CHUNK_BYTES: Final = 1 << 20
#: so long another replica has to take a damaged partition over
RELOAD_MS: Final = 1_000
PATIENCE_MS: Final = 60_000
FLUSH_AGAIN_MS: Final = 1_000
#: of the records that become one batch where they need not be one
PIECE_BYTES: Final = 1 << 18
RECORD_OVERHEAD_BYTES: Final = 24
# A constant, because every commit needs it: Python 3.11 is slow to look up a member of an enum.
_COORDINATOR: Final = AppendOrigin.COORDINATOR


class Coordination(Generic[D]):
    """`commit_timeout_ms` is how long a reply waits for its records to be committed."""

    def __init__(
        self, topic: str, room: Room[D], data: DataPlane, host: Host, commit_timeout_ms: Callable[[], int]
    ) -> None:
        self.topic = topic
        self._room = room
        self._data = data
        self._host = host
        self._commit_timeout_ms = commit_timeout_ms
        self._timers: dict[TimerKey, TimerTask] = {}
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
                self.carry_out(self._room.load_begin(index, partition.leader_epoch))
                self._load(partition, partition.leader_epoch, partition.log.log_start_offset)
        else:
            self.removed(index)

    def removed(self, index: int) -> None:
        if self._owned.pop(index, None) is not None:
            self.carry_out(self._room.unload(index))

    def _load(self, partition: Partition, leader_epoch: int, offset: int) -> None:
        """Replays the partition from `offset` on, a chunk after the other."""
        if offset >= partition.log.log_end_offset:
            self._load_ended(partition.index)
            return

        def chunk_read(chunk: LoadedChunk | None, error: BaseException | None) -> None:
            if self._owned.get(partition.index) != leader_epoch:
                return
            if self._is_damaged(chunk, error) and len(partition.isr) > 1:
                self._leave_to_another(partition, leader_epoch, offset)
                return
            if error is not None or chunk is None:
                self._load_failed(partition, offset, error)
                return
            try:
                for lost in chunk.lost:
                    self._batch_lost(partition, *lost)
                for record, producer_id, at, commit in chunk.found:
                    if record is not None:
                        self._room.replay(partition.index, record, producer_id, at)
                    else:
                        self._room.replay_end(partition.index, producer_id, commit)
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
        self._host.workers.in_worker(lambda: parse(piece.read(), offset, next_offset), chunk_read)

    @staticmethod
    def _is_damaged(chunk: LoadedChunk | None, error: BaseException | None) -> bool:
        return isinstance(error, InvalidBatch) or (chunk is not None and bool(chunk.lost))

    def _leave_to_another(self, partition: Partition, leader_epoch: int, offset: int) -> None:
        """Others in the ISR have what is damaged here: one of them is to lead, and to load it."""
        if self._data.hand_over_partition(partition):
            self._host.notice(
                f"{partition.log.name} is damaged after offset {offset}: another replica is to lead it. "
                f"{name_the_byte(partition)}"
            )

        def again() -> None:
            if self._owned.get(partition.index) == leader_epoch:
                self._load(partition, leader_epoch, offset)

        # The ISR is about to change; it may turn out that there is nobody else.
        self._host.timer.add(self._host.clock.monotonic_ms() + RELOAD_MS, again)

    def _batch_lost(self, partition: Partition, first_offset: int, end_offset: int) -> None:
        """A batch is damaged, and the others are not. Raises InvalidBatch where they say too little without it."""
        why = f"the batch with offsets {first_offset} to {end_offset - 1} is not as it was written"
        raise InvalidBatch(ErrorCode.CORRUPT_MESSAGE, why)

    def _load_failed(self, partition: Partition, offset: int, error: BaseException | None) -> None:
        """What lives on the partition has no coordinator here; everything else goes on."""
        what = f"{partition.log.name} cannot be loaded from offset {offset}"
        if isinstance(error, CodedError | WireError | OSError):
            self._host.notice(
                f"{what} ({error}): what is kept in it has no coordinator. {name_the_byte(partition)}. Restore "
                f"{partition.log.path} from a backup; or, to give up all that is kept in it, stop the broker and move "
                "it away: it is then made anew"
            )
        else:
            self._host.report(what, error)
        self.removed(partition.index)

    def _load_ended(self, index: int) -> None:
        self.carry_out(self._room.load_end(index, *self.now()))

    # --- decisions ----------------------------------------------------------------------------------

    def carry_out(self, decision: D, guard: int = NO_GUARD) -> None:
        """`guard` is what the verification of a transaction gave, where the records belong to one."""
        flush_due = False
        if decision.records:
            try:
                flush_due = self._append(decision, guard)
            except CodedError as error:
                decision = self._room.append_failed(decision, error.code, *self.now())
            except Exception as broken:
                self._host.report(f"{self.topic}-{decision.partition} could not be appended to", broken)
                decision = self._room.append_failed(decision, ErrorCode.UNKNOWN_SERVER_ERROR, *self.now())
        if decision.timers:
            self._set_timers(decision)
        effects = self._effects(decision)
        held = None
        if flush_due or not self._data.is_committed(self.topic, decision.partition):
            held = self._data.held(TopicPartition(self.topic, decision.partition))
        if held is None:
            # Nothing is to be waited for.
            _send(decision.replies)
            if effects is not None:
                effects()
        elif flush_due:
            self._conclude_when_flushed(held, decision.replies, effects)
        else:
            self._conclude(held, decision.replies, effects)

    def _conclude(self, held: Held, replies: list[Reply], effects: Callable[[], None] | None) -> None:
        """As soon as what is held is committed."""
        if replies:
            self._reply_when_committed(held, replies)
        if effects is not None:
            self._when_committed(held, effects)

    def _conclude_when_flushed(self, held: Held, replies: list[Reply], effects: Callable[[], None] | None) -> None:
        def flushed(error: ErrorCode) -> None:
            nonlocal replies
            if error is ErrorCode.NONE:
                self._conclude(held, replies, effects)
                return
            self._send_failures(replies, error)
            replies = []
            if effects is not None and held.is_led:
                # The records stay, and what follows from them must not come before they are safe.
                self._host.timer.add(self._host.clock.monotonic_ms() + FLUSH_AGAIN_MS, flush)

        def flush() -> None:
            self._data.flushing.flush(held.partition.log, flushed)

        flush()

    def _effects(self, decision: D) -> Callable[[], None] | None:
        """What follows from the records once they are committed, beside the replies."""
        return None

    def _when_committed(self, held: Held, effects: Callable[[], None]) -> None:
        """However long it takes; if this broker stops leading, the next leader finds the records and does it."""

        def settled(error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                effects()
            elif error is ErrorCode.REQUEST_TIMED_OUT:
                self._when_committed(held, effects)

        self._data.when_committed(held, PATIENCE_MS, settled)

    def _append(self, decision: Decision, guard: int) -> bool:
        """Whether the log is to be flushed before anybody hears of it."""
        flush_due = False
        partition = self._data.partition(self.topic, decision.partition)
        now_ms = self._host.clock.wall_ms()
        producer_id = decision.producer_id
        known_offset = partition.log.log_end_offset
        try:
            for records in (decision.records,) if decision.atomic else in_pieces(decision.records):
                batch = build_batch(
                    [(now_ms, key, value, None) for key, value, _ in records],
                    producer_id=producer_id,
                    producer_epoch=decision.producer_epoch,
                    transactional=producer_id != NO_PRODUCER_ID,
                )
                info = partition.append(memoryview(batch), -1, now_ms, origin=_COORDINATOR, guard=guard)
                for offset, record in enumerate(records, info.first_offset):
                    self._room.replay(decision.partition, record, producer_id, offset)
                known_offset = partition.log.log_end_offset
                flush_due = flush_due or info.flush_due
        finally:
            if partition.log.log_end_offset != known_offset:
                self._host.notice(
                    f"{partition.log.name} holds records that its coordinator could not take in: what is kept in it "
                    "has no coordinator. Restart the broker, so that it is loaded again"
                )
                self.removed(decision.partition)
        self._data.appended(partition)
        return flush_due

    def _set_timers(self, decision: Decision) -> None:
        for change in decision.timers:
            present = self._timers.pop(change.key, None)
            if present is not None:
                present.cancel()
            if not isinstance(change, CancelTimer):
                self._timers[change.key] = self._host.timer.add(change.deadline_ms, self._due(change.key))

    def _due(self, key: TimerKey) -> Callable[[], None]:
        def due() -> None:
            self._timers.pop(key, None)
            self.carry_out(self._room.on_timer(key, *self.now()))

        return due

    def _reply_when_committed(self, held: Held, replies: list[Reply]) -> None:
        def settled(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                self._send_failures(replies, error)
            else:
                _send(replies)

        self._data.when_committed(held, self._commit_timeout_ms(), settled)

    def _send_failures(self, replies: list[Reply], error: ErrorCode) -> None:
        _send([Reply(reply.ticket, self._room.failed(reply.message, error)) for reply in replies])

    def now(self) -> tuple[int, int]:
        """Monotonic and wall time, as the rooms take them."""
        clock = self._host.clock
        return clock.monotonic_ms(), clock.wall_ms()


def name_the_byte(partition: Partition) -> str:
    """Where a person looks who wants to know what is damaged."""
    command = f"tidelog doctor --deep --data-dir {partition.log.directory.path}"
    return f"`{command}`, while the broker is stopped, names the damaged file and byte"


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
