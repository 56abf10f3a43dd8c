"""What an executor does: fetch ranges, decode them, write Parquet files, and tell the driver what was written.

    read_range -> [value decoder] -> rows        -> sink of the table (or of the staging directory)
                                  -> dead letters -> sink of the dead-letter table

`land` is a plain function of a task that can be pickled; Spark only carries it. It never commits anything: a task that
fails, is run twice or dies leaves files that nobody names. Memory is that of one fetch, one Arrow batch and what the
sinks buffer (`max_bytes_per_task`), whatever the range.

What trying the task again at once would not mend (records that are gone, a value to stop at, a full disk, a broker that
has not answered for as long as the client tries) is returned as a failure and not raised, so that the driver says it in
words and decides. Everything else is raised, and is Spark's to try again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tidelog.pipeline.errors import BadRecord, DataLoss, Passing, PipelineError
from tidelog.pipeline.offset_ranges import OffsetRange
from tidelog.pipeline.read.range_reader import DAMAGED, LostOffsets, OnLoss, may_pass, read_range, refuse
from tidelog.pipeline.table.parquet_files import ParquetSink, SinkSettings, WrittenFile

if TYPE_CHECKING:
    import pyarrow as pa

    from tidelog.client import ClientError
    from tidelog.client.reader import Isolation
    from tidelog.pipeline.values import ValueDecoder


@dataclass(frozen=True, slots=True, kw_only=True)
class LandingTask:
    number: int
    ranges: tuple[OffsetRange, ...]
    bootstrap: str
    isolation: Isolation
    fail_on_data_loss: bool
    decoder: ValueDecoder
    rows: SinkSettings
    dead: SinkSettings
    #: how long one task goes on asking a broker that does not answer
    timeout_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Landed:
    """What a task has written. With `failure` it is nothing, and the batch cannot be committed."""

    number: int
    ranges: tuple[OffsetRange, ...]
    files: tuple[WrittenFile, ...] = ()
    dead_files: tuple[WrittenFile, ...] = ()
    #: the decoder's fields and those that values had beside them; None where there were none
    wider: pa.Schema | None = None
    #: what was lost while it was read, and may be, as the file says
    losses: tuple[str, ...] = ()
    failure: PipelineError | None = None

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)


def land(task: LandingTask) -> Landed:
    from tidelog.client import ClientError
    from tidelog.client.errors import Recreated
    from tidelog.pipeline.values import DecodeStopped, join_schemas

    rows, dead = ParquetSink(task.rows), ParquetSink(task.dead)
    wider: list[pa.Schema] = []
    done = Landed(number=task.number, ranges=task.ranges)
    losses: list[LostOffsets] = []
    try:
        for records in _records(task, refuse if task.fail_on_data_loss else losses.append):
            decoded = task.decoder.decode(records)
            if decoded.rows.num_rows:
                rows.write(decoded.rows)
            if decoded.dead.num_rows:
                dead.write(decoded.dead)
            if decoded.wider is not None:
                wider.append(decoded.wider)
        return replace(
            done,
            files=tuple(rows.close()),
            dead_files=tuple(dead.close()),
            wider=join_schemas(wider) if wider else None,
            losses=tuple(map(str, losses)),
        )
    except DecodeStopped as error:
        failure: PipelineError = BadRecord(str(error), 'to keep such records as dead letters, write "dead_letter"')
    except Recreated as error:
        failure = DataLoss(str(error), error.hint)
    except ClientError as error:
        failure = Passing(str(error), error.hint) if may_pass(error) else _lasting(error)
    except PipelineError as error:
        failure = error
    finally:
        # Without effect where the sinks were closed.
        rows.abandon()
        dead.abandon()
    return replace(done, failure=failure)


def _lasting(error: ClientError) -> PipelineError:
    hint = error.hint
    if error.code in DAMAGED:
        hint = (
            f"{hint or 'go on after it'}: tidelog topic truncate deletes what lies before, and "
            "fail_on_data_loss = false in [source] goes on behind it"
        )
    return PipelineError(str(error), hint)


def _records(task: LandingTask, on_loss: OnLoss) -> Iterator[pa.RecordBatch]:
    for offsets in task.ranges:
        yield from read_range(
            task.bootstrap,
            offsets,
            task.decoder.columns,
            isolation=task.isolation,
            client_options={"client_id": "tidelog-pipeline", "timeout_s": task.timeout_s},
            on_loss=on_loss,
        )
