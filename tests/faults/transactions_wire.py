"""Transactional requests by hand, over one socket each, so that answers can be lost and requests be sent again.

A `Line` is a client's way to the broker: it opens a connection when it needs one, and loses it when told to. What a
request means is not looked at here: `ask` gives back the decoded answer, or None where it was lost on purpose.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

from tidelog.client import Client
from tidelog.client.cluster import GROUP, TRANSACTION
from tidelog.client.connection import NEWEST, Connection
from tidelog.client.errors import Unreachable
from tidelog.testing.broker import RunningBroker
from tidelog.txn.state import TransactionState
from tidelog.wire import messages
from tidelog.wire.apis import ApiKey
from tidelog.wire.batch import iter_headers
from tidelog.wire.errors import ErrorCode
from tidelog.wire.records import build_batch, read_records
from tidelog.wire.stored import decode_versioned, encode_versioned

T = TypeVar("T")
PATIENCE_S = 60.0
TOPIC = "t"


class Request(NamedTuple):
    """A request that can be sent any number of times: `make` builds it anew, since an encoder may keep buffers."""

    api_key: int
    at_most: int
    make: Callable[[], Any]


class Line:
    def __init__(self, broker: RunningBroker) -> None:
        self._broker = broker
        self._connection: Connection | None = None

    def _open(self) -> Connection:
        if self._connection is None or self._connection.closed:
            self._connection = Connection(self._broker.host, self._broker.port, "by-hand", PATIENCE_S)
        return self._connection

    def ask(self, request: Request) -> Any:
        """The answer; where the connection was broken, the request is sent again, as every client does."""
        for _ in range(3):
            try:
                return self._open().call(request.api_key, request.make(), request.at_most)
            except Unreachable as error:
                broken = error
        raise broken

    def send(self, request: Request) -> None:
        """Sends, and comes back before there is an answer; `lose` drops it, the next `ask` reads past it."""
        self._open().send(request.api_key, request.make(), request.at_most)

    def lose(self) -> None:
        """The connection breaks, and with it every answer that is on its way."""
        if self._connection is not None:
            self._connection.close()

    def ask_losing(self, request: Request, answers: int) -> Any:
        """Sends the same request until the answer number `answers` (from 0) is not lost."""
        for _ in range(answers):
            self.send(request)
            self.lose()
        return self.ask(request)


# --- requests ---------------------------------------------------------------------------------------


def init_producer_id(
    transactional_id: str | None, timeout_ms: int = 60_000, producer_id: int = -1, producer_epoch: int = -1
) -> Request:
    return Request(
        ApiKey.INIT_PRODUCER_ID,
        NEWEST if producer_id >= 0 else 5,
        lambda: messages.InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
        ),
    )


def produce(
    transactional_id: str | None,
    producer_id: int,
    producer_epoch: int,
    sequence: int,
    partition: int,
    values: Iterable[bytes],
    *,
    version: int = 12,
) -> Request:
    now_ms = int(time.time() * 1000)
    records = bytes(
        build_batch(
            [(now_ms, None, value, None) for value in values],
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=sequence,
            transactional=transactional_id is not None,
        )
    )
    of = messages.ProduceRequest
    return Request(
        ApiKey.PRODUCE,
        version,
        lambda: of(
            transactional_id=transactional_id,
            acks=-1,
            timeout_ms=30_000,
            topic_data=[
                of.TopicProduceData(
                    name=TOPIC, partition_data=[of.PartitionProduceData(index=partition, records=records)]
                )
            ],
        ),
    )


def produced(answer: Any) -> tuple[ErrorCode, int]:
    """Error and base offset of the one partition that was written to."""
    partition = answer.responses[0].partition_responses[0]
    return ErrorCode.of(partition.error_code), partition.base_offset


def add_partitions(transactional_id: str, producer_id: int, producer_epoch: int, partitions: list[int]) -> Request:
    of = messages.AddPartitionsToTxnRequest
    return Request(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        3,
        lambda: of(
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=producer_epoch,
            v3_and_below_topics=[of.AddPartitionsToTxnTopic(name=TOPIC, partitions=partitions)],
        ),
    )


def added(answer: Any) -> ErrorCode:
    return ErrorCode.of(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)


def add_offsets(transactional_id: str, producer_id: int, producer_epoch: int, group: str) -> Request:
    return Request(
        ApiKey.ADD_OFFSETS_TO_TXN,
        3,
        lambda: messages.AddOffsetsToTxnRequest(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            group_id=group,
        ),
    )


def txn_offset_commit(
    transactional_id: str, producer_id: int, producer_epoch: int, group: str, offset: int, *, version: int = 5
) -> Request:
    of = messages.TxnOffsetCommitRequest
    return Request(
        ApiKey.TXN_OFFSET_COMMIT,
        version,
        lambda: of(
            transactional_id=transactional_id,
            group_id=group,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            topics=[
                of.TxnOffsetCommitRequestTopic(
                    name=TOPIC,
                    partitions=[
                        of.TxnOffsetCommitRequestPartition(
                            partition_index=0, committed_offset=offset, committed_metadata=""
                        )
                    ],
                )
            ],
        ),
    )


def offset_committed(answer: Any) -> ErrorCode:
    return ErrorCode.of(answer.topics[0].partitions[0].error_code)


def end_txn(transactional_id: str, producer_id: int, producer_epoch: int, commit: bool, *, version: int = 5) -> Request:
    return Request(
        ApiKey.END_TXN,
        version,
        lambda: messages.EndTxnRequest(
            transactional_id=transactional_id, producer_id=producer_id, producer_epoch=producer_epoch, committed=commit
        ),
    )


def describe_transaction(transactional_id: str) -> Request:
    return Request(
        ApiKey.DESCRIBE_TRANSACTIONS,
        NEWEST,
        lambda: messages.DescribeTransactionsRequest(transactional_ids=[transactional_id]),
    )


def offset_commit(group: str, partitions: int, metadata: str) -> Request:
    of = messages.OffsetCommitRequest
    return Request(
        ApiKey.OFFSET_COMMIT,
        8,
        lambda: of(
            group_id=group,
            topics=[
                of.OffsetCommitRequestTopic(
                    name=TOPIC,
                    partitions=[
                        of.OffsetCommitRequestPartition(
                            partition_index=at, committed_offset=0, committed_metadata=metadata
                        )
                        for at in range(partitions)
                    ],
                )
            ],
        ),
    )


# --- a broker that is down --------------------------------------------------------------------------


def rewrite_epoch(broker: RunningBroker, transactional_id: str, epoch: int) -> bool:
    """As if the producer had come as far as this epoch: the last record of its state once more, with another epoch.

    False, and nothing is written, where its transaction is not over.
    """
    for path in broker.data_dir.glob("__transaction_state-*/00000000000000000000.log"):
        data = path.read_bytes()
        last, found = None, None
        for pos, header in iter_headers(data):
            last = header
            for record in read_records(data[pos : pos + header.size_bytes]):
                assert record.key is not None and record.value is not None
                if decode_versioned(messages.TransactionLogKey, record.key).transactional_id == transactional_id:
                    found = (record.key, decode_versioned(messages.TransactionLogValue, record.value))
        if last is None or found is None:
            continue
        key, value = found
        if not TransactionState(value.transaction_status).is_at_rest:
            return False
        value.producer_epoch = epoch
        record = (last.max_timestamp, key, encode_versioned(value, 1), None)
        path.write_bytes(data + build_batch([record], base_offset=last.next_offset, leader_epoch=last.leader_epoch))
        return True
    return False


# --- waiting ----------------------------------------------------------------------------------------

#: answers of a coordinator that will be ready soon
PASSING = frozenset(
    (
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NOT_ENOUGH_REPLICAS,
    )
)


def settled(ask: Callable[[], Any], code: Callable[[Any], int]) -> Any:
    """The first answer whose error is not one that passes by itself."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        answer = ask()
        if ErrorCode.of(code(answer)) not in PASSING:
            return answer
        assert time.monotonic() < deadline, f"still {ErrorCode.of(code(answer)).name}"
        time.sleep(0.01)


def prepare(client: Client, partitions: int) -> None:
    """A new topic, and the topics that the coordinators are made with when somebody first asks for one."""
    if TOPIC in client.describe().topics:
        client.admin.delete_topics([TOPIC])
    client.admin.create_topic(TOPIC, partitions)
    for kind in (GROUP, TRANSACTION):
        client.cluster.retrying(lambda kind=kind: client.cluster.coordinator("x", kind))  # type: ignore[misc]


def initialised(line: Line, request: Request) -> tuple[int, int]:
    """The producer id and epoch that a producer is given."""
    answer = settled(lambda: line.ask(request), lambda a: a.error_code)
    assert answer.error_code == 0, ErrorCode.of(answer.error_code).name
    return answer.producer_id, answer.producer_epoch


def eventually(holds: Callable[[], T], why: str) -> T:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            found = holds()
        except Unreachable:
            found = None  # type: ignore[assignment]
        if found:
            return found
        assert time.monotonic() < deadline, why
        time.sleep(0.02)
