"""Reading: fetches from the leaders of some partitions, continuously, while the caller processes the results.

    ask every leader -> collect -> move the positions on -> ask again -> hand out what was collected -> collect -> …

A `Span` is the part of one partition that is still to be read. Its position moves by whole batches, so that gaps left
by compaction, control batches and aborted records are skipped as well.

read_committed: the broker sends nothing beyond the last stable offset, and lists in each response the aborted
transactions in it. A producer's records are dropped from the first offset of its aborted transaction to the abort
marker.

When a leader changes, records that were already read may be gone from the log: before continuing, the client asks the
new leader where the epoch of the last batch ends (OffsetForLeaderEpoch). If that is before the position, the log was
truncated, and `LogTruncated` says from where on. A topic that was deleted and recreated is an error and is never read
as if it were the old one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Final, Literal, NamedTuple

from tidelog.client.cluster import NO_TOPIC_ID, Cluster, Patience
from tidelog.client.connection import NEWEST, Connection, Sent
from tidelog.client.errors import ClientError, LogTruncated, OffsetOutOfRange, Recreated, check, error_for
from tidelog.client.offsets import EARLIEST, LATEST, list_offsets
from tidelog.wire import messages
from tidelog.wire.apis import ApiKey
from tidelog.wire.batch import (
    HEADER_SIZE,
    LENGTH_AT,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_AT,
    BatchHeader,
    InvalidBatch,
    crc_matches,
    iter_headers,
    next_header,
    read_header,
)
from tidelog.wire.errors import ErrorCode, untraced
from tidelog.wire.records import ABORT, Record, RecordIndex, read_end_txn_marker

Isolation = Literal["read_uncommitted", "read_committed"]
ISOLATION_LEVELS: Final = {"read_uncommitted": 0, "read_committed": 1}

MAX_BYTES: Final = 16 * 1024 * 1024
PARTITION_MAX_BYTES: Final = 4 * 1024 * 1024
MAX_WAIT_MS: Final = 500
LAST_VERSION_WITH_NAMES: Final = 12
NO_EPOCH: Final = -1
_LENGTH: Final = struct.Struct(">i")

#: said by a broker that does not lead the partition, or not yet; the metadata knows whether the topic exists
_NOT_HERE: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})


class Fetched(NamedTuple):
    """What a leader answered for one partition. `records` are whole batches; the first may begin before the offset."""

    records: memoryview
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    #: (producer id, first offset) of the aborted transactions that touch `records`; only with read_committed
    aborted_transactions: list[tuple[int, int]]


class Span:
    """From `position` up to `until` (exclusive; None for no end) of one partition."""

    __slots__ = ("epoch", "leader_epoch", "partition", "position", "topic", "topic_id", "until")

    def __init__(self, topic: str, partition: int, position: int, until: int | None = None) -> None:
        self.topic = topic
        self.partition = partition
        self.position = position
        self.until = until
        self.topic_id: bytes | None = None
        #: of the last batch that was read
        self.epoch = NO_EPOCH
        #: of the leader that was asked last
        self.leader_epoch = NO_EPOCH

    @property
    def finished(self) -> bool:
        return self.until is not None and self.position >= self.until

    def __repr__(self) -> str:
        return f"{self.topic}-{self.partition} at {self.position} until {self.until}"


class Chunk(NamedTuple):
    """Batches of a span, from `start` on; none, where nothing had come in `max_wait_ms`."""

    span: Span
    start: int
    fetched: Fetched


class Reader:
    def __init__(
        self,
        cluster: Cluster,
        spans: list[Span],
        *,
        isolation: Isolation = "read_uncommitted",
        max_bytes: int = MAX_BYTES,
        partition_max_bytes: int = PARTITION_MAX_BYTES,
        max_wait_ms: int = MAX_WAIT_MS,
        min_bytes: int = 1,
    ) -> None:
        self._cluster = cluster
        self._spans = spans
        self._isolation: Isolation = isolation
        self._max_bytes = max_bytes
        self._partition_max_bytes = partition_max_bytes
        # The answer must come before we stop waiting for it.
        self._max_wait_ms = min(max_wait_ms, int(cluster.request_timeout_s * 500))
        self._min_bytes = min_bytes

    def records(self) -> Iterator[tuple[Span, Record]]:
        """Every record of the spans, in order per partition."""
        for chunk in self.chunks():
            for record in chunk_records(chunk):
                yield chunk.span, record

    def chunks(self) -> Iterator[Chunk]:
        """What the leaders answer, as it comes. Ends when every span is read to its end."""
        asked: list[tuple[Connection, Sent[messages.FetchResponse], list[Span]]] = []
        patience = Patience(self._cluster.timeout_s)
        while unfinished := [span for span in self._spans if not span.finished]:
            try:
                asked = asked or self._ask(unfinished)
                chunks, failure = self._collect(asked)
            except ClientError as error:
                chunks, failure = [], untraced(error)
            asked = []
            if failure is not None:
                try:
                    if not self._cluster.passes(failure):
                        raise failure
                    patience.pause(failure)
                except ClientError:
                    # The positions are past what came: whoever goes on from them must have had it.
                    yield from chunks
                    del failure  # or it would hold this frame, and this frame it
                    raise
                self._cluster.forget()
            # The next answer is on its way while the caller works on this one.
            more = failure is None and any(chunk.fetched.records for chunk in chunks)
            if more and (unfinished := [span for span in self._spans if not span.finished]):
                try:
                    asked = self._ask(unfinished)
                except ClientError as error:
                    if not self._cluster.passes(error):
                        yield from chunks
                        raise
            yield from chunks
            if failure is None:
                # Only now: what the caller took for its work is not time that a broker was away.
                patience = Patience(self._cluster.timeout_s)

    def once(self) -> list[Chunk]:
        """One answer of every leader, tried again only where it is an error."""

        def attempt() -> list[Chunk]:
            chunks, failure = self._collect(self._ask(self._spans))
            if failure is not None:
                for chunk in chunks:
                    chunk.span.position = chunk.start
                try:
                    raise failure
                finally:
                    del failure  # or it would hold this frame, and this frame it
            return chunks

        return self._cluster.retrying(attempt)

    # --- asking -------------------------------------------------------------------------------------

    def _ask(self, spans: list[Span]) -> list[tuple[Connection, Sent[messages.FetchResponse], list[Span]]]:
        by_leader: dict[Connection, list[Span]] = {}
        for span in spans:
            connection, info, partition = self._cluster.leader(span.topic, span.partition)
            if span.topic_id is None:
                span.topic_id = info.topic_id
            elif span.topic_id != info.topic_id:
                raise Recreated(
                    f"topic {span.topic} was deleted and created again while it was being read",
                    hint="read it again from the start",
                )
            if partition.leader_epoch > span.leader_epoch:
                if span.leader_epoch != NO_EPOCH:
                    self._validate(span, connection, partition.leader_epoch)
                span.leader_epoch = partition.leader_epoch
            by_leader.setdefault(connection, []).append(span)
        # Who was first had the most room in the answer: each partition has its turn.
        self._spans.append(self._spans.pop(0))
        return [(connection, self._send(connection, group), group) for connection, group in by_leader.items()]

    def _send(self, connection: Connection, spans: list[Span]) -> Sent[messages.FetchResponse]:
        request = messages.FetchRequest
        topics: dict[str, messages.FetchRequest.FetchTopic] = {}
        for span in spans:
            if span.topic not in topics:
                topics[span.topic] = request.FetchTopic(
                    topic=span.topic, topic_id=span.topic_id or NO_TOPIC_ID, partitions=[]
                )
            topics[span.topic].partitions.append(
                request.FetchPartition(
                    partition=span.partition,
                    current_leader_epoch=span.leader_epoch,
                    fetch_offset=span.position,
                    partition_max_bytes=self._partition_max_bytes,
                )
            )
        message = request(
            max_wait_ms=self._max_wait_ms,
            min_bytes=self._min_bytes,
            max_bytes=self._max_bytes,
            isolation_level=ISOLATION_LEVELS[self._isolation],
            topics=list(topics.values()),
        )
        by_name = any(topic.topic_id == NO_TOPIC_ID for topic in topics.values())
        return connection.send(ApiKey.FETCH, message, LAST_VERSION_WITH_NAMES if by_name else NEWEST)

    def _validate(self, span: Span, connection: Connection, leader_epoch: int) -> None:
        """Whether a new leader still has what was read."""
        if span.epoch == NO_EPOCH:
            return
        request = messages.OffsetForLeaderEpochRequest
        partition = request.OffsetForLeaderPartition(
            partition=span.partition, current_leader_epoch=leader_epoch, leader_epoch=span.epoch
        )
        topic = request.OffsetForLeaderTopic(topic=span.topic, partitions=[partition])
        answer = connection.call(ApiKey.OFFSET_FOR_LEADER_EPOCH, request(replica_id=-1, topics=[topic]))
        found = answer.topics[0].partitions[0]
        what = f"{span.topic}-{span.partition}"
        check(found.error_code, f"{what}: where leader epoch {span.epoch} ends")
        if found.end_offset < span.position:
            raise LogTruncated(
                f"{what} was read up to offset {span.position}, but its new leader ends at offset {found.end_offset}",
                max(found.end_offset, 0),
            )

    # --- collecting ---------------------------------------------------------------------------------

    def _collect(
        self, asked: list[tuple[Connection, Sent[messages.FetchResponse], list[Span]]]
    ) -> tuple[list[Chunk], ClientError | None]:
        chunks: list[Chunk] = []
        failure: ClientError | None = None
        for connection, sent, spans in asked:
            try:
                answer = connection.receive(sent)
                check(answer.error_code, f"a fetch from {connection.address}")
            except ClientError as error:
                failure = self._graver(failure, error)
                continue
            by_key = {key: span for span in spans for key in ((span.topic, span.partition), _id_key(span))}
            for topic in answer.responses:
                for data in topic.partitions:
                    span = by_key[topic.topic or topic.topic_id, data.partition_index]
                    trouble = self._take(span, data, chunks)
                    if trouble is not None:
                        failure = self._graver(failure, trouble)
        return chunks, failure

    def _graver(self, before: ClientError | None, error: ClientError) -> ClientError:
        """What does not pass is said first."""
        return error if before is None or self._cluster.passes(before) else before

    def _take(self, span: Span, data: messages.FetchResponse.PartitionData, chunks: list[Chunk]) -> ClientError | None:
        """Moves the span past what came; the error, where something else came."""
        what = f"reading {span.topic}-{span.partition} at offset {span.position}"
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            return self._out_of_range(span)
        if data.error_code in _NOT_HERE:
            return error_for(ErrorCode.NOT_LEADER_OR_FOLLOWER, what)
        if data.error_code:
            return error_for(data.error_code, what)
        fetched = _fetched(data)
        start = span.position
        if not fetched.records:
            chunks.append(Chunk(span, start, fetched))
            return None
        try:
            last = _last_header(fetched.records)
        except InvalidBatch as error:
            return ClientError(f"{what}: a batch is damaged: {error.message}")
        if last is None:
            return ClientError(f"{what}: the broker sent {len(fetched.records)} bytes without a complete batch")
        chunks.append(Chunk(span, start, fetched))
        span.position = max(start, last.next_offset)
        span.epoch = last.leader_epoch
        return None

    def _out_of_range(self, span: Span) -> ClientError:
        try:
            ends = [
                list_offsets(self._cluster, span.topic, [span.partition], at, self._isolation)[span.partition].offset
                for at in (EARLIEST, LATEST)
            ]
        except ClientError as error:
            return error
        return OffsetOutOfRange(
            f"{span.topic}-{span.partition} does not hold offset {span.position}: it holds {ends[0]} to {ends[1] - 1}"
            if ends[0] < ends[1]
            else f"{span.topic}-{span.partition} does not hold offset {span.position}: it is empty at offset {ends[1]}",
            span.topic,
            span.partition,
            *ends,
        )


def _last_header(records: memoryview) -> BatchHeader | None:
    """The header of the last whole batch; those before it are only hopped over."""
    last = None
    pos = 0
    end = len(records)
    while end - pos >= HEADER_SIZE:
        (length,) = _LENGTH.unpack_from(records, pos + LENGTH_AT)
        following = pos + LOG_OVERHEAD + length
        if records[pos + MAGIC_AT] != MAGIC or length < HEADER_SIZE - LOG_OVERHEAD or following > end:
            break
        last = pos
        pos = following
    # What follows may be cut short; anything else that is not a batch is an error.
    next_header(records, pos, end)
    return None if last is None else read_header(records, last)


def _id_key(span: Span) -> tuple[object, int]:
    return span.topic_id, span.partition


def _fetched(data: messages.FetchResponse.PartitionData) -> Fetched:
    return Fetched(
        memoryview(data.records or b""),
        data.high_watermark,
        data.last_stable_offset,
        data.log_start_offset,
        [(aborted.producer_id, aborted.first_offset) for aborted in data.aborted_transactions or ()],
    )


# --- what is inside ---------------------------------------------------------------------------------


def chunk_records(chunk: Chunk) -> Iterator[Record]:
    """The records of a chunk that a consumer may see: from its start to the end of its span, as isolation has it."""
    span = chunk.span
    return visible_records(chunk.fetched, chunk.start, span.until, f"{span.topic}-{span.partition}")


def visible_records(
    fetched: Fetched, start: int, until: int | None, name: str, check_crcs: bool = True
) -> Iterator[Record]:
    """The records from `start` up to `until`, without control records and those of aborted transactions."""
    view = fetched.records
    aborted = AbortedTransactions(fetched.aborted_transactions)
    for pos, header in iter_headers(view):
        batch = view[pos : pos + header.size_bytes]
        try:
            if check_crcs and not crc_matches(view, pos, header):
                raise InvalidBatch(ErrorCode.CORRUPT_MESSAGE, "its checksum does not match")
            if aborted.hides(header, batch) or header.next_offset <= start:
                continue
            if until is not None and header.base_offset >= until:
                return
            records = RecordIndex(batch).records()
        except InvalidBatch as error:
            raise damaged(name, header, error) from error
        if header.base_offset >= start and (until is None or header.last_offset < until):
            yield from records
        else:
            for record in records:
                if record.offset >= start and (until is None or record.offset < until):
                    yield record


class AbortedTransactions:
    """Which batches of an answer a consumer must not see; it is told of each batch in order."""

    __slots__ = ("_aborting", "_coming")

    def __init__(self, transactions: Iterable[tuple[int, int]]) -> None:
        #: (producer id, first offset), the first one last
        self._coming = sorted(transactions, key=lambda transaction: transaction[1], reverse=True)
        self._aborting: set[int] = set()

    def hides(self, header: BatchHeader, batch: memoryview) -> bool:
        """Whether it is a control batch or belongs to an aborted transaction."""
        coming, aborting = self._coming, self._aborting
        while coming and coming[-1][1] <= header.last_offset:
            aborting.add(coming.pop()[0])
        if header.is_control:
            if header.producer_id in aborting and _is_abort(batch):
                aborting.discard(header.producer_id)
            return True
        return header.is_transactional and header.producer_id in aborting


def damaged(name: str, header: BatchHeader, error: InvalidBatch) -> ClientError:
    """The error for a batch of partition `name` that cannot be read."""
    return ClientError(
        f"the batch at offset {header.base_offset} of {name} is damaged: {error}",
        error.code,
        f"skip it and continue from offset {header.next_offset}",
    )


def _is_abort(batch: memoryview) -> bool:
    marker = read_end_txn_marker(batch)
    return marker is not None and marker.type == ABORT
