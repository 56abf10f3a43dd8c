"""The source as Spark calls it, without Spark's JVM: schema, partitions, read, offsets, pickled in between."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from bench.systems.process import BrokerProcess
from pyspark.sql.datasource import CaseInsensitiveDict, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows
from pyspark.sql.types import StructType

from tidelog.client import Client
from tidelog.pipeline.options.source_options import BadOption
from tidelog.pipeline.spark.source import TidelogDataSource, TopicStreamReader


@pytest.fixture
def topic(broker: BrokerProcess, unique: Callable[[str], str]) -> str:
    name = unique("door")
    with Client(broker.bootstrap) as client:
        client.admin.create_topic(name, partitions=2)
        for partition, count in enumerate((30, 10)):
            client.produce(name, [b"%d" % n for n in range(count)], partition=partition)
    return name


def source(broker: BrokerProcess, topic: str, **options: str) -> TidelogDataSource:
    given = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic} | options
    return TidelogDataSource(CaseInsensitiveDict(given))


def travelled(thing: Any) -> Any:
    """As it arrives in another process."""
    return pickle.loads(pickle.dumps(thing))


def read(reader: Any, partitions: list[InputPartition]) -> pa.Table:
    batches = [batch for partition in travelled(partitions) for batch in travelled(reader).read(partition)]
    return pa.Table.from_batches(batches)


def found(table: pa.Table) -> list[tuple[int, int, bytes]]:
    columns = (table[name].to_pylist() for name in ("partition", "offset", "value"))
    return sorted(zip(*columns, strict=True))


@pytest.mark.parametrize("headers", ["true", "false"])
def test_what_is_read_has_the_columns_that_were_promised(broker: BrokerProcess, topic: str, headers: str) -> None:
    one = source(broker, topic, includeHeaders=headers)
    schema = one.schema()
    reader = one.reader(schema)
    table = read(reader, reader.partitions())
    assert table.schema == to_arrow_schema(schema, timezone="UTC")
    assert ("headers" in table.schema.names) == (headers == "true")
    assert found(table) == [(p, n, b"%d" % n) for p, count in ((0, 30), (1, 10)) for n in range(count)]


def test_a_read_of_nothing_has_no_tasks_and_sparks_own_task_reads_nothing(broker: BrokerProcess, topic: str) -> None:
    one = source(broker, topic, endingOffsets=json.dumps({topic: {"0": 0, "1": 0}}))
    reader = one.reader(one.schema())
    assert reader.partitions() == []
    assert list(reader.read(InputPartition(None))) == []


def test_the_columns_are_fixed(broker: BrokerProcess, topic: str) -> None:
    one = source(broker, topic)
    for make in (one.reader, one.streamReader):
        with pytest.raises(BadOption, match="the columns of this source are fixed"):
            make(StructType().add("value", "string"))


def test_a_source_that_cannot_work_is_refused_when_its_schema_is_asked_for(broker: BrokerProcess, topic: str) -> None:
    with pytest.raises(BadOption, match="subscribe and assign are given"):
        source(broker, topic, assign='{"t":[0]}').schema()


def test_a_stream_is_read_in_the_steps_that_spark_takes(broker: BrokerProcess, topic: str) -> None:
    one = source(broker, topic, startingOffsets="earliest", maxOffsetsPerTrigger="20")
    reader = one.streamReader(one.schema())
    assert isinstance(reader, TopicStreamReader)
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(20)
    start = reader.initialOffset()
    assert start == {topic: {"0": 0, "1": 0}}
    read_so_far = []
    for _ in range(2):
        # Offsets come back from the checkpoint as text.
        end = json.loads(json.dumps(reader.latestOffset(json.loads(json.dumps(start)), limit)))
        read_so_far += found(read(one.streamReader(one.schema()), reader.partitions(start, end)))
        reader.commit(end)
        start = end
    assert start == reader.latestOffset(start, limit) == reader.reportLatestOffset() == {topic: {"0": 30, "1": 10}}
    assert sorted(read_so_far) == [(p, n, b"%d" % n) for p, count in ((0, 30), (1, 10)) for n in range(count)]
    assert reader.latestOffset({topic: {"0": 0, "1": 0}}, ReadAllAvailable()) == start
    reader.stop()


def test_limits_are_what_spark_asks_for_first(broker: BrokerProcess, topic: str) -> None:
    def limit(**options: str) -> object:
        one = source(broker, topic, **options)
        return one.streamReader(one.schema()).getDefaultReadLimit()

    assert limit() == ReadAllAvailable()
    assert limit(minOffsetsPerTrigger="5") == ReadMinRows(5)
    assert limit(minOffsetsPerTrigger="5", maxOffsetsPerTrigger="9") == ReadMaxRows(9)
