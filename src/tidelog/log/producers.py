"""What a partition remembers of the producers that write to it, and what it therefore refuses.

Of each producer id: its epoch, the last five batches, the open transaction, the coordinator that last ended one. The
rules are those of Apache Kafka 4.3, by who appends:

    client       a batch whose epoch and sequence range equal one of the last five is a duplicate: it is not written
                 again and is answered with the offset and timestamp of the first time. Else the epoch must not go back
                 (47), and the sequence must follow: 0 after a new epoch, the last + 1 (2^31-1 is followed by 0) in
                 the same (45); anything where nothing is remembered of the producer.
    coordinator  the group coordinator's offset commits carry no sequence, so only the epoch is looked at. A marker
                 must not be of an older epoch (47), under transaction version 2 must be of a newer one, and must not
                 come from an older coordinator (52).
    replication  is never refused: the leader has judged.

A transactional batch opens a transaction at its first offset; a batch outside a transaction while one is open is 48. So
that no transaction is left open without its coordinator knowing, the first batch of one must be verified (KIP-890):
the broker begins a verification before it asks the coordinator and hands the guard it got to the append; a marker that
came in between takes the guard away, and the append is 48. While a verification runs, the lowest sequence seen must be
written first (45).

    open ──marker written──► undecided no more, but unreplicated ──high watermark passes the marker──► forgotten

The first unstable offset, the lowest of all open and unreplicated transactions, bounds the last stable offset. A marker
that lies below the snapshot from which the state was loaded counts as replicated: should it be lost after all, the
coordinator, where the decision is durable, writes it again.

Checking and remembering are two steps, `check` before the write and `append` after it, so that a failed write leaves no
trace. All of this is rebuilt from the log: from the newest snapshot at or below its end (`producer_snapshot.py`) and
the batches after it, each handed to `replay`.

A producer is forgotten when it has not been heard of for `producer.id.expiration.ms` by the broker's own clock. Apache
Kafka compares with the timestamps of its records, so that one who writes old records is forgotten at once and may write
twice; the snapshot keeps those timestamps for Kafka's sake, and what is loaded counts as heard of when it was loaded.
"""

from __future__ import annotations

import enum
from bisect import insort
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import count
from typing import Final, NamedTuple

from tidelog.log.producer_snapshot import ProducerSnapshotEntry, decode_snapshot, encode_snapshot
from tidelog.wire.batch import (
    CONTROL_FLAG,
    MAX_SEQUENCE,
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL_FLAG,
    BatchHeader,
)
from tidelog.wire.errors import CodedError, ErrorCode
from tidelog.wire.quick_tuples import quick
from tidelog.wire.records import ABORT, EndTxnMarker

RETAINED_BATCHES: Final = 5
NO_GUARD: Final = 0
#: in place of a guard where `transaction.partition.verification.enable` is off
NOT_REQUIRED: Final = -1
NO_OFFSET: Final = -1
MAX_PRODUCER_EPOCH: Final = 0x7FFF

_guards = count(1)


class AppendOrigin(enum.Enum):
    CLIENT = 1
    COORDINATOR = 2
    REPLICATION = 3


class ProducerRefused(CodedError):
    """A batch that its producer must not write."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class BatchMetadata(NamedTuple):
    """One of the last batches of a producer: what a duplicate of it is answered with."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


_batch_metadata: Final = quick(BatchMetadata)


class CompletedTxn(NamedTuple):
    """A transaction that a marker has ended, from its first record to the marker itself.

    `last_stable_offset` is what an entry of the transaction index says of it, where it was aborted.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool
    last_stable_offset: int


class Producer:
    """What is remembered of one producer id."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "heard_ms",
        "last_timestamp",
        "next_sequence",
        "producer_id",
        "txn_first_offset",
    )

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.epoch = NO_PRODUCER_EPOCH
        #: of the coordinator that wrote the last marker; -1 before the first
        self.coordinator_epoch = -1
        #: of the newest batch or marker, by its own timestamps; what others are shown and snapshots hold
        self.last_timestamp = NO_TIMESTAMP
        #: NO_OFFSET where no transaction is open
        self.txn_first_offset = NO_OFFSET
        #: in the order of their sequences, all of the current epoch
        self.batches: deque[BatchMetadata] = deque(maxlen=RETAINED_BATCHES)
        #: what must follow in this epoch; after the last of all sequences comes 0
        self.next_sequence = 0
        #: by the broker's clock, whatever the records say
        self.heard_ms = 0

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def move_to(self, epoch: int) -> None:
        self.batches.clear()
        self.next_sequence = 0
        self.epoch = epoch

    def add(self, batch: BatchMetadata) -> None:
        self.batches.append(batch)
        self.next_sequence = (batch.last_sequence + 1) & MAX_SEQUENCE

    def duplicate_of(self, header: BatchHeader) -> BatchMetadata | None:
        if header.producer_epoch == self.epoch:
            for batch in self.batches:
                if batch.first_sequence == header.base_sequence and batch.last_sequence == header.last_sequence:
                    return batch
        return None


class Verification:
    """An inquiry at the transaction coordinator that has not yet led to an append."""

    __slots__ = ("began_ms", "epoch", "guard", "lowest_sequence", "supports_epoch_bump")

    def __init__(self, sequence: int, epoch: int, supports_epoch_bump: bool, now_ms: int) -> None:
        self.guard = next(_guards)
        self.lowest_sequence = sequence
        self.epoch = epoch
        self.supports_epoch_bump = supports_epoch_bump
        self.began_ms = now_ms

    def saw(self, sequence: int, epoch: int) -> None:
        if epoch > self.epoch or (epoch == self.epoch and sequence < self.lowest_sequence):
            self.epoch = epoch
            self.lowest_sequence = sequence


class Producers:
    """The producers of one partition. `end_offset` is the offset up to which the log has been taken into account."""

    __slots__ = ("_open", "_producers", "_unreplicated", "_verifications", "end_offset")

    def __init__(self, end_offset: int = 0) -> None:
        self._producers: dict[int, Producer] = {}
        self._verifications: dict[int, Verification] = {}
        #: first offset -> producer id of the open transactions. They open in the order of the log, and a dict keeps
        #: that order, so its first key is the lowest offset.
        self._open: dict[int, int] = {}
        #: (first offset, offset of the marker) of ended transactions whose marker the high watermark has not passed
        self._unreplicated: list[tuple[int, int]] = []
        self.end_offset = end_offset

    # --- before the write

    def check(
        self,
        header: BatchHeader,
        origin: AppendOrigin,
        *,
        marker: EndTxnMarker | None = None,
        guard: int = NO_GUARD,
        transaction_version: int = 0,
    ) -> BatchMetadata | None:
        """Judges a batch that is about to be written; ProducerRefused, or what to answer where it is a duplicate.

        `marker` is the control record of a control batch, `transaction_version` that of the request that brought it.
        """
        producer_id = header.producer_id
        if producer_id < 0 or origin is AppendOrigin.REPLICATION:
            return None
        producer = self._producers.get(producer_id)
        if origin is AppendOrigin.CLIENT and producer is not None:
            if (
                header.base_sequence == producer.next_sequence != 0  # 0 may also repeat the epoch's first batch
                and header.producer_epoch == producer.epoch
                and producer.txn_first_offset < 0
                and not header.attributes & TRANSACTIONAL_FLAG
                and not self._verifications
            ):
                return None  # what nearly every batch is: the next of a plain idempotent producer
            duplicate = producer.duplicate_of(header)
            if duplicate is not None:
                return duplicate
        if header.attributes & TRANSACTIONAL_FLAG:
            self._check_verified(header, producer, guard)
        if not header.attributes & CONTROL_FLAG:
            self._check_data(header, producer, origin)
        elif marker is not None and producer is not None:
            self._check_marker(header, producer, marker, transaction_version)
        assert producer is None or header.producer_epoch >= producer.epoch, f"producer {producer_id} loses its epoch"
        return None

    def _check_verified(self, header: BatchHeader, producer: Producer | None, guard: int) -> None:
        if producer is not None:
            if producer.txn_first_offset >= 0 and producer.epoch == header.producer_epoch:
                return
            if header.producer_epoch < producer.epoch:
                raise _fenced(header.producer_id, header.producer_epoch, producer.epoch)
        if guard != NOT_REQUIRED and not header.attributes & CONTROL_FLAG:
            verification = self._verifications.get(header.producer_id)
            if guard == NO_GUARD or verification is None or verification.guard != guard:
                raise ProducerRefused(
                    ErrorCode.INVALID_TXN_STATE,
                    f"producer {header.producer_id} has no transaction here that was verified",
                )

    def _check_data(self, header: BatchHeader, producer: Producer | None, origin: AppendOrigin) -> None:
        if producer is not None and header.producer_epoch < producer.epoch:
            raise _fenced(header.producer_id, header.producer_epoch, producer.epoch)
        if origin is AppendOrigin.CLIENT:
            self._check_sequence(header, producer)
        if producer is not None and producer.txn_first_offset >= 0 and not header.attributes & TRANSACTIONAL_FLAG:
            raise ProducerRefused(
                ErrorCode.INVALID_TXN_STATE, f"producer {header.producer_id} wrote outside the transaction it has open"
            )

    def _check_sequence(self, header: BatchHeader, producer: Producer | None) -> None:
        sequence = header.base_sequence
        verification = self._verifications.get(header.producer_id)
        if verification is not None:
            if verification.supports_epoch_bump and sequence != 0 and (producer is None or not producer.batches):
                raise _out_of_order(header, "a producer of transaction version 2 must begin with sequence 0")
            if sequence > verification.lowest_sequence:
                raise _out_of_order(header, f"sequence {verification.lowest_sequence} is being verified before it")
        if producer is None:
            return
        if header.producer_epoch != producer.epoch:
            if sequence != 0:
                raise _out_of_order(header, f"a new epoch after {producer.epoch} must begin with sequence 0")
        elif sequence != producer.next_sequence:
            raise _out_of_order(header, f"it does not follow sequence {producer.last_sequence}")

    @staticmethod
    def _check_marker(header: BatchHeader, producer: Producer, marker: EndTxnMarker, transaction_version: int) -> None:
        epoch = header.producer_epoch
        if transaction_version >= 2:
            # The coordinator raises the epoch with every marker, so an equal one is a retry of a marker that was
            # written (nothing is open any more), or the epoch could be raised no further.
            retried = epoch == producer.epoch and (producer.txn_first_offset < 0 or epoch == MAX_PRODUCER_EPOCH)
            stale = epoch <= producer.epoch and not retried
        else:
            stale = epoch < producer.epoch
        if stale:
            raise _fenced(header.producer_id, epoch, producer.epoch)
        if marker.coordinator_epoch < producer.coordinator_epoch:
            raise ProducerRefused(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"coordinator epoch {marker.coordinator_epoch} is older than {producer.coordinator_epoch}, "
                f"which last ended a transaction of producer {header.producer_id}",
            )

    # --- after the write

    def append(self, header: BatchHeader, marker: EndTxnMarker | None, now_ms: int) -> CompletedTxn | None:
        """Takes a batch into account that is in the log, its offsets assigned.

        Returns the transaction that the batch ended. It stays open until `complete`, which is called once the
        transaction index has it.
        """
        first_offset = header.base_offset
        last_offset = first_offset + header.last_offset_delta
        self.end_offset = last_offset + 1
        producer_id = header.producer_id
        attributes = header.attributes
        # A control batch that compaction has emptied tells nothing any more.
        if producer_id < 0 or (marker is None and attributes & CONTROL_FLAG):
            return None
        producer = self._producers.get(producer_id)
        if producer is None:
            producer = self._producers[producer_id] = Producer(producer_id)
        if producer.epoch != header.producer_epoch:
            producer.move_to(header.producer_epoch)
        producer.last_timestamp = header.max_timestamp
        producer.heard_ms = now_ms
        if attributes & TRANSACTIONAL_FLAG:
            self._end_verification(header)
        if marker is not None:
            return self._end_transaction(producer, header, marker)
        producer.add(_metadata(header))
        if attributes & TRANSACTIONAL_FLAG and producer.txn_first_offset < 0:
            producer.txn_first_offset = first_offset
            self._open[first_offset] = producer_id
        return None

    def _end_verification(self, header: BatchHeader) -> None:
        """Either the transaction has its first record, or it has ended: a guard has served, or comes too late."""
        verification = self._verifications.get(header.producer_id)
        if verification is None:
            return
        # Under version 2 the next transaction may be verified before this one's marker arrives; their epochs are then
        # the same, and the guard is the next one's.
        next_has_begun = (
            verification.supports_epoch_bump
            and header.attributes & CONTROL_FLAG
            and header.producer_epoch == verification.epoch
        )
        if not next_has_begun:
            del self._verifications[header.producer_id]

    def _end_transaction(self, producer: Producer, header: BatchHeader, marker: EndTxnMarker) -> CompletedTxn | None:
        producer.coordinator_epoch = marker.coordinator_epoch
        first_offset = producer.txn_first_offset
        producer.txn_first_offset = NO_OFFSET
        if first_offset < 0:
            return None
        last_offset = header.base_offset
        stable = next((at for at, owner in self._open.items() if owner != producer.producer_id), last_offset + 1)
        return CompletedTxn(producer.producer_id, first_offset, last_offset, marker.type == ABORT, stable)

    def complete(self, txn: CompletedTxn) -> None:
        """The ended transaction holds the last stable offset back only until its marker is replicated."""
        if self._open.pop(txn.first_offset, None) is None:
            raise ValueError(f"no transaction is open from offset {txn.first_offset}")
        insort(self._unreplicated, (txn.first_offset, txn.last_offset))

    def replay(self, header: BatchHeader, marker: EndTxnMarker | None, now_ms: int) -> CompletedTxn | None:
        """`append` and `complete` at once, for batches that are read back from the log."""
        completed = self.append(header, marker, now_ms)
        if completed is not None:
            self.complete(completed)
        return completed

    # --- verification of transactions

    def recall(self, header: BatchHeader) -> None:
        """A batch of the log that its producer may have forgotten."""
        self._remember(header.producer_id, header.producer_epoch, [_metadata(header)])

    def batches_below(self, end_offset: int) -> list[tuple[int, int, list[BatchMetadata]]]:
        """(producer id, epoch, batches) of all that is known of batches below an offset."""
        return [
            (producer.producer_id, producer.epoch, below)
            for producer in self._producers.values()
            if (below := [batch for batch in producer.batches if batch.last_offset < end_offset])
        ]

    def remember(self, known: Iterable[tuple[int, int, list[BatchMetadata]]]) -> None:
        """What was known of batches that are still in the log; a snapshot tells only the last one of each producer."""
        for producer_id, epoch, batches in known:
            self._remember(producer_id, epoch, batches)

    def _remember(self, producer_id: int, epoch: int, more: list[BatchMetadata]) -> None:
        producer = self._producers.get(producer_id)
        if producer is None or producer.epoch != epoch:
            return
        batches = {batch.first_offset: batch for batch in (*more, *producer.batches)}
        producer.batches.clear()
        producer.batches.extend(batches[offset] for offset in sorted(batches))

    def begin_verification(
        self, producer_id: int, sequence: int, epoch: int, *, supports_epoch_bump: bool, now_ms: int
    ) -> int:
        """The guard to hand to `check` once the coordinator has confirmed; NO_GUARD where none is needed."""
        producer = self._producers.get(producer_id)
        if producer is not None and epoch < producer.epoch:
            raise _fenced(producer_id, epoch, producer.epoch)
        if self.has_open_transaction(producer_id, epoch):
            return NO_GUARD
        if producer is not None and producer.epoch == epoch:
            # A repeat that arrives between two transactions is refused; it must not hold up the next one.
            sequence = max(sequence, producer.next_sequence)
        verification = self._verifications.get(producer_id)
        if verification is None:
            verification = Verification(sequence, epoch, supports_epoch_bump, now_ms)
            self._verifications[producer_id] = verification
        verification.saw(sequence, epoch)
        return verification.guard

    def take_verifications(self, other: Producers) -> None:
        """Inquiries that began while `other` spoke for the partition are answered here."""
        self._verifications.update(other._verifications)

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        producer = self._producers.get(producer_id)
        return producer is not None and producer.txn_first_offset >= 0 and producer.epoch == epoch

    # --- offsets

    def first_unstable_offset(self) -> int | None:
        """The lowest offset of a transaction that is undecided, or decided by a marker that may yet be lost."""
        if not self._open and not self._unreplicated:
            return None  # every fetch asks, and few partitions are written to in transactions
        undecided = self.first_undecided_offset()
        if not self._unreplicated:
            return undecided
        unreplicated = self._unreplicated[0][0]
        return unreplicated if undecided is None else min(undecided, unreplicated)

    def first_undecided_offset(self) -> int | None:
        return next(iter(self._open), None)

    def on_high_watermark(self, high_watermark: int) -> None:
        if self._unreplicated:
            self._unreplicated = [txn for txn in self._unreplicated if txn[1] >= high_watermark]

    def on_log_start_offset(self, log_start_offset: int) -> None:
        """Records were deleted from the front. What is known of their producers stays."""
        self.on_high_watermark(log_start_offset)
        self.end_offset = max(self.end_offset, log_start_offset)

    # --- time

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Forgets producers, and verifications that led to nothing, that are older; an open transaction is kept."""
        for producer in list(self._producers.values()):
            if producer.txn_first_offset < 0 and now_ms - producer.heard_ms >= expiration_ms:
                del self._producers[producer.producer_id]
        for producer_id, verification in list(self._verifications.items()):
            if now_ms - verification.began_ms >= expiration_ms:
                del self._verifications[producer_id]

    # --- as a whole

    def __len__(self) -> int:
        return len(self._producers)

    def __iter__(self) -> Iterator[Producer]:
        return iter(self._producers.values())

    def get(self, producer_id: int) -> Producer | None:
        return self._producers.get(producer_id)

    def reset(self, end_offset: int) -> None:
        """Forgets all producers; verifications live on, for they are not of the log."""
        self._producers.clear()
        self._open.clear()
        self._unreplicated.clear()
        self.end_offset = end_offset

    def snapshot(self) -> bytes:
        """The file that speaks of the log up to `end_offset`."""
        return encode_snapshot(
            ProducerSnapshotEntry(
                producer.producer_id,
                producer.epoch,
                producer.last_sequence,
                producer.batches[-1].last_offset if producer.batches else NO_OFFSET,
                producer.batches[-1].last_offset - producer.batches[-1].first_offset if producer.batches else 0,
                producer.last_timestamp,
                producer.coordinator_epoch,
                producer.txn_first_offset,
            )
            for producer in self._producers.values()
        )

    def load(self, snapshot: bytes, end_offset: int, now_ms: int) -> None:
        """Begins anew from a snapshot; CorruptSnapshot leaves everything as it was."""
        entries = decode_snapshot(snapshot)
        self.reset(end_offset)
        for entry in entries:
            producer = self._producers[entry.producer_id] = Producer(entry.producer_id)
            producer.epoch = entry.epoch
            producer.coordinator_epoch = entry.coordinator_epoch
            producer.last_timestamp = entry.timestamp
            producer.txn_first_offset = max(entry.txn_first_offset, NO_OFFSET)
            producer.heard_ms = now_ms
            if entry.last_offset >= 0:
                producer.add(_last_batch(entry))
        open_now = ((p.txn_first_offset, p.producer_id) for p in self._producers.values() if p.txn_first_offset >= 0)
        self._open.update(sorted(open_now))


def _metadata(header: BatchHeader) -> BatchMetadata:
    first_offset = header.base_offset
    last_offset = first_offset + header.last_offset_delta
    return _batch_metadata(
        (header.base_sequence, header.last_sequence, first_offset, last_offset, header.max_timestamp)
    )


def _last_batch(entry: ProducerSnapshotEntry) -> BatchMetadata:
    first_sequence = entry.last_sequence
    if first_sequence != NO_SEQUENCE:
        first_sequence = (first_sequence - entry.offset_delta) & MAX_SEQUENCE
    first_offset = entry.last_offset - entry.offset_delta
    return BatchMetadata(first_sequence, entry.last_sequence, first_offset, entry.last_offset, entry.timestamp)


def _fenced(producer_id: int, epoch: int, current: int) -> ProducerRefused:
    return ProducerRefused(
        ErrorCode.INVALID_PRODUCER_EPOCH, f"epoch {epoch} of producer {producer_id} is fenced by epoch {current}"
    )


def _out_of_order(header: BatchHeader, reason: str) -> ProducerRefused:
    return ProducerRefused(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"sequence {header.base_sequence} of producer {header.producer_id}, epoch {header.producer_epoch}: {reason}",
    )
