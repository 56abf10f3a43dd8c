"""The door of the room: every event a transaction coordinator can meet, and the decision that answers it.

    transactions = Transactions(TxnConfig.from_properties(broker_config), next_producer_id, compile_pattern)
    transactions.load_begin(7, leader_epoch); transactions.replay(7, record) ...
    decision = transactions.load_end(7, now_ms, wall_ms)
    decision = transactions.end(ticket, TransactionEnd("x", producer, commit=True, client_version=2), now_ms, wall_ms)
    decision = transactions.markers_written(markers, {TopicPartition("t", 0): ErrorCode.NONE}, now_ms, wall_ms)

A decision is carried out before the next event is handed in; `turn.py` says how. If its append fails, `append_failed`
gives the decision to carry out instead; if the commit takes too long, `failed(outcome, error)` is told in place of the
outcome. What a ticket is told is one of `TxnOutcome`; messages and their versions are the business of the API room.

Each `TxnMarkers` of a decision is answered by `markers_written`, in as many calls as it takes: one result for each of
its partitions, once. A partition that no longer exists counts as NONE; no answer from its leader is an error too.

`next_producer_id` gives an unused producer id, or None while the broker fetches a new block of them: requests that need
one are then answered with a retriable error. `compile_pattern` makes a test for whole transactional ids from a regular
expression in RE2's syntax, or raises ValueError. `now_ms` is monotonic time, `wall_ms` stamps records. A ticket is
opaque and is told exactly one outcome.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from tidelog.deciding.decision import CancelTimer, CoordinatorRecord, SetTimer, Ticket, TimerKey
from tidelog.deciding.shards import Shards
from tidelog.deciding.turn import Refusal
from tidelog.txn import adding, admin, completion, ending, failure
from tidelog.txn.adding import Addition, AdditionResults
from tidelog.txn.admin import TransactionFilter, TransactionListing
from tidelog.txn.config import RETRY_BACKOFF_MS, TxnConfig
from tidelog.txn.ending import TransactionEnd
from tidelog.txn.failure import TxnOutcome
from tidelog.txn.producer import Initialisation, initialise
from tidelog.txn.shard import Shard, TxnSurroundings
from tidelog.txn.state import TransactionState
from tidelog.txn.transaction import ProducerIdentity, Transaction
from tidelog.txn.turn import TxnDecision, TxnMarkers
from tidelog.wire.errors import ErrorCode
from tidelog.wire.partitions import TopicPartition

_E = ErrorCode


class Transactions:
    def __init__(
        self,
        config: TxnConfig,
        next_producer_id: Callable[[], int | None],
        compile_pattern: Callable[[str], Callable[[str], bool]],
    ) -> None:
        self._around = TxnSurroundings(config, next_producer_id)
        self._compile_pattern = compile_pattern
        self._shards: Shards[Shard] = Shards(lambda: self._around.config.num_partitions)
        self.sized = self._shards.sized
        self.partition_for = self._shards.partition_for

    # -- coming and going of partitions --------------------------------------------------------------------------

    def load_begin(self, partition: int, leader_epoch: int) -> TxnDecision:
        """`leader_epoch` becomes the coordinator's epoch, which markers carry."""
        dropped = self.unload(partition)
        self._shards[partition] = Shard(partition, leader_epoch, self._around)
        return dropped

    def replay(self, partition: int, record: CoordinatorRecord, producer_id: int = -1, offset: int = -1) -> None:
        self._shards[partition].replay(record, offset)

    def committed(self, partition: int, high_watermark: int) -> None:
        """Operators are shown what is committed; without this it would never be."""
        shard = self._shards.get(partition)
        if shard is not None:
            shard.committed(high_watermark)

    def replay_end(self, partition: int, producer_id: int, commit: bool) -> None:
        """The coordinator writes its own records outside of transactions: a marker here means nothing."""

    def load_end(self, partition: int, now_ms: int, wall_ms: int) -> TxnDecision:
        """From now on the partition answers. What the coordinator before left prepared is finished."""
        shard = self._shards[partition]
        shard.loading = False
        turn = TxnDecision(now_ms, wall_ms)
        turn.partition = partition
        for transactional_id, transaction in shard.transactions.items():
            if transaction.state is TransactionState.ONGOING:
                completion.set_timeout(shard, turn, transaction, transaction.remaining_ms(wall_ms))
            elif transaction.state.is_prepared:
                completion.start_over(shard, turn, transactional_id)
        interval_ms = shard.config.id_cleanup_interval_ms
        turn.timers.append(SetTimer(shard.key("expiry"), now_ms + interval_ms))
        return turn

    def unload(self, partition: int) -> TxnDecision:
        """Another broker leads now. What it is told of markers that are still being written is ignored."""
        turn = TxnDecision()
        shard = self._shards.pop(partition, None)
        if shard is not None:
            turn.timers.extend(map(CancelTimer, shard.timer_keys()))
        return turn

    def append_failed(self, decision: TxnDecision, error: ErrorCode, now_ms: int, wall_ms: int) -> TxnDecision:
        """What to carry out in place of a decision whose records could not be appended."""
        turn = TxnDecision(now_ms, wall_ms)
        for reply in decision.replies:
            turn.reply(reply.ticket, failure.failed(reply.message, error))
        if decision.fired is not None and decision.partition in self._shards:
            turn.timers.append(SetTimer(decision.fired, now_ms + RETRY_BACKOFF_MS))
        return turn

    @staticmethod
    def failed(outcome: TxnOutcome, error: ErrorCode) -> TxnOutcome:
        """What a ticket is told in place of `outcome` where its records could not be stored."""
        return failure.failed(outcome, error)

    # -- markers and time ----------------------------------------------------------------------------------------

    def markers_written(
        self, markers: TxnMarkers, results: Mapping[TopicPartition, ErrorCode], now_ms: int, wall_ms: int
    ) -> TxnDecision:
        turn = TxnDecision(now_ms, wall_ms)
        shard = self._shards.get(self.partition_for(markers.transactional_id))
        if shard is None or shard.loading or shard.coordinator_epoch != markers.coordinator_epoch:
            return turn
        completion.markers_written(shard, turn, markers, results)
        return shard.close(turn)

    def on_timer(self, key: TimerKey, now_ms: int, wall_ms: int) -> TxnDecision:
        turn = TxnDecision(now_ms, wall_ms, key)
        partition, kind, transactional_id, _ = key
        shard = self._shards.get(partition)
        if shard is None or shard.loading:
            return turn
        if kind == "expiry":
            admin.expire(shard, turn)
        elif kind == "markers":
            completion.resume(shard, turn, transactional_id)
        else:
            self._time_out(shard, turn, transactional_id)
        return shard.close(turn)

    @staticmethod
    def _time_out(shard: Shard, turn: TxnDecision, transactional_id: str) -> None:
        transaction = shard.transactions.get(transactional_id)
        if transaction is None or transaction.state is not TransactionState.ONGOING:
            return
        try:
            completion.fence(shard, turn, transaction)
        except Refusal:
            turn.timers.append(SetTimer(shard.key("timeout", transactional_id), turn.now_ms + RETRY_BACKOFF_MS))

    # -- producers -----------------------------------------------------------------------------------------------

    def initialise(self, ticket: Ticket, wanted: Initialisation, now_ms: int, wall_ms: int) -> TxnDecision:
        """The ticket is told the identity that the producer has from now on, or why it gets none."""
        turn = TxnDecision(now_ms, wall_ms)
        try:
            expected = wanted.expected
            if wanted.transactional_id is None:
                return _answered(turn, ticket, ProducerIdentity(self._around.new_producer_id(), 0))
            if not wanted.transactional_id:
                raise Refusal(_E.INVALID_REQUEST)
            if not 0 < wanted.timeout_ms <= self._around.config.max_timeout_ms:
                raise Refusal(_E.INVALID_TRANSACTION_TIMEOUT)
            shard = self._shards.of(wanted.transactional_id)
            after = initialise(shard, turn, wanted.transactional_id, wanted.timeout_ms, expected)
        except Refusal as refusal:
            return _answered(turn, ticket, refusal.code)
        outcome = _E.CONCURRENT_TRANSACTIONS if after is None else after.producer
        return shard.close(_answered(turn, ticket, outcome))

    def add_partitions(
        self, ticket: Ticket, additions: Iterable[Addition], now_ms: int, wall_ms: int
    ) -> list[TxnDecision]:
        """One decision for each coordinator partition, each with a reply that holds the results of its transactions.

        A transaction is named once.
        """
        turns: dict[int, TxnDecision] = {}
        results: dict[int, AdditionResults] = {}
        for wanted in additions:
            at = self.partition_for(wanted.transactional_id)
            turn = turns.setdefault(at, TxnDecision(now_ms, wall_ms))
            try:
                codes = self._add(turn, wanted)
            except Refusal as refusal:
                codes = dict.fromkeys(wanted.partitions, refusal.code)
            results.setdefault(at, {})[wanted.transactional_id] = codes
        return [_answered(turn, ticket, results[at]) for at, turn in turns.items()]

    def _add(self, turn: TxnDecision, wanted: Addition) -> dict[TopicPartition, ErrorCode]:
        if not wanted.transactional_id:
            raise Refusal(_E.INVALID_REQUEST)
        shard = self._shards.of(wanted.transactional_id)
        codes = dict.fromkeys(wanted.partitions, _E.NONE)
        if wanted.verify_only:
            codes = adding.verify(shard, wanted)
        else:
            adding.add(shard, turn, wanted)
        # What was added before counts only when it is committed, so even an answer without records waits its turn.
        turn.partition = shard.partition
        return codes

    def end(self, ticket: Ticket, wanted: TransactionEnd, now_ms: int, wall_ms: int) -> TxnDecision:
        """The ticket is told the identity that the producer has from now on, or why this is no end."""
        turn = TxnDecision(now_ms, wall_ms)
        try:
            if not wanted.transactional_id:
                raise Refusal(_E.INVALID_REQUEST)
            shard = self._shards.of(wanted.transactional_id)
            after = ending.end(shard, turn, wanted)
        except Refusal as refusal:
            return _answered(turn, ticket, refusal.code)
        turn.partition = shard.partition
        return _answered(turn, ticket, after.producer)

    # -- operators -----------------------------------------------------------------------------------------------

    def described(self, transactional_id: str) -> Transaction:
        """Raises Refusal where there is none, or this broker cannot tell."""
        if not transactional_id:
            raise Refusal(_E.INVALID_REQUEST)
        return admin.described(self._shards.of(transactional_id), transactional_id)

    def listed(self, wanted: TransactionFilter, wall_ms: int) -> TransactionListing:
        """Raises Refusal if this broker cannot tell, or if the pattern is malformed."""
        if self._shards.some_load:
            raise Refusal(_E.COORDINATOR_LOAD_IN_PROGRESS)
        return admin.listed(self._shards.values(), wanted, self._compile_pattern, wall_ms)


def _answered(turn: TxnDecision, ticket: Ticket, outcome: TxnOutcome) -> TxnDecision:
    turn.reply(ticket, outcome)
    return turn
