"""What the client decides, without a broker: whom, when again, what may be seen."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.client import cluster
from tidelog.client.cluster import Cluster, PartitionInfo, TopicInfo, parse_bootstrap
from tidelog.client.connection import Connection
from tidelog.client.errors import ClientError, InDoubt, LogTruncated, Refused, Unreachable, error_for
from tidelog.client.partitioner import STICKY_BYTES, Partitioner, murmur2, partition_of_key
from tidelog.client.producer import Producer
from tidelog.client.reader import Fetched, Reader, Span, visible_records
from tidelog.client.share_groups import ShareGroups
from tidelog.wire import messages
from tidelog.wire.apis import ApiKey
from tidelog.wire.batch import patch_place, read_header
from tidelog.wire.errors import ErrorCode
from tidelog.wire.records import ABORT, COMMIT, EndTxnMarker, build_batch, build_end_txn_marker

TOPIC_ID = b"0123456789abcdef"


# --- addresses and partitions -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("h", [("h", 9092)]),
        ("h:1", [("h", 1)]),
        (" a:1 , b ,", [("a", 1), ("b", 9092)]),
        ("[::1]", [("::1", 9092)]),
        ("[::1]:7", [("::1", 7)]),
        ("::1", [("::1", 9092)]),
    ],
)
def test_bootstrap_addresses_are_read(text: str, addresses: list[tuple[str, int]]) -> None:
    assert parse_bootstrap(text) == addresses


@pytest.mark.parametrize("text", ["", " , ", "h:", ":1", "h:x", "h:0", "h:65536", "h:²"])
def test_what_is_no_address_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(Refused) as raised:
        parse_bootstrap(text)
    assert raised.value.hint is not None and "localhost:9092" in raised.value.hint


@pytest.mark.parametrize(
    ("key", "signed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_keys_are_hashed_as_javas_client_hashes_them(key: bytes, signed: int) -> None:
    assert murmur2(key) == signed % (1 << 32)


@given(st.binary(), st.integers(1, 1000))
def test_a_keys_partition_exists(key: bytes, partitions: int) -> None:
    assert 0 <= partition_of_key(key, partitions) < partitions


def test_records_without_a_key_stick_for_a_batch_and_avoid_partitions_without_a_leader() -> None:
    partitioner = Partitioner("sticky")
    chosen = [partitioner.choose(None, STICKY_BYTES // 4, 4, [1, 3]) for _ in range(16)]
    assert [len(set(chosen[at : at + 4])) for at in range(0, 16, 4)] == [1, 1, 1, 1]
    assert set(chosen) == {1, 3}
    assert [Partitioner("round-robin").choose(None, 1, 3, []) for _ in range(1)] == [0]


# --- read_committed ---------------------------------------------------------------------------------

#: producer 0 writes without transactions, 1 to 3 with; an event is (producer, records) or (producer, "commit"/"abort")
events = st.lists(
    st.tuples(st.integers(0, 3), st.integers(1, 3))
    | st.tuples(st.integers(1, 3), st.sampled_from(["commit", "abort"])),
    max_size=30,
)


def transactional_log(script: list[Any]) -> tuple[memoryview, list[tuple[int, int]], list[int], int]:
    """The log that a script writes: its bytes, the aborted transactions, and what read_committed may see."""
    log = bytearray()
    offset = 0
    open_since: dict[int, int] = {}
    written: dict[int, list[int]] = {}
    aborted: list[tuple[int, int]] = []
    visible: list[int] = []
    closing = [(producer, "abort") for producer in (1, 2, 3)]
    for producer, what in [*script, *closing]:
        if isinstance(what, int):
            batch = build_batch(
                [(0, None, b"%d" % (offset + n), None) for n in range(what)],
                producer_id=producer,
                producer_epoch=0,
                base_sequence=0,
                transactional=producer > 0,
            )
            offsets = list(range(offset, offset + what))
            if producer == 0:
                visible += offsets
            else:
                open_since.setdefault(producer, offset)
                written.setdefault(producer, []).extend(offsets)
            taken = what
        else:
            if producer not in open_since:
                continue
            kind = COMMIT if what == "commit" else ABORT
            batch = build_end_txn_marker(EndTxnMarker(kind, 0), producer, 0, 0)
            first = open_since.pop(producer)
            if kind == COMMIT:
                visible += written.pop(producer)
            else:
                written.pop(producer)
                aborted.append((producer, first))
            taken = 1
        patch_place(batch, 0, offset, read_header(batch).length, 0)
        log += batch
        offset += taken
    return memoryview(log), aborted, sorted(visible), offset


@given(events, st.integers(0, 40), st.integers(0, 40))
def test_read_committed_sees_what_was_committed_and_nothing_else(script: list[Any], start: int, until: int) -> None:
    log, aborted, visible, _ = transactional_log(script)
    fetched = Fetched(log, 0, 0, 0, aborted)
    seen = [record.offset for record in visible_records(fetched, start, until, "t-0")]
    assert seen == [offset for offset in visible if start <= offset < until]


@given(events)
def test_read_uncommitted_sees_every_record_but_the_markers(script: list[Any]) -> None:
    log, _, _, end = transactional_log(script)
    seen = [record.offset for record in visible_records(Fetched(log, 0, 0, 0, []), 0, None, "t-0")]
    assert seen == sorted(set(seen)) and all(offset < end for offset in seen)
    assert [b"%d" % offset for offset in seen] == [
        record.value for record in visible_records(Fetched(log, 0, 0, 0, []), 0, None, "t-0")
    ]


def test_a_damaged_batch_says_where_and_how_to_go_on() -> None:
    good = build_batch([(0, None, b"x", None)])
    bad = build_batch([(0, None, b"y", None)], base_offset=1)
    bad[-1] ^= 1
    records = visible_records(Fetched(memoryview(good + bad), 0, 0, 0, []), 0, None, "t-0")
    assert next(records).value == b"x"
    with pytest.raises(ClientError, match="offset 1 of t-0 is damaged") as raised:
        next(records)
    assert raised.value.hint is not None and "offset 2" in raised.value.hint


# --- against a broker that answers by script --------------------------------------------------------


class ScriptedConnection:
    """Answers each request with the next answer of its API's script; an exception is raised."""

    address = "scripted:1"
    closed = False

    def __init__(self, scripts: dict[int, list[Any]]) -> None:
        self.scripts = scripts
        self.asked: list[tuple[int, Any]] = []
        self.versions = dict.fromkeys(scripts, (0, 100))

    def version_of(self, api_key: int, at_most: int = 0) -> int:
        return 100

    def send(self, api_key: int, message: Any, at_most: int = 0) -> tuple[int, Any]:
        self.asked.append((api_key, message))
        return api_key, self.scripts[api_key].pop(0)

    def receive(self, sent: tuple[int, Any]) -> Any:
        if isinstance(sent[1], Exception):
            raise sent[1]
        return sent[1]

    def call(self, api_key: int, message: Any, at_most: int = 0) -> Any:
        return self.receive(self.send(api_key, message))


class ScriptedCluster(Cluster):
    """One partition, t-0, at a scripted leader; its epoch grows each time that something failed."""

    def __init__(self, connection: ScriptedConnection) -> None:
        super().__init__("scripted:1", "test", 5)
        self.connection: Any = connection
        self.epoch = 0

    def any_broker(self) -> Connection:
        return self.connection  # type: ignore[no-any-return]

    def forget(self) -> None:
        self.epoch += 1

    def known_topic(self, name: str, auto_create: bool = False) -> TopicInfo:
        return TopicInfo("t", TOPIC_ID, False, {0: PartitionInfo(0, 1, self.epoch, [1], [1], [])})

    def leader(self, topic: str, partition: int) -> tuple[Connection, TopicInfo, PartitionInfo]:
        info = self.known_topic(topic)
        return self.connection, info, info.partitions[0]

    def coordinator(self, key: str, kind: int = 0) -> Connection:
        return self.connection  # type: ignore[no-any-return]

    def passes(self, error: ClientError, topic_may_appear: bool = False) -> bool:
        return isinstance(error, Unreachable) or super().passes(error, topic_may_appear)


def produced(code: int = 0, base_offset: int = 0) -> Any:
    response = messages.ProduceResponse
    partition = response.PartitionProduceResponse(index=0, error_code=code, base_offset=base_offset)
    topic = response.TopicProduceResponse(topic_id=TOPIC_ID, partition_responses=[partition])
    return response(responses=[topic])


def producer_id(number: int) -> Any:
    return messages.InitProducerIdResponse(producer_id=number, producer_epoch=0)


@pytest.fixture
def scripted() -> Callable[..., tuple[Producer, ScriptedConnection]]:
    def make(*answers: Any, **options: Any) -> tuple[Producer, ScriptedConnection]:
        ids = [producer_id(number) for number in range(7, 20)]
        connection = ScriptedConnection({ApiKey.PRODUCE: list(answers), ApiKey.INIT_PRODUCER_ID: ids})
        return Producer(ScriptedCluster(connection), **options), connection

    return make


def sequences(connection: ScriptedConnection) -> list[tuple[int, int]]:
    """(producer id, base sequence) of every batch that was sent."""
    sent = [m.topic_data[0].partition_data[0].records for key, m in connection.asked if key == ApiKey.PRODUCE]
    headers = [read_header(batch) for batch in sent]
    return [(header.producer_id, header.base_sequence) for header in headers]


Scripted = Callable[..., tuple[Producer, ScriptedConnection]]


def test_a_batch_keeps_its_sequence_however_often_it_is_sent(scripted: Scripted) -> None:
    producer, connection = scripted(
        produced(), produced(ErrorCode.NOT_LEADER_OR_FOLLOWER), Unreachable("cut"), produced(0, 2), produced(0, 9)
    )
    for count in (2, 3, 1):
        for _ in range(count):
            producer.send("t", b"x", partition=0)
        producer.flush()
    assert sequences(connection) == [(7, 0), (7, 2), (7, 2), (7, 2), (7, 5)]
    # Runs that follow one another are one: somebody else wrote in between before the last.
    assert producer.delivered == [("t", 0, 0, 5), ("t", 0, 9, 1)]


def test_a_duplicate_counts_as_written(scripted: Scripted) -> None:
    producer, _ = scripted(Unreachable("cut"), produced(ErrorCode.DUPLICATE_SEQUENCE_NUMBER, -1))
    producer.send("t", b"x", partition=0)
    producer.flush()
    assert len(producer.delivered) == 1


def test_a_forgotten_producer_takes_a_new_id_where_nothing_is_in_doubt(scripted: Scripted) -> None:
    producer, connection = scripted(produced(), produced(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), produced())
    for _ in range(2):
        producer.send("t", b"x", partition=0)
        producer.flush()
    assert sequences(connection) == [(7, 0), (7, 1), (8, 0)]


def test_a_forgotten_producer_does_not_risk_writing_twice(scripted: Scripted) -> None:
    producer, connection = scripted(Unreachable("cut"), produced(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), produced())
    producer.send("t", b"x", partition=0)
    with pytest.raises(InDoubt):
        producer.flush()
    assert producer.delivered == []
    # What failed is dropped; what comes next starts anew.
    producer.send("t", b"y", partition=0)
    producer.flush()
    assert sequences(connection) == [(7, 0), (7, 0), (8, 0)]


def test_a_split_batch_keeps_the_sequence_numbers_in_order(scripted: Scripted) -> None:
    producer, connection = scripted(produced(ErrorCode.MESSAGE_TOO_LARGE), produced(), produced(base_offset=2))
    for _ in range(5):
        producer.send("t", b"x", partition=0)
    producer.flush()
    assert sequences(connection) == [(7, 0), (7, 0), (7, 2)]


def test_weaker_acknowledgements_need_no_producer_id(scripted: Scripted) -> None:
    producer, connection = scripted(produced(), acks=1)
    producer.send("t", b"x", partition=0)
    producer.flush()
    assert [key for key, _ in connection.asked] == [ApiKey.PRODUCE]
    assert sequences(connection) == [(-1, -1)]


@pytest.mark.parametrize("options", [{"acks": 2}, {"compression": "rar"}])
def test_options_that_do_not_exist_are_refused(scripted: Scripted, options: dict[str, Any]) -> None:
    with pytest.raises(Refused):
        scripted(**options)


def fetched(code: int = 0, records: bytes | bytearray = b"") -> Any:
    response = messages.FetchResponse
    data = response.PartitionData(partition_index=0, error_code=code, high_watermark=100, records=memoryview(records))
    return response(responses=[response.FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[data])])


def epoch_end(offset: int) -> Any:
    response = messages.OffsetForLeaderEpochResponse
    end = response.EpochEndOffset(partition=0, leader_epoch=3, end_offset=offset)
    return response(topics=[response.OffsetForLeaderTopicResult(topic="t", partitions=[end])])


def batch_at(offset: int, value: bytes, leader_epoch: int = 3) -> bytearray:
    return build_batch([(0, None, value, None)], base_offset=offset, leader_epoch=leader_epoch)


def test_a_new_leader_that_has_what_was_read_is_read_on() -> None:
    connection = ScriptedConnection(
        {
            ApiKey.FETCH: [
                fetched(records=batch_at(0, b"a")),
                fetched(ErrorCode.FENCED_LEADER_EPOCH),
                fetched(records=batch_at(1, b"b")),
            ],
            ApiKey.OFFSET_FOR_LEADER_EPOCH: [epoch_end(1)],
        }
    )
    reader = Reader(ScriptedCluster(connection), [Span("t", 0, 0, 2)])
    assert [record.value for _, record in reader.records()] == [b"a", b"b"]
    asked = next(message for key, message in connection.asked if key == ApiKey.OFFSET_FOR_LEADER_EPOCH)
    partition = asked.topics[0].partitions[0]
    assert (partition.leader_epoch, partition.current_leader_epoch) == (3, 1)


def test_a_new_leader_that_lost_what_was_read_is_an_error() -> None:
    connection = ScriptedConnection(
        {
            ApiKey.FETCH: [fetched(records=batch_at(4, b"a")), fetched(ErrorCode.NOT_LEADER_OR_FOLLOWER)],
            ApiKey.OFFSET_FOR_LEADER_EPOCH: [epoch_end(2)],
        }
    )
    read = Reader(ScriptedCluster(connection), [Span("t", 0, 4, 9)]).records()
    assert next(read)[1].value == b"a"
    with pytest.raises(LogTruncated, match="read up to offset 5") as raised:
        next(read)
    assert raised.value.end_offset == 2


def test_what_a_reader_does_between_records_is_no_time_that_a_broker_was_away() -> None:
    answers = [fetched(records=batch_at(0, b"a")), Unreachable("cut"), fetched(records=batch_at(1, b"b"))]
    scripts = {ApiKey.FETCH: answers, ApiKey.OFFSET_FOR_LEADER_EPOCH: [epoch_end(1)]}
    hasty = ScriptedCluster(ScriptedConnection(scripts))
    hasty.timeout_s = 0.2
    read = Reader(hasty, [Span("t", 0, 0, 2)]).records()
    values = [next(read)[1].value]
    time.sleep(0.3)
    values += [record.value for _, record in read]
    assert values == [b"a", b"b"]


def test_a_broker_is_asked_to_answer_before_the_client_stops_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "REQUEST_TIMEOUT_S", 2)
    scripts = {ApiKey.PRODUCE: [produced()], ApiKey.FETCH: [fetched()], ApiKey.INIT_PRODUCER_ID: [producer_id(7)]}
    connection = ScriptedConnection(scripts)
    patient = ScriptedCluster(connection)
    producer = Producer(patient)
    producer.send("t", b"x", partition=0)
    producer.flush()
    Reader(patient, [Span("t", 0, 0)], max_wait_ms=60_000).once()
    asked = dict(connection.asked)
    assert asked[ApiKey.PRODUCE].timeout_ms < 2000
    assert asked[ApiKey.FETCH].max_wait_ms < 2000


def test_an_error_says_what_was_asked_and_its_name() -> None:
    error = error_for(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "writing to t-0")
    assert str(error) == "writing to t-0: not authorized for the topic (TOPIC_AUTHORIZATION_FAILED)"
    assert "error code 9999" in str(error_for(9999, "x"))


def test_a_share_group_is_asked_moved_and_forgotten_by_its_coordinator() -> None:
    described, altered, deleted = (
        messages.DescribeShareGroupOffsetsResponse,
        messages.AlterShareGroupOffsetsResponse,
        messages.DeleteShareGroupOffsetsResponse,
    )
    partitions = [
        described.DescribeShareGroupOffsetsResponsePartition(partition_index=1, start_offset=4, lag=2),
        described.DescribeShareGroupOffsetsResponsePartition(partition_index=0, start_offset=-1),
    ]
    topics = [described.DescribeShareGroupOffsetsResponseTopic(topic_name="t", partitions=partitions)]
    refused = altered.AlterShareGroupOffsetsResponsePartition(partition_index=1, error_code=ErrorCode.NON_EMPTY_GROUP)
    connection = ScriptedConnection(
        {
            ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: [
                described(groups=[described.DescribeShareGroupOffsetsResponseGroup(group_id="g", topics=topics)])
            ],
            ApiKey.ALTER_SHARE_GROUP_OFFSETS: [
                altered(),
                altered(responses=[altered.AlterShareGroupOffsetsResponseTopic(topic_name="t", partitions=[refused])]),
            ],
            ApiKey.DELETE_SHARE_GROUP_OFFSETS: [deleted()],
        }
    )
    groups = ShareGroups(ScriptedCluster(connection))
    assert groups.offsets("g") == {("t", 1): (4, 2)}
    groups.move("g", {("t", 0): 7, ("t", 1): 8})
    with pytest.raises(Refused, match="moving group g in t-1"):
        groups.move("g", {("t", 1): 8})
    groups.forget("g", ["t"])
    moved = connection.asked[1][1].topics[0]
    assert [(p.partition_index, p.start_offset) for p in moved.partitions] == [(0, 7), (1, 8)]
    assert connection.asked[-1][1].topics[0].topic_name == "t"
