"""`format("tidelog")`: topics as DataFrames, batch and streaming, with the options and columns of `format("kafka")`.

    from tidelog.pipeline.spark.source import register

    register(spark)
    spark.read.format("tidelog").options(**{"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders"}).load()

This module only fits what is decided elsewhere to Spark's API: `source_options` reads the options, `query_plan`
decides which offsets are read by which task, `range_reader` reads them on the executors, straight into Arrow.

Spark makes these objects in several processes. The driver's Python asks for the schema; a planner process beside the
driver asks for partitions, and for a stream lives as long as the query; the readers travel to the executors pickled.
So a reader holds options only, and the connections of the planner are made when they are first needed.

PySpark imports this module in every session of whoever has tidelog installed (see `pyspark_tidelog`), so it imports
what else it needs only where it is used.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from tidelog.pipeline.offset_ranges import Offsets
    from tidelog.pipeline.options.source_options import Reading, SourceOptions
    from tidelog.pipeline.read.query_plan import StreamPlan, Task
    from tidelog.pipeline.read.range_reader import LostOffsets
    from tidelog.pipeline.read.subscribed_topics import SubscribedTopics

log = logging.getLogger("tidelog.pipeline")

_TYPES = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
}


def register(spark: SparkSession) -> None:
    """Makes `format("tidelog")` and `format("tidelog-delta")` known to a session."""
    from tidelog.pipeline.spark import this_python
    from tidelog.pipeline.spark.delta_sink import DeltaSink

    this_python.for_session(spark)
    spark.dataSource.register(TidelogDataSource)
    spark.dataSource.register(DeltaSink)


class TidelogDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "tidelog"

    def schema(self) -> StructType:
        from tidelog.pipeline.options.source_options import check_shared

        return _schema(check_shared(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        return TopicReader(_options(self.options, "batch", schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return TopicStreamReader(_options(self.options, "stream", schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        from tidelog.pipeline.spark.topic_sink import topic_writer

        return topic_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        from tidelog.pipeline.spark.topic_sink import topic_stream_writer

        return topic_stream_writer(self.options, schema, overwrite)


class OffsetsPartition(InputPartition):
    """A task, in Spark's wrapping."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)


class TopicReader(DataSourceReader):
    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        from tidelog.pipeline.read.query_plan import plan_batch
        from tidelog.pipeline.read.subscribed_topics import SubscribedTopics

        with SubscribedTopics(self._options) as topics:
            return [OffsetsPartition(task) for task in plan_batch(topics, self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(partition.value, self._options)


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._topics: SubscribedTopics | None = None
        self._plan: StreamPlan | None = None

    def initialOffset(self) -> dict[str, Any]:
        return _written(self._planned().initial())

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._planned().prepare_for_available_now()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        end = self._planned().latest(
            _read_back(start),
            max_offsets=limit.max_rows if isinstance(limit, ReadMaxRows) else None,
            # Spark says so where the trigger allows no second batch.
            unlimited=isinstance(limit, ReadAllAvailable),
        )
        return _written(end)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        newest = self._planned().newest
        return None if newest is None else _written(newest)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return [OffsetsPartition(task) for task in self._planned().ranges(_read_back(start), _read_back(end))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(partition.value, self._options)

    def commit(self, end: dict[str, Any]) -> None:
        """The checkpoint keeps the offsets."""

    def stop(self) -> None:
        topics, self._topics, self._plan = self._topics, None, None
        if topics is not None:
            topics.close()

    def _planned(self) -> StreamPlan:
        from tidelog.pipeline.read.query_plan import StreamPlan
        from tidelog.pipeline.read.subscribed_topics import SubscribedTopics

        if self._plan is None:
            self._topics = SubscribedTopics(self._options)
            self._plan = StreamPlan(self._topics, self._options)
        return self._plan


def _read(task: Task | None, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    if task is None:  # Spark's own partition, where the plan has none
        return
    from tidelog.pipeline.read.range_reader import FETCH_BYTES, read_range

    yield from read_range(
        options.bootstrap,
        task.range,
        options.columns,
        isolation=options.isolation,
        client_options={"client_id": options.client_id, "timeout_s": options.poll_timeout_ms / 1000},
        on_loss=lambda loss: _lose(loss, task),
        fetch_bytes=options.fetch_bytes or FETCH_BYTES,
    )


def _lose(loss: LostOffsets, task: Task) -> None:
    from tidelog.pipeline.errors import DataLoss
    from tidelog.pipeline.read.range_reader import LOSS_HINT

    if task.fail_on_data_loss and not (loss.is_beginning and task.beginning_may_be_gone):
        # Spark shows nothing but the words of an error.
        raise DataLoss(f"{loss}; {LOSS_HINT}", LOSS_HINT)
    log.warning("%s", loss)


def _schema(include_headers: bool) -> StructType:
    return StructType([StructField(n, t) for n, t in _TYPES.items() if include_headers or n != "headers"])


def _options(given: Mapping[str, str], reading: Reading, schema: StructType) -> SourceOptions:
    from tidelog.pipeline.options.given import BadOption
    from tidelog.pipeline.options.source_options import parse

    options = parse(given, reading)
    if schema != _schema(options.include_headers):
        raise BadOption("the columns of this source are fixed: leave out .schema(…), and select what is wanted")
    return options


def _written(offsets: Offsets) -> dict[str, Any]:
    from tidelog.pipeline.options.offsets_json import offsets_to

    return offsets_to(offsets)


def _read_back(offsets: dict[str, Any]) -> Offsets:
    from tidelog.pipeline.options.offsets_json import offsets_from

    return offsets_from(offsets)
