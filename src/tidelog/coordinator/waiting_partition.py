"""Delivers the records of one partition in which they wait, on the broker that leads it.

    search ──last picture──▶ wait until it is committed ──▶ read the log up to the last stable offset, ever on
                                                            └─ something is due ──▶ choose ──▶ read the records
       ┌────────────────────────────────────────────────────────────────────────────────────────────┘
       └─▶ decide: append the picture ──committed──▶ send the parcel ──arrived──▶ the next parcel, or a last picture

It reads behind the last stable offset as a read_committed consumer does, and is woken as a long poll is: a produce
knows nothing of it. Before anything is chosen, what was committed by then is read, so that what is in the log before
it is due is delivered in order. One thing is done at a time (`_is_busy`); loss of leadership ends all of it (`close`),
and whoever leads next begins with the last picture.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from tidelog.coordinator.delay_log import (
    FoundPicture,
    RecordReader,
    StoredRecord,
    build_parcel,
)
from tidelog.coordinator.parcel_delivery import REFUSALS, ParcelDelivery, why_unreachable
from tidelog.coordinator.picture_search import PictureSearch
from tidelog.coordinator.producer_ids import ProducerIds
from tidelog.deciding.decision import Decision
from tidelog.deliver.delivery_picture import RecordParcel
from tidelog.deliver.schedule import Schedule
from tidelog.deliver.wheels import Key, Scratch
from tidelog.log.append import AppendInfo
from tidelog.log.errors import LogError
from tidelog.log.producers import AppendOrigin
from tidelog.log.scratch import ScratchFiles
from tidelog.log.segment import Slice
from tidelog.log.txn_index import AbortedTxn
from tidelog.node.cluster_view import ClusterView
from tidelog.node.data_plane import DataPlane, Held
from tidelog.replica.partition import Partition
from tidelog.timer.host import Host
from tidelog.timer.parking import Parked
from tidelog.timer.wheel import TimerTask
from tidelog.wire.batch import HEADER_SIZE
from tidelog.wire.errors import CodedError, ErrorCode
from tidelog.wire.partitions import TopicPartition
from tidelog.wire.records import build_batch

CHUNK_BYTES: Final = 1 << 20
#: of the log, around a record that is due: its neighbours are often due as well
PIECE_BYTES: Final = 16 << 10
MOST_RECORDS: Final = 500
#: what is read ahead of the delivery, at least
ENOUGH: Final = 20_000
#: what comes within this time is read together
GATHER_MS: Final = 5
#: the clock may be set while something waits
LOOK_AGAIN_MS: Final = 60_000
#: between two tries of what is stopped, though the target's settings are the same
RETRY_STOPPED_MS: Final = 600_000
#: a parcel that was decided so long ago, or by a clock that was so far ahead, may be refused for its time alone
STALE_MS: Final = 60_000
RETRY_MS: Final = 100
MAX_RETRY_MS: Final = 5_000
PATIENCE_MS: Final = 60_000
#: bytes of a picture beside its parcel, and of each record in that
PICTURE_BYTES: Final = 1024
PICTURE_RECORD_BYTES: Final = 16

_ARRIVED: Final = frozenset((ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER))
#: the target does not know how far the producer was: it has lost records, or has known another with the same id
_UNKNOWN_PRODUCER: Final = frozenset(
    (
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_TXN_STATE,
    )
)


#: for a worker, and then for the broker's thread
Reading: TypeAlias = Callable[[], Callable[[], None]]


class WaitingPartition(ABC):
    def __init__(
        self,
        partition: Partition,
        cluster: ClusterView,
        data: DataPlane,
        producer_ids: ProducerIds,
        delivery: ParcelDelivery,
        host: Host,
        on_moved: Callable[[Partition], None],
    ) -> None:
        """`on_moved` is told when the partition lives in another directory: what was kept beside its log is gone."""
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.log = partition.log
        self._cluster = cluster
        self._data = data
        self._producer_ids = producer_ids
        self._delivery = delivery
        self._host = host
        self._on_moved = on_moved
        scratch = ScratchFiles(data.logs.disk, self.log)
        scratch.remove_all("waiting-")
        self.schedule = self._new_schedule(scratch)
        self._records = RecordReader()
        #: what was read to be weighed, and is sent next if its parcel is decided
        self._weighed: dict[int, StoredRecord] = {}
        #: what is decided from there on is decided here
        self._leads_from = self.log.log_end_offset
        #: where the picture lies that counts
        self._picture_offset = self.log.log_start_offset
        self.is_loaded = False
        self._has_read = False
        self._is_closed = False
        self._is_busy = False
        self._is_turning = False
        self._turn_again = False
        #: (time, last stable offset): what is due by then is delivered when everything before this was read
        self._cutoff: tuple[int, int] | None = None
        self._parked: Parked | None = None
        self._gathering: TimerTask | None = None
        #: why nothing moves, where that is so, since when nothing is tried, and how long to wait after the next failure
        self.stalled: str | None = None
        self._retry_at_ms = 0
        self._retry_ms = RETRY_MS
        #: the log could not be read, and is not tried before
        self._read_at_ms = 0
        #: the target, and its settings when it last refused something
        self._refusing: tuple[str, object] | None = None
        self._retried_ms = 0

    # --- what differs ---------------------------------------------------------------------------------

    @abstractmethod
    def _new_schedule(self, scratch: Scratch) -> Schedule: ...

    @property
    @abstractmethod
    def target(self) -> str:
        """The topic that records are delivered to."""

    @abstractmethod
    def _now_ms(self) -> int:
        """What due times are compared with."""

    @abstractmethod
    def _settings(self) -> Decision | None:
        """A picture, where the settings of the topic have changed what it says."""

    @abstractmethod
    def _reading(self, piece: Slice, offset: int, aborted: Sequence[AbortedTxn]) -> Reading:
        """What a worker does with a piece of the log; it gives what is to be done with the schedule."""

    @abstractmethod
    def _beside(self) -> bool:
        """Does what else is to be done; whether there was anything."""

    @abstractmethod
    def _beside_at_ms(self) -> int | None:
        """When there is something else to be done, by the clock on the wall."""

    # --- life ---------------------------------------------------------------------------------------

    def start(self) -> None:
        PictureSearch(self.log, self._host.workers, self._found).start()

    def close(self) -> None:
        self._is_closed = True
        self._stop_waiting()
        try:
            self.schedule.close()
        except OSError as error:
            self._host.report(f"the scratch of {self.log.name} could not be removed", error)

    @property
    def has_read(self) -> bool:
        """What was there when this broker began to lead was read: it knows what waits, and what others cancelled."""
        if not self._has_read:
            self._has_read = self.is_loaded and self.schedule.position >= min(self._leads_from, self._end())
        return self._has_read

    def held_from(self) -> int:
        """Nothing from this offset on may be deleted."""
        if not self.is_loaded:
            return self.log.log_start_offset
        return min(self.schedule.floor(), self._picture_offset)

    def _found(self, found: FoundPicture | None, error: BaseException | None) -> None:
        if self._is_closed:
            return
        if isinstance(error, OSError | LogError):
            self._cannot_read(error)
            self._host.timer.add(self._read_at_ms, self._search_again)
            return
        if error is not None:
            self._give_up("its log cannot be read", error)
            return
        start = self.log.log_start_offset
        if found is not None:
            self.schedule.replay(found.record)
            self._picture_offset = found.offset
            start = max(start, self.schedule.picture.floor)
        self.schedule.begin(start, self._host.clock.wall_ms())
        # The last picture may be one that nobody else has yet.
        self._when_committed(Held.now(self.partition), self._loaded)

    def _search_again(self) -> None:
        if not self._is_closed:
            self.start()

    def _loaded(self) -> None:
        self.is_loaded = True
        self.go_on()

    def _give_up(self, what: str, error: BaseException) -> None:
        self.stalled = f"{what} ({error}): restore the partition, and restart the broker"
        self._is_busy = True
        self._host.notice(f"nothing is delivered from {self.log.name}: {self.stalled}")

    # --- turns --------------------------------------------------------------------------------------

    def go_on(self) -> None:
        """Does what is to be done next, until there is nothing or something must be waited for."""
        if self._is_turning:
            self._turn_again = True
            return
        self._is_turning = True
        try:
            self._turn_again = True
            while self._turn_again:
                self._turn_again = False
                if self.partition.log is not self.log and not self._is_closed:
                    self._on_moved(self.partition)
                elif self.is_loaded and not self._is_busy and not self._is_closed:
                    self._turn()
        except OSError as error:
            self._give_up("its scratch files cannot be used", error)
        finally:
            self._is_turning = False

    def _turn(self) -> None:
        self._stop_waiting()
        schedule, wall_ms = self.schedule, self._now_ms()
        decision, pruned = self._settings(), schedule.deleted_below(self.log.log_start_offset)
        may_try = self._host.clock.monotonic_ms() >= self._retry_at_ms
        if decision is not None and may_try:
            self._write(decision, self.go_on)
        elif pruned is not None and may_try:
            self._write(pruned, self._pruned)
        elif schedule.parcel is not None and may_try:
            self._pack(schedule.parcel)
        elif schedule.must_settle and may_try:
            self._write(schedule.settle(), self.go_on)
        elif schedule.parcel is None and may_try and self._has_choice(wall_ms):
            self._choose()
        elif schedule.owes_a_picture and may_try and not self._is_due(wall_ms):
            self._write(schedule.settle(), self.go_on)
        elif schedule.position < self._end() and not self._has_enough() and self._may_read():
            self._read_on()
        elif not self._beside():
            self._wait(wall_ms)

    def _end(self) -> int:
        return self.partition.last_stable_offset

    def _has_enough(self) -> bool:
        return self.schedule.backlog >= ENOUGH and self._is_due(self._now_ms()) and self.has_read

    def _is_due(self, wall_ms: int) -> bool:
        next_ms = self.schedule.next_ms()
        return next_ms is not None and next_ms <= wall_ms and self.schedule.is_caught_up

    def _has_choice(self, wall_ms: int) -> bool:
        return self._may_choose(wall_ms) or self._may_retry() or self.schedule.is_retrying

    def _may_retry(self) -> bool:
        """Records are stopped, and the target is no longer as it was when they were tried, or that was long ago."""
        if not self.schedule.picture.stopped or not self.schedule.is_caught_up or not self.has_read:
            return False
        is_over = self._host.clock.monotonic_ms() >= self._retried_ms + RETRY_STOPPED_MS
        return is_over or (self.target, self._cluster.log_config(self.target)) != self._refusing

    def _may_choose(self, wall_ms: int) -> bool:
        if not self._is_due(wall_ms):
            self._cutoff = None
            return False
        if self._cutoff is None or not self._is_due(self._cutoff[0]):
            self._cutoff = wall_ms, self._end()
        return self.schedule.position >= self._cutoff[1] or self._has_enough()

    def _wait(self, wall_ms: int) -> None:
        """Until there is more to read, or something is due."""
        self._records.forget()
        now_ms = self._host.clock.monotonic_ms()
        deadline_ms = now_ms + LOOK_AGAIN_MS
        if self._read_at_ms > now_ms:
            deadline_ms = min(deadline_ms, self._read_at_ms)
        if self._retry_at_ms > now_ms:
            deadline_ms = min(deadline_ms, self._retry_at_ms)
        else:
            next_ms = self.schedule.next_ms()
            if next_ms is not None and self.schedule.is_caught_up:
                deadline_ms = min(deadline_ms, now_ms + max(1, next_ms - wall_ms))
        beside_ms = self._beside_at_ms()
        if beside_ms is not None:
            deadline_ms = min(deadline_ms, now_ms + max(1, beside_ms - self._host.clock.wall_ms()))
        self._parked = self._data.parking.park([self.partition.key], deadline_ms, self._is_woken, self.go_on)

    def _is_woken(self) -> bool:
        if self._end() <= self.schedule.position or self._has_enough():
            return False
        self._parked = None
        self._gathering = self._host.timer.add(self._host.clock.monotonic_ms() + GATHER_MS, self.go_on)
        return True

    def _stop_waiting(self) -> None:
        if self._parked is not None:
            self._parked.cancel()
            self._parked = None
        if self._gathering is not None:
            self._gathering.cancel()
            self._gathering = None

    def _stall(self, why: str) -> None:
        """Stops delivering for a while, then tries again."""
        self.stalled = why
        self._retry_at_ms = self._host.clock.monotonic_ms() + self._retry_ms
        self._retry_ms = min(2 * self._retry_ms, MAX_RETRY_MS)
        self._is_busy = False
        self.go_on()

    def _moves(self) -> None:
        self.stalled = self.schedule.stands_still
        self._retry_ms = RETRY_MS

    def _pruned(self) -> None:
        self._moves()
        self.go_on()

    # --- reading ------------------------------------------------------------------------------------

    def _cannot_read(self, error: BaseException) -> None:
        """Tried again in a while: a disk that has failed is not that of the leader for long, and some errors pass."""
        self.stalled = f"the log cannot be read: {error}"
        self._read_at_ms = self._host.clock.monotonic_ms() + MAX_RETRY_MS

    def _may_read(self) -> bool:
        return self._host.clock.monotonic_ms() >= self._read_at_ms

    def _read_on(self) -> None:
        schedule = self.schedule
        schedule.position = offset = max(schedule.position, self.log.log_start_offset)
        end = self._end()
        try:
            piece = self.log.read(offset, CHUNK_BYTES, end) if offset < end else None
            aborted = [] if piece is None else self.log.aborted_transactions(offset, piece.next_offset)
        except LogError as error:
            self._cannot_read(error)
            self.go_on()
            return
        if piece is None:
            schedule.position = end
            self.go_on()
            return
        next_offset = piece.next_offset

        def read(take_in: Callable[[], None] | None, error: BaseException | None) -> None:
            if self._is_closed:
                return
            if isinstance(error, OSError):
                self._cannot_read(error)
                self._unbusy()
                return
            if take_in is None:
                self._give_up(f"its log cannot be read at offset {offset}", error or ValueError("nothing was read"))
                return
            take_in()
            schedule.position = next_offset
            if self._read_at_ms:
                self._read_at_ms, self.stalled = 0, None
            self._unbusy()

        self._is_busy = True
        self._host.workers.in_worker(self._reading(piece, offset, aborted), read)

    def _pieces(self, keys: Sequence[Key]) -> list[tuple[Slice, list[int]]]:
        """Where the records lie, in the order of their offsets; what was deleted is left out."""
        pieces: list[tuple[Slice, list[int]]] = []
        end = self.log.log_end_offset
        for offset in sorted(offset for _, offset in keys):
            if offset < self.log.log_start_offset:
                continue
            if pieces and offset < pieces[-1][0].next_offset:
                pieces[-1][1].append(offset)
                continue
            piece = self.log.read(offset, PIECE_BYTES, end)
            if piece is not None:
                pieces.append((piece, [offset]))
        return pieces

    def _read_records(self, keys: Sequence[Key], done: Callable[[dict[int, StoredRecord]], None]) -> None:
        self._is_busy = True

        def read(found: dict[int, StoredRecord] | None, error: BaseException | None) -> None:
            if self._is_closed:
                return
            if found is None:
                self.schedule.put_back()
                self._stall(f"the log cannot be read: {error}")
            else:
                done(found)

        try:
            pieces = self._pieces(keys)
        except LogError as error:
            read(None, error)
            return
        self._host.workers.in_worker(lambda: self._records.read(pieces), read)

    # --- delivering ---------------------------------------------------------------------------------

    def _choose(self) -> None:
        target = self.target
        why = why_unreachable(self._cluster, TopicPartition(target, self.partition.index))
        if why is not None:
            self._stall(why)
            return
        schedule, config = self.schedule, self._cluster.log_config(target)
        if self._may_retry():
            self._refusing, self._retried_ms = (target, config), self._host.clock.monotonic_ms()
            schedule.retry_stopped()
        resumed = schedule.resume(self._host.clock.wall_ms())
        if resumed is not None:
            self._write(resumed, self.go_on)
            return
        producer_id = schedule.picture.producer_id
        if producer_id < 0:
            taken = self._producer_ids.take()
            if taken is None:
                self._stall("no producer id can be had from the controller yet")
                return
            producer_id = taken
        until_ms = self._now_ms() if self._cutoff is None else min(self._now_ms(), self._cutoff[0])
        chosen_ms = self._host.clock.wall_ms()
        set_back = schedule.set_back(until_ms)
        if set_back is not None:
            self._write(set_back, self.go_on)
            return
        room = (self.log.config.max_message_bytes - PICTURE_BYTES) // PICTURE_RECORD_BYTES
        keys = schedule.choose(until_ms, min(MOST_RECORDS, max(room, 1)))
        if not keys and schedule.waiting.is_pouring:
            self._is_busy = True
            self._host.workers.call_soon(self._unbusy)  # others have their turn
            return
        if not keys:
            self._moves()
            # Either the rest is not due after all, or nothing may be delivered: looked at again in a while.
            self._stall(self.stalled) if self.stalled is not None else self.go_on()
            return
        most_bytes = min(config.max_message_bytes, config.segment_bytes) - HEADER_SIZE - len(self.partition.topic)

        def weigh(records: dict[int, StoredRecord]) -> None:
            weights = [None if offset not in records else records[offset].size_bytes for _, offset in keys]
            # They were due when they were chosen: a clock that was set back since does not make that wrong.
            wall_ms = max(self._host.clock.wall_ms(), chosen_ms)
            decision = schedule.decide(weights, target, most_bytes, producer_id, wall_ms)
            self._weighed = records
            self._write(decision, self.go_on)

        self._read_records(keys, weigh)

    def _unbusy(self) -> None:
        self._is_busy = False
        self.go_on()

    def _pack(self, parcel: RecordParcel) -> None:
        """Sends the parcel, for the first time or again: the target knows."""
        if parcel.target not in self._cluster.image.topics and parcel.target != self.target:
            self._write(self.schedule.void(), self.go_on)  # what was there is gone, and records go elsewhere now
            return
        producer_id, topic, index_ = self.schedule.picture.producer_id, self.partition.topic, self.partition.index

        def pack(records: dict[int, StoredRecord]) -> None:
            left = [key for key in parcel.keys if key[1] in records]
            if len(left) < len(parcel.keys):
                self._write(self.schedule.cut(left), self.go_on)  # somebody deleted records that were on their way
                return
            self._host.workers.in_worker(lambda: build_parcel(parcel, producer_id, topic, index_, records), packed)

        def packed(batch: bytearray | None, error: BaseException | None) -> None:
            if self._is_closed:
                return
            if batch is None:
                self._give_up("a parcel cannot be packed", error or ValueError("no batch"))
                return
            self._delivery.deliver(TopicPartition(parcel.target, index_), batch, self._told)

        weighed, self._weighed = self._weighed, {}
        if all(offset in weighed for _, offset in parcel.keys):
            self._is_busy = True
            pack(weighed)
        else:
            self._read_records(parcel.keys, pack)

    def _told(self, code: ErrorCode, blamed: Sequence[int]) -> None:
        if self._is_closed:
            return
        schedule = self.schedule
        parcel = schedule.parcel
        assert parcel is not None, "told of a parcel that was not sent"
        if code in _ARRIVED:
            schedule.arrived()
            self._moves()
            self._unbusy()
        elif code in REFUSALS and parcel.target != self.target:
            self._write(schedule.void(), self.go_on)  # it does not have them either, and records go elsewhere now
        elif code is ErrorCode.INVALID_TIMESTAMP and abs(self._host.clock.wall_ms() - parcel.decided_ms) > STALE_MS:
            self._write(schedule.void(), self.go_on)  # decided by another clock, or long ago: it is stamped anew
        elif code in REFUSALS:
            self._write(schedule.refused(f"{parcel.target} refuses it: {code.message}", blamed), self.go_on)
        elif code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and parcel.is_cut:
            self._write(schedule.was_whole(), self.go_on)
        elif code in _UNKNOWN_PRODUCER:
            producer_id = self._producer_ids.take()
            if producer_id is None:
                self._stall("no producer id can be had from the controller")
            else:
                self._write(schedule.renew(producer_id), self.go_on)
        else:
            schedule.unanswered()
            self._stall(f"{parcel.target} cannot be written to: {code.message}")

    # --- writing ------------------------------------------------------------------------------------

    def _write(self, decision: Decision, then: Callable[[], None]) -> None:
        """Appends what was decided, and goes on when it is committed."""
        self._is_busy = True
        try:
            info, held = self._append(decision)
        except CodedError as error:
            self.schedule.put_back()
            self._stall(f"{self.log.name} itself cannot be written to: {error}")
            return
        self._data.appended(self.partition)

        def safe() -> None:
            self._picture_offset = info.first_offset
            self._is_busy = False
            then()

        if info.flush_due:
            self._flush(held, safe)
        else:
            self._when_committed(held, safe)

    def _append(self, decision: Decision) -> tuple[AppendInfo, Held]:
        """As control records, which consumers pass over. Nobody is told of them yet."""
        wall_ms = self._host.clock.wall_ms()
        batch = build_batch([(wall_ms, key, value, None) for key, value, _ in decision.records], control=True)
        info = self.partition.append(memoryview(batch), -1, wall_ms, origin=AppendOrigin.COORDINATOR)
        for record in decision.records:
            self.schedule.replay(record)
        return info, Held.now(self.partition)

    def _flush(self, held: Held, then: Callable[[], None]) -> None:
        def flushed(error: ErrorCode) -> None:
            if self._is_closed:
                return
            if error is ErrorCode.NONE:
                self._when_committed(held, then)
            else:
                self.stalled = f"{self.log.name} cannot be flushed: {error.message}"
                self._host.timer.add(self._host.clock.monotonic_ms() + MAX_RETRY_MS, lambda: self._flush(held, then))

        self._data.flushing.flush(self.log, flushed)

    def _when_committed(self, held: Held, then: Callable[[], None]) -> None:
        """However long it takes. If this broker stops leading, the next leader goes on."""

        def settled(error: ErrorCode) -> None:
            if self._is_closed:
                return
            if error is ErrorCode.NONE:
                then()
            elif error is ErrorCode.REQUEST_TIMED_OUT:
                self._when_committed(held, then)

        self._data.when_committed(held, PATIENCE_MS, settled)
