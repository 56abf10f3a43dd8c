"""Writing records in transactions: all of them are seen by readers of committed records, or none.

    producer = client.transactional_producer("orders-7", timeout_ms=60_000)
    producer.begin()
    producer.send("orders", b"one")
    producer.commit()                       # or abort()

Opening a producer takes the transactional id: whoever used it before is fenced, and what it left open is aborted. The
coordinator of the id is asked again until it has ended that.

    state      what may be done
    idle       begin
    open       send, flush, prepare, commit, abort
    failed     abort: something was refused, and the transaction can no longer be committed
    prepared   commit, abort, or nothing: somebody else ends it by its `Prepared` (`client.transactions.end`)
    over       nothing: the id belongs to another producer, or the transaction outlasted its timeout

There are two versions of the protocol. In the first a partition is announced to the coordinator (AddPartitionsToTxn)
before it is written to, and the producer keeps its epoch. In the second (KIP-890, the cluster's feature
`transaction.version`) the leader of the partition announces it, and every end of a transaction raises the epoch, which
the answer brings; a batch that comes late can then not slip into the next transaction.

A transaction that wrote nothing is unknown to the coordinator, and ends here. An end whose answer is lost is asked for
again: the coordinator knows it for a repetition by its epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

from tidelog.client.cluster import TRANSACTION, Cluster
from tidelog.client.connection import NEWEST, Connection
from tidelog.client.errors import ClientError, Fenced, InDoubt, Refused, TimedOut, Unreachable, check, error_for
from tidelog.client.producer import Batch, Producer
from tidelog.wire import messages
from tidelog.wire.apis import ApiKey
from tidelog.wire.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from tidelog.wire.errors import ErrorCode
from tidelog.wire.partitions import TopicPartition

T = TypeVar("T")

DEFAULT_TIMEOUT_MS: Final = 60_000

_FEATURE: Final = "transaction.version"
#: the newest versions of the first protocol
_LAST_PRODUCE: Final = 11
_LAST_END_TXN: Final = 4
#: from the next one on only brokers ask
_LAST_ADD_PARTITIONS: Final = 3
_IDLE, _OPEN, _FAILED, _PREPARED, _OVER = "idle", "open", "failed", "prepared", "over"


class Prepared(NamedTuple):
    """An open transaction whose records are all acknowledged: what is needed to end it, from wherever."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class TransactionalProducer(Producer):
    """A producer of one transactional id. `compression`, `max_batch_bytes` … are those of `Producer`.

    `expected` is a producer id and epoch: the id is then taken only if it is theirs still (or nobody's).
    `protocol` is chosen by what the cluster says, unless it is given.
    """

    def __init__(
        self,
        cluster: Cluster,
        transactional_id: str,
        *,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
        expected: tuple[int, int] | None = None,
        protocol: int | None = None,
        **options: Any,
    ) -> None:
        if not transactional_id:
            raise Refused("a transactional ID must not be empty")
        super().__init__(cluster, **{**options, "acks": "all", "idempotent": True})
        self._transactional_id = self.transactional_id = transactional_id
        self._timeout_ms = timeout_ms
        self._protocol = protocol
        self._state = _IDLE
        self._why_failed = ""
        #: announced to the coordinator (first protocol)
        self._announced: set[TopicPartition] = set()
        #: whether a batch of the transaction was sent, so that the coordinator may know of it
        self._begun = False
        self._coordinator: Connection | None = None
        self._take(expected or (NO_PRODUCER_ID, NO_PRODUCER_EPOCH))

    # --- the coordinator ----------------------------------------------------------------------------

    def _ask(self, attempt: Callable[[Connection], T]) -> T:
        def found() -> T:
            if self._coordinator is None or self._coordinator.closed:
                self._coordinator = self._cluster.coordinator(self.transactional_id, TRANSACTION)
            try:
                return attempt(self._coordinator)
            except ClientError as error:
                if error.code != ErrorCode.CONCURRENT_TRANSACTIONS:
                    self._coordinator = None
                raise

        return self._cluster.retrying(found)

    def _take(self, expected: tuple[int, int]) -> None:
        """Makes the id this producer's."""
        what = f"transactional id {self.transactional_id}"

        def attempt(connection: Connection) -> messages.InitProducerIdResponse:
            if self._protocol is None:
                self._protocol = protocol_of(connection)
            request = messages.InitProducerIdRequest(
                transactional_id=self.transactional_id,
                transaction_timeout_ms=self._timeout_ms,
                producer_id=expected[0],
                producer_epoch=expected[1],
            )
            answer = connection.call(ApiKey.INIT_PRODUCER_ID, request)
            if answer.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT:
                detail = f"the brokers do not allow a transaction timeout of {self._timeout_ms} ms"
                raise error_for(answer.error_code, what, detail)
            check(answer.error_code, what)
            return answer

        answer = self._ask(attempt)
        self._produce_at_most = NEWEST if self._protocol == 2 else _LAST_PRODUCE
        self._become(answer.producer_id, answer.producer_epoch)

    def _become(self, producer_id: int, producer_epoch: int) -> None:
        if self._producer != (producer_id, producer_epoch):
            self._sequences = {}
        self._producer = producer_id, producer_epoch

    # --- the life of a transaction ------------------------------------------------------------------

    def begin(self) -> None:
        self._need(_IDLE, "begin a transaction")
        self._state = _OPEN
        self._announced = set()
        self._begun = False

    def flush(self) -> None:
        """Returns when everything sent so far is acknowledged; after a failure only `abort` is left."""
        self._need(_OPEN, "write")
        try:
            super().flush()
        except BaseException as error:
            self._state = _OVER if isinstance(error, Fenced) else _FAILED
            self._why_failed = str(error) or repr(error)
            raise

    def prepare(self) -> Prepared | None:
        """Flushes and leaves the transaction open, to be ended by whoever has this; None where nothing was written."""
        self.flush()
        if not self._begun:
            self._state = _IDLE
            return None
        assert self._producer is not None
        self._state = _PREPARED
        return Prepared(self.transactional_id, *self._producer)

    def commit(self) -> None:
        if self._state != _PREPARED:
            self.flush()
        self._end(committed=True)

    def abort(self) -> None:
        """Ends the transaction without its records. Where it is over already (`Fenced`), nothing is left to do."""
        if self._state not in (_OPEN, _FAILED, _PREPARED, _OVER):
            raise Refused(f"there is no transaction of {self.transactional_id} to abort")
        self._drop()
        if self._state == _OVER:
            return
        in_doubt = self._state == _FAILED
        self._end(committed=False)
        if in_doubt and self._protocol != 2:
            # What was under way may arrive yet, and sequence numbers may have a hole: another epoch settles both.
            assert self._producer is not None
            self._take(self._producer)

    def _end(self, committed: bool) -> None:
        if not self._begun:
            self._state = _IDLE
            return
        assert self._producer is not None
        prepared = Prepared(self.transactional_id, *self._producer)
        try:
            answer = self._ask(lambda connection: ended(connection, prepared, committed, self._protocol))
        except Fenced:
            self._state = _OVER
            raise
        except ClientError as error:
            self._state = _FAILED
            self._why_failed = str(error)
            if committed and isinstance(error, (Unreachable, TimedOut)):
                what = f"the transaction of {self.transactional_id} may or may not have been committed"
                raise InDoubt(f"{what}: {error}", error.code, error.hint) from error
            raise
        self._state = _IDLE
        if answer.producer_epoch != NO_PRODUCER_EPOCH:
            self._become(answer.producer_id, answer.producer_epoch)

    def _need(self, state: str, what: str) -> None:
        if self._state == state:
            return
        because = {
            _IDLE: "no transaction is open",
            _OPEN: "a transaction is open",
            _FAILED: f"the transaction has failed ({self._why_failed}) and must be aborted",
            _PREPARED: "the transaction is prepared and can only be ended",
            _OVER: f"the producer is fenced ({self._why_failed})",
        }
        kind = Fenced if self._state == _OVER else Refused
        raise kind(f"{self.transactional_id} cannot {what}: {because[self._state]}")

    # --- what a producer does otherwise -------------------------------------------------------------

    def send(self, *args: Any, **kwargs: Any) -> None:
        self._need(_OPEN, "write")
        super().send(*args, **kwargs)

    def send_encoded(self, *args: Any, **kwargs: Any) -> None:
        self._need(_OPEN, "write")
        super().send_encoded(*args, **kwargs)

    def _announce(self, pending: list[Batch]) -> None:
        self._begun = True
        new = {batch.where for batch in pending} - self._announced
        if self._protocol == 2 or not new:
            return
        assert self._producer is not None
        request = messages.AddPartitionsToTxnRequest
        by_topic: dict[str, list[int]] = {}
        for topic, partition in sorted(new):
            by_topic.setdefault(topic, []).append(partition)
        topics = [request.AddPartitionsToTxnTopic(name=name, partitions=found) for name, found in by_topic.items()]
        message = request(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self._producer[0],
            v3_and_below_producer_epoch=self._producer[1],
            v3_and_below_topics=topics,
        )

        def attempt(connection: Connection) -> None:
            answer = connection.call(ApiKey.ADD_PARTITIONS_TO_TXN, message, _LAST_ADD_PARTITIONS)
            for topic in answer.results_by_topic_v3_and_below:
                for result in topic.results_by_partition:
                    if result.partition_error_code != ErrorCode.OPERATION_NOT_ATTEMPTED:
                        where = f"adding {topic.name}-{result.partition_index} to the transaction"
                        check(result.partition_error_code, where)

        self._ask(attempt)
        self._announced |= new

    def _forgotten(self, batch: Batch, code: int) -> ClientError:
        """A transaction cannot go on under another producer id: it has to be aborted."""
        topic, partition = batch.where
        return error_for(code, f"writing to {topic}-{partition} in a transaction of {self.transactional_id}")

    def _explained(self, failure: ClientError, pending: list[Batch]) -> ClientError:
        """Nothing of a failed transaction is in doubt: whatever was written is aborted with it."""
        return failure

    def _new_producer(self) -> None:
        """The id stays; what it was for is decided by `abort`."""


def protocol_of(connection: Connection) -> int:
    """1, or 2 where the cluster has switched the second protocol on."""
    speaks = connection.version_of(ApiKey.PRODUCE) > _LAST_PRODUCE
    return 2 if speaks and connection.features.get(_FEATURE, 0) >= 2 else 1


def end_request(prepared: Prepared, committed: bool) -> messages.EndTxnRequest:
    return messages.EndTxnRequest(
        transactional_id=prepared.transactional_id,
        producer_id=prepared.producer_id,
        producer_epoch=prepared.producer_epoch,
        committed=committed,
    )


def newest_end(connection: Connection, protocol: int | None = None) -> int:
    """The newest version of EndTxn that fits the protocol."""
    return NEWEST if (protocol or protocol_of(connection)) == 2 else _LAST_END_TXN


def end_result(answer: messages.EndTxnResponse, prepared: Prepared, committed: bool) -> messages.EndTxnResponse:
    what = f"{'committing' if committed else 'aborting'} the transaction of {prepared.transactional_id}"
    if answer.error_code == ErrorCode.INVALID_TXN_STATE:
        other = "aborted" if committed else "committed"
        raise Fenced(
            f"{what}: it is not open, or was {other} before (INVALID_TXN_STATE)",
            ErrorCode.INVALID_TXN_STATE,
            "a transaction is aborted when it exceeds its timeout" if committed else None,
        )
    check(answer.error_code, what)
    return answer


def ended(connection: Connection, prepared: Prepared, committed: bool, protocol: int | None) -> messages.EndTxnResponse:
    answer = connection.call(ApiKey.END_TXN, end_request(prepared, committed), newest_end(connection, protocol))
    return end_result(answer, prepared, committed)
