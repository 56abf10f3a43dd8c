"""Reading a range of offsets from a real broker: each row once, and a clear word about what is gone."""

from __future__ import annotations

import itertools
import logging
import pickle
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

from tidelog.client import Client
from tidelog.client.errors import NotFound
from tidelog.client.producer import Message
from tidelog.pipeline import reading
from tidelog.pipeline.ranges import OffsetRange
from tidelog.pipeline.reading import DataLoss, read_range
from tidelog.testing.broker import RunningBroker

_numbers = itertools.count()


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with RunningBroker({"group.initial.rebalance.delay.ms": "0"}) as broker:
        yield broker


@pytest.fixture
def client(broker: RunningBroker) -> Iterator[Client]:
    with Client(broker.bootstrap, timeout_s=20) as client:
        yield client


@pytest.fixture
def filled(client: Client) -> Callable[..., str]:
    """A topic of one partition with `count` records `b"0"`, `b"1"` …"""

    def create(count: int, size: int = 0, **configs: str) -> str:
        name = f"range-{next(_numbers)}"
        client.admin.create_topic(name, 1, 1, configs)
        client.produce(name, [Message(b"%d" % i + b"." * size, key=b"k") for i in range(count)], partition=0)
        return name

    return create


def offsets_of(batches: Iterator[pa.RecordBatch]) -> list[int]:
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


def test_a_range_gives_its_rows_and_no_others(broker: RunningBroker, filled: Callable[..., str]) -> None:
    topic = filled(5000)
    found = pa.Table.from_batches(read_range(broker.bootstrap, OffsetRange(topic, 0, 123, 4321), max_rows=1000))
    assert found.column("offset").to_pylist() == list(range(123, 4321))
    assert found.column("value").to_pylist() == [b"%d" % i for i in range(123, 4321)]
    assert set(found.column("topic").to_pylist()) == {topic}
    assert list(read_range(broker.bootstrap, OffsetRange(topic, 0, 7, 7))) == []


def test_ranges_that_follow_each_other_hold_each_row_once_over_many_fetches(
    broker: RunningBroker, filled: Callable[..., str]
) -> None:
    topic = filled(3000, size=400)
    edges = [0, 1, 700, 1501, 3000]
    found: list[int] = []
    for start, until in itertools.pairwise(edges):
        found += offsets_of(read_range(broker.bootstrap, OffsetRange(topic, 0, start, until), fetch_bytes=50_000))
    assert found == list(range(3000))


def test_connections_are_kept_between_ranges_and_dropped_when_left_in_the_middle(
    broker: RunningBroker, filled: Callable[..., str]
) -> None:
    topic = filled(2000, size=400)
    options = {"client_id": "kept"}
    whole = OffsetRange(topic, 0, 0, 2000)

    def read() -> Iterator[pa.RecordBatch]:
        return read_range(broker.bootstrap, whole, ("offset",), client_options=options, fetch_bytes=50_000)

    def idle() -> list[Client]:
        return [c for key, clients in reading._idle.items() if key[2:] == (("client_id", "kept"),) for c in clients]

    assert len(offsets_of(read())) == 2000
    (kept,) = idle()
    assert len(offsets_of(read())) == 2000
    assert idle() == [kept]
    half = read()
    next(half)
    half.close()
    assert idle() == []
    # Two at once, in turns, as in a task that joins two sources.
    pairs = list(zip(read(), read(), strict=True))
    assert sum(batch.num_rows for batch, _ in pairs) == 2000
    assert all(one.equals(other) for one, other in pairs)


def test_a_kept_connection_survives_a_restart_of_the_broker(tidelog_broker: RunningBroker) -> None:
    with Client(tidelog_broker.bootstrap) as client:
        client.admin.create_topic("t", 1)
        client.produce("t", [b"one", b"two"], partition=0)
    both = OffsetRange("t", 0, 0, 2)
    assert offsets_of(read_range(tidelog_broker.bootstrap, both)) == [0, 1]
    tidelog_broker.restart()
    assert offsets_of(read_range(tidelog_broker.bootstrap, both)) == [0, 1]


def test_records_that_were_deleted_are_data_loss(
    broker: RunningBroker, client: Client, filled: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    topic = filled(100)
    client.admin.delete_records(topic, {0: 40})
    with pytest.raises(DataLoss, match=f"{topic}-0: offsets 10 to 39 are lost: it now begins at offset 40") as caught:
        list(read_range(broker.bootstrap, OffsetRange(topic, 0, 10, 60)))
    assert (caught.value.first, caught.value.until) == (10, 40)
    assert "failOnDataLoss" in str(caught.value)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (str(copy), copy.first, copy.until, copy.hint) == (str(caught.value), 10, 40, caught.value.hint)

    with caplog.at_level(logging.WARNING, "tidelog.pipeline"):
        found = offsets_of(read_range(broker.bootstrap, OffsetRange(topic, 0, 10, 60), fail_on_data_loss=False))
    assert found == list(range(40, 60))
    assert "offsets 10 to 39 are lost" in caplog.text
    # All of the range is gone, and nothing beyond it is read instead.
    assert offsets_of(read_range(broker.bootstrap, OffsetRange(topic, 0, 10, 30), fail_on_data_loss=False)) == []


def test_a_log_shorter_than_the_range_is_data_loss(broker: RunningBroker, filled: Callable[..., str]) -> None:
    topic = filled(10)
    beyond = OffsetRange(topic, 0, 50, 60)
    with pytest.raises(DataLoss, match="offsets 50 to 59 are lost: it now ends at offset 10"):
        list(read_range(broker.bootstrap, beyond))
    assert list(read_range(broker.bootstrap, beyond, fail_on_data_loss=False)) == []
    # The part that exists comes first; the rest might still appear, until patience is over.
    options = {"timeout_s": 0.6}
    across = read_range(broker.bootstrap, OffsetRange(topic, 0, 5, 12), client_options=options)
    assert offsets_of(iter([next(across)])) == list(range(5, 10))
    with pytest.raises(DataLoss, match="offsets 10 to 11 are lost: it now ends at offset 10"):
        next(across)


def test_a_topic_that_was_created_again_is_read_as_it_is_now(
    broker: RunningBroker, client: Client, filled: Callable[..., str]
) -> None:
    topic = filled(5)
    assert len(offsets_of(read_range(broker.bootstrap, OffsetRange(topic, 0, 0, 5)))) == 5
    client.admin.delete_topics([topic])
    client.admin.create_topic(topic, 1)
    client.produce(topic, [b"new"], partition=0)
    (batch,) = read_range(broker.bootstrap, OffsetRange(topic, 0, 0, 1), ("value",))
    assert batch.to_pylist() == [{"value": b"new"}]


def test_a_topic_that_does_not_exist_is_said_to(broker: RunningBroker) -> None:
    with pytest.raises(NotFound, match="nowhere"):
        list(read_range(broker.bootstrap, OffsetRange("nowhere", 0, 0, 1)))
