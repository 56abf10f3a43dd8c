"""Writing records: batches per partition, sent to their leaders and retried until acknowledged, never written twice.

    send -> open batch of its partition -> full -> queue of the partition -> flush: a round of one batch a partition

A round is one Produce request per leader; requests to several leaders are in flight together. A batch keeps its
producer ID, epoch and first sequence number however often it is sent, so that a broker that already has it says so
instead of writing it again. Only one batch per partition is in flight at a time, which also preserves order.

If the brokers refuse a sequence (OUT_OF_ORDER_SEQUENCE_NUMBER, UNKNOWN_PRODUCER_ID …), they no longer know this
producer. A batch that was never sent before is then sent under a new producer ID. A batch that was sent and whose
outcome is unknown is not, because that could write it twice; `InDoubt` is raised instead. A failure drops everything
that is queued; what was acknowledged before is in `delivered`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.client.cluster import NO_LEADER, NO_TOPIC_ID, Cluster, Patience, TopicInfo, no_such_partition
from tidelog.client.connection import NEWEST, Connection, Sent
from tidelog.client.errors import ClientError, InDoubt, Refused, Unreachable, check, error_for
from tidelog.client.partitioner import Partitioner, Spread
from tidelog.wire import messages
from tidelog.wire.apis import ApiKey
from tidelog.wire.batch import (
    MAGIC,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    Buffer,
    advance_sequence,
    pack_batch,
)
from tidelog.wire.compression import CODEC_NAMES
from tidelog.wire.errors import ErrorCode, untraced
from tidelog.wire.partitions import TopicPartition
from tidelog.wire.records import Headers, NewRecord, build_batch, read_records

if TYPE_CHECKING:
    Result = messages.ProduceResponse.PartitionProduceResponse

ACKS: Final = {"0": 0, "1": 1, "all": -1, "-1": -1}
#: a broker takes 1048588 bytes by default; what a batch adds to its records is small
MAX_BATCH_BYTES: Final = 512 * 1024
MAX_QUEUED_BYTES: Final = 4 * 1024 * 1024
RECORD_OVERHEAD_BYTES: Final = 12
LAST_VERSION_WITH_NAMES: Final = 12
NO_OFFSET: Final = -1

_FORGOTTEN: Final = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)
#: the batch may have been written
_DOUBTFUL: Final = frozenset({ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND})
_TOO_LARGE: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})


class Message(NamedTuple):
    """A record to be written; the time is now where none is given."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers | None = None
    timestamp_ms: int | None = None


class Delivered(NamedTuple):
    """Records that were acknowledged: they are `base_offset`, `base_offset` + 1, …; -1 where nobody knows (acks=0)."""

    topic: str
    partition: int
    base_offset: int
    record_count: int


class Encoded(NamedTuple):
    """Records that are encoded and compressed already: they lack but the header, which the producer gives them."""

    payload: Buffer
    codec: int
    record_count: int
    base_timestamp: int
    max_timestamp: int

    def packed(self, producer_id: int, producer_epoch: int, base_sequence: int, transactional: bool) -> bytearray:
        header = BatchHeader(
            0,
            0,
            NO_LEADER_EPOCH,
            MAGIC,
            0,
            self.codec | TRANSACTIONAL_FLAG if transactional else self.codec,
            self.record_count - 1,
            self.base_timestamp,
            self.max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            self.record_count,
        )
        return pack_batch(header, self.payload)


class Batch:
    __slots__ = ("base_sequence", "doubtful", "encoded", "packed", "producer", "records", "size_bytes", "where")

    def __init__(self, where: TopicPartition, encoded: Encoded | None = None) -> None:
        self.where = where
        #: what it is made of, unless it came encoded
        self.records: list[NewRecord] = []
        self.encoded = encoded
        self.size_bytes = 0 if encoded is None else len(encoded.payload)
        #: (producer id, epoch) once it was given its sequence
        self.producer: tuple[int, int] | None = None
        self.base_sequence = NO_SEQUENCE
        self.packed: bytearray | None = None
        #: sent before, with an outcome that nobody knows
        self.doubtful = False

    @property
    def record_count(self) -> int:
        return len(self.records) if self.encoded is None else self.encoded.record_count

    def unpacked(self) -> list[NewRecord]:
        """The records, also where they came encoded."""
        if self.encoded is None:
            return self.records
        packed = self.encoded.packed(NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE, False)
        return [(record.timestamp, record.key, record.value, record.headers) for record in read_records(packed)]


class Producer:
    """`acks` is "all", "1" or "0"; only "all" can be idempotent."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        acks: str | int = "all",
        compression: str = "none",
        idempotent: bool = True,
        spread: Spread = "sticky",
        max_batch_bytes: int = MAX_BATCH_BYTES,
        auto_create: bool = True,
    ) -> None:
        if str(acks) not in ACKS:
            raise Refused(f"acks cannot be {acks}", hint="use all, 1 or 0")
        if compression not in CODEC_NAMES:
            raise Refused(f"there is no compression {compression}", hint=f"one of {', '.join(CODEC_NAMES)}")
        self._cluster = cluster
        self._acks = ACKS[str(acks)]
        self._codec = CODEC_NAMES.index(compression)
        self._idempotent = idempotent and self._acks == ACKS["all"]
        self._spread: Spread = spread
        self._max_batch_bytes = max_batch_bytes
        self._auto_create = auto_create
        self._partitioners: dict[str, Partitioner] = {}
        self._available: dict[str, tuple[TopicInfo, list[int]]] = {}
        self._open: dict[tuple[str, int], Batch] = {}
        self._queues: dict[TopicPartition, deque[Batch]] = {}
        self._queued_bytes = 0
        self._transactional_id: str | None = None
        self._produce_at_most = NEWEST
        self._producer: tuple[int, int] | None = None
        self._sequences: dict[TopicPartition, int] = {}
        #: runs of offsets; one that goes on where the last of its partition ended is part of that one
        self.delivered: list[Delivered] = []
        self._last_run: dict[TopicPartition, int] = {}

    # --- taking records -----------------------------------------------------------------------------

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        headers: Headers | None = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> None:
        """Takes a record; it is on its way when there is enough for a batch, and for sure after `flush`."""
        size = RECORD_OVERHEAD_BYTES + len(value or b"") + len(key or b"")
        for name, content in headers or ():
            size += len(name) + len(content or b"") + 2
        info, available = self.topic(topic)
        if partition is None:
            partitioner = self._partitioners.get(topic)
            if partitioner is None:
                partitioner = self._partitioners[topic] = Partitioner(self._spread)
            partition = partitioner.choose(key, size, len(info.partitions), available)
        elif partition not in info.partitions:
            raise no_such_partition(info, partition)
        where = (topic, partition)
        batch = self._open.get(where)
        if batch is not None and batch.size_bytes + size > self._max_batch_bytes:
            self._close(batch)
            batch = None
        if batch is None:
            batch = self._open[where] = Batch(TopicPartition(topic, partition))
        stamp = int(time.time() * 1000) if timestamp_ms is None else timestamp_ms
        batch.records.append((stamp, key, value, headers))
        batch.size_bytes += size
        self._queued_bytes += size
        if self._queued_bytes >= MAX_QUEUED_BYTES:
            self.flush()

    def send_encoded(self, topic: str, partition: int, encoded: Encoded) -> None:
        """Takes a batch that is encoded already, as one piece, after what was sent to the partition before."""
        where = TopicPartition(topic, partition)
        before = self._open.get(where)
        if before is not None:
            self._close(before)
        self._queues.setdefault(where, deque()).append(Batch(where, encoded))
        self._queued_bytes += len(encoded.payload)
        if self._queued_bytes >= MAX_QUEUED_BYTES:
            self.flush()

    def topic(self, name: str) -> tuple[TopicInfo, list[int]]:
        """A topic as it is known until the next flush, and its partitions that have a leader."""
        found = self._available.get(name)
        if found is None:
            info = self._cluster.known_topic(name, self._auto_create)
            found = info, [p.partition for p in info.partitions.values() if p.leader != NO_LEADER]
            self._available[name] = found
        return found

    def _close(self, batch: Batch) -> None:
        del self._open[batch.where]
        self._queues.setdefault(batch.where, deque()).append(batch)

    # --- sending ------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Returns when everything taken so far is acknowledged; raises where it cannot be."""
        for batch in list(self._open.values()):
            self._close(batch)
        try:
            while self._queues:
                self._round()
        except BaseException:
            self._drop()
            raise
        self._queued_bytes = 0
        self._available = {}

    def _drop(self) -> None:
        """Forgets what is queued, and the producer id with it: its sequence may have a hole now."""
        self._queues = {}
        self._open = {}
        self._queued_bytes = 0
        self._available = {}
        self._new_producer()

    def _new_producer(self) -> None:
        self._producer = None
        self._sequences = {}

    def _round(self) -> None:
        """Has the first batch of every partition acknowledged."""
        pending = [queue[0] for queue in self._queues.values()]
        patience = Patience(self._cluster.timeout_s)
        while pending:
            failure: ClientError | None = None
            try:
                pending, failure = self._attempt(pending)
            except ClientError as error:
                failure = untraced(error)
            if failure is None:
                continue
            try:
                if not self._cluster.passes(failure, topic_may_appear=True):
                    raise self._explained(failure, pending)
                try:
                    patience.pause(failure)
                except ClientError as error:
                    raise self._explained(error, pending) from failure
            finally:
                del failure  # or it would hold this frame with all its batches, and this frame it
            self._cluster.forget()

    def _explained(self, failure: ClientError, pending: list[Batch]) -> ClientError:
        doubtful = sum(batch.record_count for batch in pending if batch.doubtful)
        if not doubtful or isinstance(failure, InDoubt):
            return failure
        return InDoubt(f"{failure}; {doubtful} records may or may not have been written", failure.code, failure.hint)

    def _attempt(self, pending: list[Batch]) -> tuple[list[Batch], ClientError | None]:
        """Sends the batches once: those that are still to be acknowledged, and why."""
        self._announce(pending)
        by_leader: dict[Connection, list[tuple[Batch, bytes]]] = {}
        for batch in pending:
            connection, info, _ = self._cluster.leader(*batch.where)
            self._pack(batch)
            by_leader.setdefault(connection, []).append((batch, info.topic_id))
        asked: list[tuple[Connection, Sent[messages.ProduceResponse] | None, list[tuple[Batch, bytes]]]] = []
        left: list[Batch] = []
        failure: ClientError | None = None
        for connection, batches in by_leader.items():
            try:
                asked.append((connection, self._send(connection, batches), batches))
            except Unreachable as error:
                failure = untraced(error)
                left += self._in_doubt(batches)
        for connection, sent, batches in asked:
            try:
                answer = None if sent is None else connection.receive(sent)
            except Unreachable as error:
                failure = untraced(error)
                left += self._in_doubt(batches)
                continue
            for batch, result in self._results(batches, answer):
                trouble = self._settle(batch, result)
                if trouble is not None:
                    left.append(batch)
                    # What does not pass is the one to tell of.
                    if failure is None or self._cluster.passes(failure, topic_may_appear=True):
                        failure = trouble
        return left, failure

    def _announce(self, pending: list[Batch]) -> None:
        """Room for what must be said before the batches go out."""

    def _in_doubt(self, batches: list[tuple[Batch, bytes]]) -> list[Batch]:
        for batch, _ in batches:
            batch.doubtful = True
        return [batch for batch, _ in batches]

    def _pack(self, batch: Batch) -> None:
        if batch.packed is not None:
            return
        producer_id, epoch = NO_PRODUCER_ID, NO_PRODUCER_EPOCH
        if self._idempotent:
            if self._producer is None:
                self._producer = self._init_producer_id()
            batch.producer = producer_id, epoch = self._producer
            batch.base_sequence = self._sequences.get(batch.where, 0)
        transactional = self._transactional_id is not None
        if batch.encoded is not None:
            batch.packed = batch.encoded.packed(producer_id, epoch, batch.base_sequence, transactional)
            return
        batch.packed = build_batch(
            batch.records,
            codec=self._codec,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=batch.base_sequence,
            transactional=transactional,
        )

    def _init_producer_id(self) -> tuple[int, int]:
        request = messages.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2**31 - 1)
        answer = self._cluster.any_broker().call(ApiKey.INIT_PRODUCER_ID, request)
        check(answer.error_code, "a producer id")
        return answer.producer_id, answer.producer_epoch

    def _send(
        self, connection: Connection, batches: list[tuple[Batch, bytes]]
    ) -> Sent[messages.ProduceResponse] | None:
        request = messages.ProduceRequest
        topics: dict[str, messages.ProduceRequest.TopicProduceData] = {}
        for batch, topic_id in batches:
            topic, partition = batch.where
            if topic not in topics:
                topics[topic] = request.TopicProduceData(name=topic, topic_id=topic_id, partition_data=[])
            data = request.PartitionProduceData(index=partition, records=batch.packed)
            topics[topic].partition_data.append(data)
        # Less than we wait ourselves, so that the broker's own word on it arrives.
        timeout_ms = int(self._cluster.request_timeout_s * 800)
        message = request(
            transactional_id=self._transactional_id,
            acks=self._acks,
            timeout_ms=timeout_ms,
            topic_data=list(topics.values()),
        )
        by_name = any(topic.topic_id == NO_TOPIC_ID for topic in topics.values())
        at_most = min(LAST_VERSION_WITH_NAMES, self._produce_at_most) if by_name else self._produce_at_most
        if self._acks == 0:
            connection.send_only(ApiKey.PRODUCE, message, at_most)
            return None
        return connection.send(ApiKey.PRODUCE, message, at_most)

    def _results(
        self, batches: list[tuple[Batch, bytes]], answer: messages.ProduceResponse | None
    ) -> Iterable[tuple[Batch, Result | None]]:
        found: dict[tuple[object, int], Result] = {}
        for topic in answer.responses if answer is not None else ():
            for partition in topic.partition_responses:
                found[topic.name or topic.topic_id, partition.index] = partition
        for batch, topic_id in batches:
            topic_name, index = batch.where
            yield batch, found.get((topic_name, index)) or found.get((topic_id, index))

    # --- what came of it ----------------------------------------------------------------------------

    def _settle(self, batch: Batch, result: Result | None) -> ClientError | None:
        """Books what a leader said of a batch; the error, where it is not acknowledged."""
        if result is None:
            if self._acks == 0:
                self._acknowledged(batch, NO_OFFSET)
                return None
            batch.doubtful = True
            return ClientError(f"the leader of {_name(batch)} did not report the result of a batch")
        code = result.error_code
        if code in (0, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            self._acknowledged(batch, result.base_offset)
            return None
        if code in _TOO_LARGE and batch.record_count > 1:
            self._split(batch)
            return None
        if code in _FORGOTTEN and self._idempotent:
            return self._forgotten(batch, code)
        batch.doubtful |= code in _DOUBTFUL
        reasons = [error.batch_index_error_message for error in result.record_errors if error.batch_index_error_message]
        detail = result.error_message or (reasons[0] if reasons else None)
        return error_for(code, f"writing to {_name(batch)}", detail)

    def _forgotten(self, batch: Batch, code: int) -> ClientError:
        """What the brokers' having forgotten this producer means for a batch."""
        if not batch.doubtful:
            # Of this partition nothing is in doubt, and other partitions of the round keep what they were packed with.
            self._new_producer()
            batch.packed = None
            return ClientError(
                f"{_name(batch)}: the broker no longer knows the producer ID", ErrorCode.NETWORK_EXCEPTION
            )
        return InDoubt(
            f"{_name(batch)}: {batch.record_count} records may or may not have been written "
            f"({ErrorCode.of(code).name})",
            code,
            "read the end of the partition before you send them again",
        )

    def _acknowledged(self, batch: Batch, offset: int) -> None:
        queue = self._queues[batch.where]
        queue.popleft()
        if not queue:
            del self._queues[batch.where]
        count = batch.record_count
        if batch.producer is not None and batch.producer == self._producer:
            self._sequences[batch.where] = advance_sequence(batch.base_sequence, count)
        self._deliver(batch.where, offset, count)

    def _deliver(self, where: TopicPartition, offset: int, count: int) -> None:
        at = self._last_run.get(where)
        if at is not None:
            _, _, begun, so_far = self.delivered[at]
            if offset == (NO_OFFSET if begun == NO_OFFSET else begun + so_far):
                self.delivered[at] = Delivered(*where, begun, so_far + count)
                return
        self._last_run[where] = len(self.delivered)
        self.delivered.append(Delivered(*where, offset, count))

    def _split(self, batch: Batch) -> None:
        """The broker takes less than we thought: halves take the place of the batch, with its sequence numbers."""
        queue = self._queues[batch.where]
        queue.popleft()
        whole = batch.unpacked()
        middle = len(whole) // 2
        for records in (whole[middle:], whole[:middle]):
            half = Batch(batch.where)
            half.records = records
            half.size_bytes = batch.size_bytes // 2
            queue.appendleft(half)


def _name(batch: Batch) -> str:
    return f"{batch.where[0]}-{batch.where[1]}"
