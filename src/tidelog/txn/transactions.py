"""The door of the room: every event a transaction coordinator can meet, and the decision that answers it.

    transactions = Transactions(TxnConfig.from_properties(broker_config), next_producer_id, compile_pattern)
    transactions.load_begin(7, leader_epoch); transactions.replay(7, record) ...
    decision = transactions.load_end(7, now_ms, wall_ms)
    decision = transactions.end_txn(ticket, request, context, now_ms, wall_ms)
    decision = transactions.markers_written(markers, {TopicPartition("t", 0): ErrorCode.NONE}, now_ms, wall_ms)

A decision is carried out before the next event is handed in; `turn.py` says how. If its append fails, `append_failed`
gives the decision to carry out instead; if the commit takes too long, `failed(message, error)` shapes the answer.

Each `TxnMarkers` of a decision is answered by `markers_written`, in as many calls as it takes: one result for each of
its partitions, once. A partition that no longer exists counts as NONE; no answer from its leader is an error too.

`next_producer_id` gives an unused producer id, or None while the broker fetches a new block of them: requests that need
one are then answered with a retriable error. `compile_pattern` makes a test for whole transactional ids from a regular
expression in RE2's syntax, or raises ValueError. `now_ms` is monotonic time, `wall_ms` stamps records. A ticket is
opaque and gets exactly one reply.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from tidelog.deciding.decision import CancelTimer, CoordinatorRecord, SetTimer, Ticket, TimerKey
from tidelog.deciding.shards import Shards
from tidelog.deciding.turn import Refusal, RequestContext
from tidelog.txn import adding, admin, completion, ending, failure
from tidelog.txn.adding import Addition
from tidelog.txn.config import RETRY_BACKOFF_MS, TxnConfig
from tidelog.txn.producer import expected_identity, initialise
from tidelog.txn.shard import Shard, TxnSurroundings
from tidelog.txn.state import TransactionState
from tidelog.txn.turn import TxnDecision, TxnMarkers
from tidelog.wire import messages
from tidelog.wire.classes import Message
from tidelog.wire.errors import ErrorCode
from tidelog.wire.partitions import TopicPartition

_E = ErrorCode

CONSUMER_OFFSETS = "__consumer_offsets"


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
        self._shards[partition].replay(record.key, record.value)

    def replay_end(self, partition: int, producer_id: int, commit: bool) -> None:
        """The coordinator writes its own records outside of transactions: a marker here means nothing."""

    def load_end(self, partition: int, now_ms: int, wall_ms: int) -> TxnDecision:
        """From now on the partition answers. What the coordinator before left prepared is finished."""
        shard = self._shards[partition]
        shard.loading = False
        turn = TxnDecision(partition, now_ms=now_ms, wall_ms=wall_ms)
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
        turn = TxnDecision(now_ms=now_ms, wall_ms=wall_ms)
        for reply in decision.replies:
            turn.reply(reply.ticket, failure.failed(reply.message, error))
        if decision.fired is not None and decision.partition in self._shards:
            turn.timers.append(SetTimer(decision.fired, now_ms + RETRY_BACKOFF_MS))
        return turn

    @staticmethod
    def failed(message: Message, error: ErrorCode) -> Message:
        """The reply `message` turned into one of its API that tells of `error`."""
        return failure.failed(message, error)

    # -- markers and time ----------------------------------------------------------------------------------------

    def markers_written(
        self, markers: TxnMarkers, results: Mapping[TopicPartition, ErrorCode], now_ms: int, wall_ms: int
    ) -> TxnDecision:
        turn = TxnDecision(now_ms=now_ms, wall_ms=wall_ms)
        shard = self._shards.get(self.partition_for(markers.transactional_id))
        if shard is None or shard.loading or shard.coordinator_epoch != markers.coordinator_epoch:
            return turn
        completion.markers_written(shard, turn, markers, results)
        return shard.close(turn)

    def on_timer(self, key: TimerKey, now_ms: int, wall_ms: int) -> TxnDecision:
        turn = TxnDecision(now_ms=now_ms, wall_ms=wall_ms, fired=key)
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

    def init_producer_id(
        self,
        ticket: Ticket,
        request: messages.InitProducerIdRequest,
        context: RequestContext,
        now_ms: int,
        wall_ms: int,
    ) -> TxnDecision:
        turn = TxnDecision(now_ms=now_ms, wall_ms=wall_ms)
        try:
            expected = expected_identity(request)
            if request.transactional_id is None:
                producer_id = self._around.new_producer_id()
                return _answered(turn, ticket, messages.InitProducerIdResponse(producer_id=producer_id))
            if not request.transactional_id:
                raise Refusal(_E.INVALID_REQUEST)
            if not 0 < request.transaction_timeout_ms <= self._around.config.max_timeout_ms:
                raise Refusal(_E.INVALID_TRANSACTION_TIMEOUT)
            shard = self._shards.of(request.transactional_id)
            after = initialise(shard, turn, request.transactional_id, request.transaction_timeout_ms, expected)
            if after is None:
                message = failure.init_failure(_E.CONCURRENT_TRANSACTIONS)
            else:
                message = messages.InitProducerIdResponse(
                    producer_id=after.producer_id, producer_epoch=after.producer_epoch
                )
            return shard.close(_answered(turn, ticket, message))
        except Refusal as refusal:
            return _answered(turn, ticket, failure.init_failure(_understood(refusal.code, context, 4)))

    def add_partitions_to_txn(
        self,
        ticket: Ticket,
        request: messages.AddPartitionsToTxnRequest,
        context: RequestContext,
        now_ms: int,
        wall_ms: int,
    ) -> list[TxnDecision]:
        """One decision for each coordinator partition, each with a reply that holds the results of its transactions;
        `merged` makes one answer of them. A client's request (up to version 3) makes exactly one.
        """
        turns: dict[int, TxnDecision] = {}
        results: dict[int, dict[str, Mapping[TopicPartition, ErrorCode]]] = {}
        for wanted in adding.additions(request, context):
            at = self.partition_for(wanted.transactional_id)
            turn = turns.setdefault(at, TxnDecision(now_ms=now_ms, wall_ms=wall_ms))
            codes: Mapping[TopicPartition, ErrorCode]
            try:
                codes = self._add(turn, wanted)
            except Refusal as refusal:
                codes = dict.fromkeys(wanted.partitions, _understood(refusal.code, context, 2))
            results.setdefault(at, {})[wanted.transactional_id] = codes
        return [_answered(turn, ticket, adding.answer(results[at], context)) for at, turn in turns.items()]

    @staticmethod
    def merged(responses: Iterable[messages.AddPartitionsToTxnResponse]) -> messages.AddPartitionsToTxnResponse:
        """One AddPartitionsToTxnResponse (version 4 or later) from those of several decisions."""
        found = [result for response in responses for result in response.results_by_transaction]
        return messages.AddPartitionsToTxnResponse(results_by_transaction=found)

    def add_offsets_to_txn(
        self,
        ticket: Ticket,
        request: messages.AddOffsetsToTxnRequest,
        context: RequestContext,
        offsets_partition: int,
        now_ms: int,
        wall_ms: int,
    ) -> TxnDecision:
        """`offsets_partition` is the partition of `__consumer_offsets` that the request's group belongs to."""
        turn = TxnDecision(now_ms=now_ms, wall_ms=wall_ms)
        code = _E.NONE
        wanted = Addition(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            False,
            frozenset({TopicPartition(CONSUMER_OFFSETS, offsets_partition)}),
            0,
        )
        try:
            self._add(turn, wanted)
        except Refusal as refusal:
            code = _understood(refusal.code, context, 2)
        return _answered(turn, ticket, messages.AddOffsetsToTxnResponse(error_code=int(code)))

    def _add(self, turn: TxnDecision, wanted: Addition) -> Mapping[TopicPartition, ErrorCode]:
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

    def end_txn(
        self, ticket: Ticket, request: messages.EndTxnRequest, context: RequestContext, now_ms: int, wall_ms: int
    ) -> TxnDecision:
        turn = TxnDecision(now_ms=now_ms, wall_ms=wall_ms)
        try:
            if not request.transactional_id:
                raise Refusal(_E.INVALID_REQUEST)
            shard = self._shards.of(request.transactional_id)
            after = ending.end(shard, turn, request, context)
        except Refusal as refusal:
            message = messages.EndTxnResponse(error_code=int(_understood(refusal.code, context, 2)))
            return _answered(turn, ticket, message)
        turn.partition = shard.partition
        message = messages.EndTxnResponse(producer_id=after.producer_id, producer_epoch=after.producer_epoch)
        return _answered(turn, ticket, message)

    # -- operators -----------------------------------------------------------------------------------------------

    def describe_transactions(
        self,
        ticket: Ticket,
        request: messages.DescribeTransactionsRequest,
        context: RequestContext,
        now_ms: int,
        wall_ms: int,
    ) -> TxnDecision:
        of_state = messages.DescribeTransactionsResponse.TransactionState
        found = []
        for transactional_id in request.transactional_ids:
            try:
                if not transactional_id:
                    raise Refusal(_E.INVALID_REQUEST)
                found.append(admin.described(self._shards.of(transactional_id), transactional_id))
            except Refusal as refusal:
                found.append(of_state(transactional_id=transactional_id, error_code=int(refusal.code)))
        turn = TxnDecision(now_ms=now_ms, wall_ms=wall_ms)
        return _answered(turn, ticket, messages.DescribeTransactionsResponse(transaction_states=found))

    def list_transactions(
        self,
        ticket: Ticket,
        request: messages.ListTransactionsRequest,
        context: RequestContext,
        now_ms: int,
        wall_ms: int,
    ) -> TxnDecision:
        turn = TxnDecision(now_ms=now_ms, wall_ms=wall_ms)
        if self._shards.some_load:
            message = messages.ListTransactionsResponse(error_code=int(_E.COORDINATOR_LOAD_IN_PROGRESS))
        else:
            message = admin.listed(self._shards.values(), request, self._compile_pattern, wall_ms)
        return _answered(turn, ticket, message)


def _understood(code: ErrorCode, context: RequestContext, since: int) -> ErrorCode:
    """PRODUCER_FENCED is known to clients from version `since` of the API on; before it, another name stood for it."""
    fenced = code is _E.PRODUCER_FENCED and context.api_version < since
    return _E.INVALID_PRODUCER_EPOCH if fenced else code


def _answered(turn: TxnDecision, ticket: Ticket, message: Message) -> TxnDecision:
    turn.reply(ticket, message)
    return turn
