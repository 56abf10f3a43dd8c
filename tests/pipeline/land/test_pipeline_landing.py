"""A task, called as the plain function that it is."""

from __future__ import annotations

import pickle
import resource
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bench.systems.process import BrokerProcess
from kill_points import call

from tidelog.client import Client, Message
from tidelog.client.reader import Chunk
from tidelog.pipeline.errors import DataLoss, Passing, PipelineError
from tidelog.pipeline.land.landing import LandingTask, land
from tidelog.pipeline.offset_ranges import OffsetRange
from tidelog.pipeline.read.arrow import ArrowDecoder
from tidelog.pipeline.table.parquet_files import SinkSettings, part_prefix
from tidelog.pipeline.values import decoder_for

VALUE_BYTES = 500
RECORDS = 120_000


def raw_task(bootstrap: str, directory: Path, *ranges: OffsetRange) -> LandingTask:
    from tidelog.pipeline.spec import Decode

    sink = SinkSettings(
        root=str(directory), prefix=part_prefix(1, 1, 0), target_bytes=8 << 20, max_bytes=4 << 20, compression="none"
    )
    return LandingTask(
        number=0,
        ranges=ranges,
        bootstrap=bootstrap,
        isolation="read_committed",
        fail_on_data_loss=True,
        decoder=decoder_for(Decode(format="raw"), None),
        rows=sink,
        dead=sink,
        timeout_s=20,
    )


@pytest.fixture(scope="module")
def filled(broker: BrokerProcess) -> str:
    """A topic of 60 MB."""
    with Client(broker.bootstrap) as client:
        client.admin.create_topic("landing-filled", partitions=1)
        values = (b"%0*d" % (VALUE_BYTES, n) for n in range(RECORDS))
        client.produce("landing-filled", map(Message, values), partition=0, compression="zstd")
    return "landing-filled"


def _land_and_measure(task: LandingTask, report: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    rows = land(task).rows
    report.write_text(f"{rows} {(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024}")


def test_the_memory_of_a_task_does_not_grow_with_its_range(broker: BrokerProcess, filled: str, tmp_path: Path) -> None:
    grown_mb = []
    for count in (RECORDS // 12, RECORDS):
        task = raw_task(broker.bootstrap, tmp_path, OffsetRange(filled, 0, 0, count))
        assert call(_land_and_measure, task, tmp_path / "report") == 0
        rows, mb = map(int, (tmp_path / "report").read_text().split())
        assert rows == count
        grown_mb.append(mb)
    assert grown_mb[1] < grown_mb[0] + 40, "twelve times as much was read"


def test_a_task_and_its_result_can_be_pickled(broker: BrokerProcess, filled: str, tmp_path: Path) -> None:
    task = raw_task(broker.bootstrap, tmp_path, OffsetRange(filled, 0, 10, 20))
    done = land(pickle.loads(pickle.dumps(task)))
    assert pickle.loads(pickle.dumps(done)) == done
    assert [(f.rows, f.partition_values) for f in done.files] == [(10, {})] and done.failure is None
    rows = pq.read_table(tmp_path / done.files[0].path)
    assert rows.column("offset").to_pylist() == list(range(10, 20))
    assert rows.column("value").to_pylist() == [b"%0*d" % (VALUE_BYTES, n) for n in range(10, 20)]


def test_what_cannot_be_mended_by_trying_again_is_returned_as_a_failure(
    broker: BrokerProcess, unique: Callable[[str], str], tmp_path: Path
) -> None:
    topic = unique("short")
    with Client(broker.bootstrap) as client:
        client.admin.create_topic(topic, partitions=1)
        client.produce(topic, [b"x"] * 20, partition=0)
        client.admin.delete_records(topic, {0: 10})
    task = raw_task(broker.bootstrap, tmp_path, OffsetRange(topic, 0, 5, 20))
    failure = land(task).failure
    assert isinstance(failure, DataLoss) and "offsets 5 to 9 are lost" in failure.message
    assert isinstance(pickle.loads(pickle.dumps(failure)), DataLoss)
    tolerant = land(replace(task, fail_on_data_loss=False))
    assert tolerant.rows == 10 and "offsets 5 to 9 are lost" in tolerant.losses[0]
    unreachable = land(replace(task, bootstrap="127.0.0.1:1", timeout_s=0.2))
    assert isinstance(unreachable.failure, Passing) and unreachable.files == ()


def test_a_topic_that_is_made_again_while_it_is_read_is_no_trouble_that_passes(
    broker: BrokerProcess, unique: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = unique("again")
    with Client(broker.bootstrap) as client:
        client.admin.create_topic(topic, partitions=1)
        # More than the fetches that are under way when the first is decoded.
        client.produce(topic, [b"x" * 900_000] * 20, partition=0)
    decode = ArrowDecoder.decode

    def made_again(decoder: ArrowDecoder, chunk: Chunk) -> Iterator[pa.RecordBatch]:
        monkeypatch.undo()
        with Client(broker.bootstrap) as client:
            client.admin.delete_topics([topic])
            client.admin.create_topic(topic, partitions=1)
        return decode(decoder, chunk)

    monkeypatch.setattr(ArrowDecoder, "decode", made_again)
    failure = land(raw_task(broker.bootstrap, tmp_path, OffsetRange(topic, 0, 0, 20))).failure
    assert isinstance(failure, DataLoss) and "deleted and created again" in failure.message


def test_a_damaged_batch_is_not_read_again_and_again(
    broker: BrokerProcess, unique: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = unique("damaged")
    with Client(broker.bootstrap) as client:
        client.admin.create_topic(topic, partitions=1)
        client.produce(topic, [b"x"] * 20, partition=0)
    monkeypatch.setattr("tidelog.pipeline.read.arrow.crc32c", lambda _: 0)
    done = land(raw_task(broker.bootstrap, tmp_path, OffsetRange(topic, 0, 0, 20)))
    assert type(done.failure) is PipelineError and f"offset 0 of {topic}-0 is damaged" in done.failure.message
    assert "from offset 20: tidelog topic truncate" in (done.failure.hint or "")
