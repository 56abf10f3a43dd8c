"""One coordinator partition: the transactional ids that its records hold, and what is under way for them.

`Transactions` owns one shard per partition of `__transaction_state` that this broker leads. A transactional id belongs
to the shard whose partition it hashes to.

`replay` is the one place where durable state changes; living and loading run the same code. A record holds the whole
state of its id, so the last one counts, and a tombstone of what is not there (compaction has removed it) is nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping

from tidelog.deciding import shards as deciding
from tidelog.deciding.decision import CoordinatorRecord, TimerKey
from tidelog.deciding.turn import Refusal
from tidelog.txn.config import TxnConfig
from tidelog.txn.records import decode, transaction_record
from tidelog.txn.state import TransactionState
from tidelog.txn.transaction import Transaction
from tidelog.txn.turn import TxnDecision
from tidelog.wire.batch import NO_PRODUCER_EPOCH
from tidelog.wire.errors import ErrorCode
from tidelog.wire.partitions import TopicPartition


class TxnSurroundings:
    """What every shard sees of the world outside its records."""

    __slots__ = ("config", "next_producer_id")

    def __init__(self, config: TxnConfig, next_producer_id: Callable[[], int | None]) -> None:
        self.config = config
        self.next_producer_id = next_producer_id

    def new_producer_id(self) -> int:
        producer_id = self.next_producer_id()
        if producer_id is None:
            # The block is used up and the next one is on its way; all clients try again on this code.
            raise Refusal(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return producer_id


class Marking:
    """How far a prepared transaction has come; known to this coordinator only, the next one starts from all."""

    __slots__ = ("failed", "missing")

    def __init__(self, partitions: frozenset[TopicPartition]) -> None:
        # Partitions that are not yet known to have their marker.
        self.missing = set(partitions)
        # Those of them whose marker is not under way: they could not take it, and are waiting for the retry.
        self.failed: set[TopicPartition] = set()


class Shard(deciding.Shard):
    __slots__ = (
        "around",
        "coordinator_epoch",
        "last_epochs",
        "last_token",
        "markings",
        "tokens",
        "transactions",
        "uncommitted",
    )

    def __init__(self, partition: int, coordinator_epoch: int, around: TxnSurroundings) -> None:
        super().__init__(partition)
        # The leader epoch of the partition: partitions refuse markers of a coordinator that has been replaced.
        self.coordinator_epoch = coordinator_epoch
        self.around = around
        self.transactions: dict[str, Transaction] = {}
        # For every transactional id whose transaction is prepared.
        self.markings: dict[str, Marking] = {}
        # Transactional id -> (producer id, its epoch, the epoch that was exchanged for it). Kafka does not store the
        # last of them, so a repeated InitProducerId is recognised only by the coordinator that answered the first.
        self.last_epochs: dict[str, tuple[int, int, int]] = {}
        # Transactional id -> the token of the markers that are being written for it.
        self.tokens: dict[str, int] = {}
        self.last_token = 0
        # What was replayed and may not be committed yet: where it was written, and how the transaction was before.
        self.uncommitted: deque[tuple[int, str, Transaction | None]] = deque()

    @property
    def config(self) -> TxnConfig:
        return self.around.config

    def committed(self, high_watermark: int) -> None:
        """What was written below is known to be kept."""
        uncommitted = self.uncommitted
        while uncommitted and uncommitted[0][0] < high_watermark:
            uncommitted.popleft()

    def replicated(self) -> Mapping[str, Transaction]:
        """The transactions as whoever leads next would find them at least."""
        if not self.uncommitted:
            return self.transactions
        found = dict(self.transactions)
        for _, transactional_id, before in reversed(self.uncommitted):
            if before is None:
                found.pop(transactional_id, None)
            else:
                found[transactional_id] = before
        return found

    def replay(self, record: CoordinatorRecord, offset: int = -1) -> None:
        decoded = record.meaning or decode(record.key, record.value)
        if decoded is None:
            return
        transactional_id, transaction = decoded
        if not self.loading and offset >= 0:
            self.uncommitted.append((offset, transactional_id, self.transactions.get(transactional_id)))
        self.markings.pop(transactional_id, None)
        if transaction is None:
            self.transactions.pop(transactional_id, None)
            self.last_epochs.pop(transactional_id, None)
            self.tokens.pop(transactional_id, None)
            return
        self.transactions[transactional_id] = transaction
        if transaction.state.is_prepared:
            self.markings[transactional_id] = Marking(transaction.partitions)

    def existing(self, transactional_id: str) -> Transaction:
        transaction = self.transactions.get(transactional_id)
        if transaction is None:
            raise Refusal(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        return transaction

    def store(self, turn: TxnDecision, transaction: Transaction) -> None:
        turn.append(transaction_record(transaction, self.config.transaction_version))

    def timer_keys(self) -> list[TimerKey]:
        """Every timer that may be set."""
        keys = [self.key("expiry")]
        for transactional_id, transaction in self.transactions.items():
            if transaction.state is TransactionState.ONGOING:
                keys.append(self.key("timeout", transactional_id))
            elif transaction.state.is_prepared:
                keys.append(self.key("markers", transactional_id))
        return keys

    def new_token(self, transactional_id: str) -> int:
        self.last_token += 1
        self.tokens[transactional_id] = self.last_token
        return self.last_token

    def remember_last_epoch(self, transaction: Transaction, last_epoch: int) -> None:
        """`transaction` as it will be stored; until it is, what is remembered here matches nothing."""
        self.last_epochs[transaction.transactional_id] = (
            transaction.producer_id,
            transaction.producer_epoch,
            last_epoch,
        )

    def last_epoch(self, transaction: Transaction) -> int:
        producer_id, epoch, last = self.last_epochs.get(transaction.transactional_id, (-1, -1, NO_PRODUCER_EPOCH))
        same = producer_id == transaction.producer_id and epoch == transaction.producer_epoch
        return last if same else NO_PRODUCER_EPOCH
