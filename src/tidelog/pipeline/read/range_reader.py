"""What an executor does with a range of offsets: fetch it, decode it, hand out Arrow batches.

    fetch n+1 is under way  |  fetch n is decoded, batch by batch, and each is handed out when it is full

Memory is bounded by the fetch that is decoded, the one that the sockets hold and one Arrow batch, whatever the range;
of a compressed batch the unpacked records as well.

Rows are those with start <= offset < until that a consumer may see. Gaps that compaction, control records and aborted
transactions leave are passed. What should be there and is not is data loss: offsets that retention or somebody's
DeleteRecords took before they were read, a log that is shorter than it was when the range was planned, or a topic that
was deleted since. The caller is handed each loss as `LostOffsets`, and raises `DataLoss`, as is done where nothing else
is said, or takes note of it; then reading goes on with what exists.

Clients are kept between calls, since Python workers live longer than their tasks. One that was left in the middle of
an answer is not used again. For the same reason what a worker has imported is put out of the garbage collector's
sight: Spark collects after each task, and would look at all of PySpark, pandas and Arrow each time (some 60 ms).
"""

from __future__ import annotations

import contextlib
import gc
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidelog.client.client import Client
from tidelog.client.errors import ClientError, LogTruncated, NotFound, OffsetOutOfRange, TimedOut, Unreachable
from tidelog.client.reader import Chunk, Isolation, Span
from tidelog.pipeline.errors import DataLoss
from tidelog.pipeline.offset_ranges import OffsetRange
from tidelog.pipeline.read.arrow import COLUMNS, MAX_BYTES, MAX_ROWS, ArrowDecoder
from tidelog.wire.errors import ErrorCode

if TYPE_CHECKING:
    import pyarrow as pa

FETCH_BYTES: Final = 4 * 1024 * 1024
#: how often in a row a broker says that nothing follows before a gap at the end of the range is believed
EMPTY_ANSWERS: Final = 2
#: how often in a row, and how long apart, brokers say that there is no such partition before that is believed: one that
#: has just started may not know better yet
MISSING_ANSWERS: Final = 3
MISSING_PAUSE_S: Final = 0.5
KEPT_CLIENTS: Final = 4
LOSS_HINT: Final = (
    "read from an offset that the partition still holds, "
    "or set failOnDataLoss (fail_on_data_loss) to false to go on with what exists"
)

#: a batch of the log that is not as it must be; Kafka's clients ask for it again, and it stays as it is
DAMAGED: Final = (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD)

#: set by Spark in the Python workers that it uses for one task after the other
_REUSED_WORKER: Final = "SPARK_REUSE_WORKER"

#: clients that nobody uses at the moment, by process: one that was forked must not share its parent's connections
_idle: dict[tuple[object, ...], list[Client]] = {}


class LostOffsets(NamedTuple):
    """Offsets of a partition, start <= offset < until, that cannot be read any more."""

    topic: str
    partition: int
    start: int
    until: int
    why: str
    #: whether the partition begins later than it did, and nothing else is wrong with it
    is_beginning: bool = False

    def __str__(self) -> str:
        lost = f"offsets {self.start} to {self.until - 1} are lost"
        if self.until - self.start == 1:
            lost = f"offset {self.start} is lost"
        return f"{self.topic}-{self.partition}: {lost}: {self.why}"


OnLoss = Callable[[LostOffsets], None]


def refuse(loss: LostOffsets) -> None:
    raise DataLoss(str(loss), LOSS_HINT)


def may_pass(error: ClientError) -> bool:
    """Whether the same question may have another answer later."""
    return isinstance(error, (Unreachable, TimedOut)) or (error.retriable and error.code not in DAMAGED)


def read_range(
    bootstrap: str,
    offsets: OffsetRange,
    columns: Sequence[str] = COLUMNS,
    *,
    isolation: Isolation = "read_committed",
    client_options: Mapping[str, Any] | None = None,
    on_loss: OnLoss = refuse,
    max_rows: int = MAX_ROWS,
    max_bytes: int = MAX_BYTES,
    fetch_bytes: int = FETCH_BYTES,
) -> Iterator[pa.RecordBatch]:
    """The records of `offsets` as Arrow batches with `columns`, in order."""
    decoder = ArrowDecoder(columns, max_rows=max_rows, max_bytes=max_bytes)
    if offsets.start >= offsets.until:
        return
    with borrowed_client(bootstrap, client_options or {}) as client:
        reading = _Reading(client, offsets, isolation, fetch_bytes, on_loss)
        for chunk in reading.chunks():
            yield from decoder.decode(chunk)
    _settle()


_settled = False


def _settle() -> None:
    """At the end of the first range: by then all is imported that others will need."""
    global _settled
    if not _settled and _REUSED_WORKER in os.environ:
        gc.freeze()
    _settled = True


@contextlib.contextmanager
def borrowed_client(bootstrap: str, options: Mapping[str, Any]) -> Iterator[Client]:
    key = (os.getpid(), bootstrap, *sorted(options.items()))
    idle = _idle.setdefault(key, [])
    try:
        client = idle.pop()
    except IndexError:
        # A worker may begin while a broker restarts: how long that may take is what the timeout says.
        client = Client(bootstrap, **options, wait_for_first=True)
    else:
        # What it knew may be long ago: a topic may have been deleted and created again since.
        client.cluster.forget()
    try:
        yield client
    except BaseException:
        client.close()
        raise
    if len(idle) < KEPT_CLIENTS:
        idle.append(client)
    else:
        client.close()


class _Reading:
    """The chunks of one range, with what to do where something is not there."""

    __slots__ = (
        "_client",
        "_empty_answers",
        "_fetch_bytes",
        "_isolation",
        "_offsets",
        "_on_loss",
        "_waiting_since",
    )

    def __init__(
        self,
        client: Client,
        offsets: OffsetRange,
        isolation: Isolation,
        fetch_bytes: int,
        on_loss: OnLoss,
    ) -> None:
        self._client = client
        self._offsets = offsets
        self._isolation: Isolation = isolation
        self._fetch_bytes = fetch_bytes
        self._on_loss = on_loss
        self._empty_answers = 0
        self._waiting_since: float | None = None

    def chunks(self) -> Iterator[Chunk]:
        position = self._offsets.start
        missing_answers = 0
        while position < self._offsets.until:
            span = Span(self._offsets.topic, self._offsets.partition, position, self._offsets.until)
            reader = self._client.reader(
                [span], isolation=self._isolation, max_bytes=self._fetch_bytes, partition_max_bytes=self._fetch_bytes
            )
            try:
                for chunk in reader.chunks():
                    missing_answers = 0
                    if chunk.fetched.records:
                        self._empty_answers = 0
                        self._waiting_since = None
                        yield chunk
                    elif self._is_over(chunk):
                        return
                return
            except OffsetOutOfRange as error:
                position = self._after_gap(span, error)
            except LogTruncated as error:
                self._lose(error.end_offset, span.position, "they were read before its log was truncated")
                position = span.position
            except NotFound:
                position = span.position
                missing_answers += 1
                if missing_answers >= MISSING_ANSWERS:
                    self._lose(position, self._offsets.until, "the topic was deleted, or has no such partition")
                    return
                time.sleep(MISSING_PAUSE_S)

    def _after_gap(self, span: Span, error: OffsetOutOfRange) -> int:
        """Where to go on when the broker does not have the position."""
        until = self._offsets.until
        if error.first > span.position:
            why = f"it now begins at offset {error.first} (retention or DeleteRecords took what was before)"
            self._lose(span.position, min(error.first, until), why, is_beginning=True)
            return error.first
        self._lose(span.position, until, f"it now ends at offset {error.end}, as if it was truncated")
        return until

    def _is_over(self, chunk: Chunk) -> bool:
        """Nothing came: whether nothing will, up to the end of the range."""
        position, until = chunk.start, self._offsets.until
        fetched = chunk.fetched
        stable = fetched.last_stable_offset if self._isolation == "read_committed" else fetched.high_watermark
        if stable >= until:
            # All that was left there was removed by compaction.
            self._empty_answers += 1
            return self._empty_answers >= EMPTY_ANSWERS
        now = time.monotonic()
        if self._waiting_since is None:
            self._waiting_since = now
        if now - self._waiting_since < self._client.cluster.timeout_s:
            return False
        if fetched.high_watermark >= until:
            raise TimedOut(
                f"{self._offsets.topic}-{self._offsets.partition}: offsets {position} to {until - 1} belong to a "
                f"transaction that is still open after {self._client.cluster.timeout_s:g} s",
                hint="wait for its end, abort it (tidelog transaction), or read uncommitted records",
            )
        self._lose(position, until, f"it now ends at offset {fetched.high_watermark}, as if it was truncated")
        return True

    def _lose(self, start: int, until: int, why: str, is_beginning: bool = False) -> None:
        self._on_loss(LostOffsets(self._offsets.topic, self._offsets.partition, start, until, why, is_beginning))
