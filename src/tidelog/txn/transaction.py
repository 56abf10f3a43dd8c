"""What is durable of one transactional id, as a value: each change makes the next value, and its record.

Epochs
    A producer is known by its id and epoch; whoever has an older epoch is fenced. The epoch grows when a producer
    initialises, when its transaction is aborted over its head, and, since transactions version 2, at every end of a
    transaction, so that a late request of the transaction before can be told from one of the next. 32767 is kept
    for fencing: a client never holds it. When 32766 is used up the id gets a new producer id with epoch 0.

The change of producer id at an end
    Preparing stores the new id beside the old one, for the markers are written under the old; completing puts it in
    its place:

        Ongoing        id 7, epoch 32766
        PrepareCommit  id 7, epoch 32767, next 8      markers: id 7, epoch 32767
        CompleteCommit id 8, epoch 0, previous 7      what the client is told, from PrepareCommit on

Timestamps are wall time: they are read by other brokers and after restarts.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tidelog.txn.state import PREVIOUS, TransactionState
from tidelog.wire.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP
from tidelog.wire.partitions import TopicPartition

MAX_EPOCH = 2**15 - 1
# A transaction with this timeout is never aborted by the coordinator.
NO_TIMEOUT_MS = 2**31 - 1
# From this version on the epoch grows at every end of a transaction.
EPOCH_BUMP_VERSION = 2

_S = TransactionState


class ProducerIdentity(NamedTuple):
    """How a producer names itself to partitions and to the coordinator."""

    producer_id: int
    producer_epoch: int


NO_IDENTITY = ProducerIdentity(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


class IllegalTransition(Exception):
    """A change that the table of states does not have: a fault in this room, never in a request."""


class Transaction(NamedTuple):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    last_update_ms: int
    # The producer id before the last change of any kind: differs from `producer_id` only right after a rotation.
    previous_producer_id: int = NO_PRODUCER_ID
    # The producer id that completing will put in place; set only while prepared.
    next_producer_id: int = NO_PRODUCER_ID
    # Empty unless ongoing or prepared.
    partitions: frozenset[TopicPartition] = frozenset()
    # When the transaction began; stays through Complete*, gone in Empty.
    start_ms: int = NO_TIMESTAMP
    # The transactions version of the client that made the last change to an open transaction.
    client_version: int = 0

    @classmethod
    def created(cls, transactional_id: str, producer_id: int, timeout_ms: int, wall_ms: int) -> Transaction:
        return cls(transactional_id, producer_id, 0, timeout_ms, _S.EMPTY, wall_ms, previous_producer_id=producer_id)

    @property
    def producer(self) -> ProducerIdentity:
        return ProducerIdentity(self.producer_id, self.producer_epoch)

    @property
    def is_epoch_exhausted(self) -> bool:
        return is_exhausted(self.producer_epoch)

    def remaining_ms(self, wall_ms: int) -> int:
        """What is left of its timeout, judged by a clock that may not be the one it was begun under: never more than
        the whole timeout.
        """
        return min(max(self.start_ms + self.timeout_ms - wall_ms, 0), self.timeout_ms)

    def _to(self, state: TransactionState, wall_ms: int, **changes: object) -> Transaction:
        if self.state not in PREVIOUS[state]:
            raise IllegalTransition(f"{self.transactional_id}: from {self.state.label} to {state.label}")
        return self._replace(
            state=state,
            last_update_ms=wall_ms,
            previous_producer_id=self.producer_id,
            **changes,  # type: ignore[arg-type]
        )

    def initialised(self, producer_epoch: int, timeout_ms: int, wall_ms: int) -> Transaction:
        return self._to(
            _S.EMPTY,
            wall_ms,
            producer_epoch=producer_epoch,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            start_ms=NO_TIMESTAMP,
        )

    def rotated(self, producer_id: int, timeout_ms: int, wall_ms: int) -> Transaction:
        """A producer starts over under a new id, because the epochs of the old one are used up."""
        return self.initialised(0, timeout_ms, wall_ms)._replace(producer_id=producer_id)

    def adding(self, partitions: Iterable[TopicPartition], client_version: int, wall_ms: int) -> Transaction:
        return self._to(
            _S.ONGOING,
            wall_ms,
            partitions=self.partitions.union(partitions),
            start_ms=self.start_ms if self.state is _S.ONGOING else wall_ms,
            client_version=client_version,
        )

    def ending(
        self, commit: bool, client_version: int, wall_ms: int, next_producer_id: int, fence: bool = False
    ) -> Transaction:
        """`fence` takes the epoch away from the producer; it grows anyway where `client_version` bumps at every end."""
        bump = fence or client_version >= EPOCH_BUMP_VERSION
        return self._to(
            _S.PREPARE_COMMIT if commit else _S.PREPARE_ABORT,
            wall_ms,
            producer_epoch=min(self.producer_epoch + 1, MAX_EPOCH) if bump else self.producer_epoch,
            next_producer_id=next_producer_id,
            start_ms=self.start_ms if self.state is _S.ONGOING else wall_ms,
            client_version=client_version,
        )

    def completed(self, wall_ms: int) -> Transaction:
        state = _S.COMPLETE_COMMIT if self.state is _S.PREPARE_COMMIT else _S.COMPLETE_ABORT
        done = self._to(state, wall_ms, partitions=frozenset(), next_producer_id=NO_PRODUCER_ID)
        if self.next_producer_id == NO_PRODUCER_ID or self.client_version < EPOCH_BUMP_VERSION:
            return done
        return done._replace(producer_id=self.next_producer_id, producer_epoch=0)


def is_exhausted(epoch: int) -> bool:
    return epoch >= MAX_EPOCH - 1
