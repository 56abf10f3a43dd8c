"""Options of format("tidelog"): the stock connector's names, defaults and refusals."""

from __future__ import annotations

import pickle
import subprocess
from pathlib import Path

import pytest
from bench.systems.java import classpath
from hypothesis import given
from hypothesis import strategies as st

from tidelog.pipeline.options.kafka_names import CLIENT_NAMES, CLIENT_NUMBERS, CLIENT_SWITCHES, SECURITY
from tidelog.pipeline.options.offsets_json import offsets_from, offsets_to, read_offsets
from tidelog.pipeline.options.source_options import (
    Assigned,
    AtOffsets,
    AtTimestamp,
    AtTimestamps,
    AtWord,
    BadOption,
    Matching,
    Named,
    SourceOptions,
    check_shared,
    parse,
)
from tidelog.wire.partitions import TopicPartition

LEAST = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders"}
TP0, TP1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


def batch(**options: str) -> SourceOptions:
    return parse(LEAST | options, "batch")


def stream(**options: str) -> SourceOptions:
    return parse(LEAST | options, "stream")


def without(name: str, **options: str) -> dict[str, str]:
    return {key: value for key, value in (LEAST | options).items() if key != name}


def test_a_batch_reads_from_the_earliest_to_the_latest_offset_and_a_stream_from_the_latest() -> None:
    assert (batch().starting, batch().ending) == (AtWord("earliest"), AtWord("latest"))
    assert stream().starting == AtWord("latest")


def test_defaults_are_those_of_the_stock_connector() -> None:
    options = batch()
    assert options.isolation == "read_uncommitted"
    assert options.fail_on_data_loss
    assert not options.include_headers
    assert options.columns == ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
    assert (options.min_partitions, options.max_records_per_partition) == (None, None)
    assert (options.fetch_offset_retries, options.fetch_offset_retry_interval_ms) == (3, 1000)
    assert (options.poll_timeout_ms, options.max_trigger_delay_ms) == (120_000, 15 * 60 * 1000)


def test_names_and_words_are_read_without_regard_to_case() -> None:
    options = parse(
        {
            "KAFKA.bootstrap.servers": " localhost:1 ",
            "SubscribePattern": "or.*",
            "STARTINGOFFSETS": "Earliest",
            "includeheaders": "TRUE",
            "kafka.isolation.level": "READ_COMMITTED",
        },
        "stream",
    )
    assert options.bootstrap == "localhost:1"
    assert isinstance(options.subscription, Matching)
    assert options.starting == AtWord("earliest")
    assert options.columns[-1] == "headers"
    assert options.isolation == "read_committed"


def test_what_to_read_is_said_in_exactly_one_way() -> None:
    assert batch(subscribe=" a, b ,,a").subscription == Named(("a", "b"))
    assigned = parse(without("subscribe", assign='{"orders":[1,0]}'), "batch").subscription
    assert assigned == Assigned((TP0, TP1))
    with pytest.raises(BadOption, match="none is given"):
        parse(without("subscribe"), "batch")
    with pytest.raises(BadOption, match="subscribe and assign are given"):
        batch(assign='{"orders":[0]}')


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"subscribe": " , "}, "names no topic"),
        ({"startingOffsets": "latest"}, "cannot start at the latest"),
        ({"startingOffsets": '{"orders":{"0":-1}}'}, r"orders-0 cannot start at the latest offset \(-1\)"),
        ({"endingOffsets": "earliest"}, "cannot end at the earliest"),
        ({"endingOffsets": '{"orders":{"0":-2}}'}, r"orders-0 cannot end at the earliest offset \(-2\)"),
        ({"startingOffsets": "soon"}, "startingOffsets: expected JSON"),
        ({"startingOffsets": '{"orders":{"0":-3}}'}, "-1 for the latest and -2 for the earliest"),
        ({"startingOffsets": '{"orders":[0]}'}, "per topic and partition"),
        ({"startingOffsets": '{"orders":{"first":0}}'}, "per topic and partition"),
        ({"startingOffsetsByTimestamp": '{"orders":{"0":-1}}'}, "milliseconds since 1970"),
        ({"startingTimestamp": "yesterday"}, "startingTimestamp is 'yesterday': write a whole number"),
        ({"startingOffsetsByTimestampStrategy": "guess"}, "write error or latest"),
        (
            {"startingOffsets": '{"orders":{"0":5}}', "endingOffsets": '{"orders":{"0":4}}'},
            "starts at 5 and ends before it, at 4",
        ),
        (
            {"startingOffsets": '{"orders":{"0":5}}', "endingOffsets": '{"orders":{"1":9}}'},
            "only one of them has orders-0, orders-1",
        ),
        (
            {
                "startingOffsetsByTimestamp": '{"orders":{"0":9}}',
                "endingOffsetsByTimestamp": '{"orders":{"0":8}}',
            },
            "starts at 9 and ends before it",
        ),
        ({"minPartitions": "0"}, "minPartitions is '0': write a whole number, 1 or more"),
        ({"maxRecordsPerPartition": "0"}, "maxRecordsPerPartition"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "above maxOffsetsPerTrigger"),
        ({"maxTriggerDelay": "a while"}, "500ms, 30s, 15m or 1h"),
        ({"failOnDataLoss": "maybe"}, "write true or false"),
        ({"kafka.isolation.level": "serializable"}, "read_uncommitted or read_committed"),
        ({"kafka.auto.offset.reset": "earliest"}, "startingOffsets"),
        ({"kafka.key.deserializer": "x"}, "keys are read as bytes"),
        ({"kafka.value.deserializer": "x"}, "values are read as bytes"),
        ({"kafka.enable.auto.commit": "true"}, "checkpoint"),
        ({"kafka.interceptor.classes": "x"}, "interceptors"),
        ({"kafka.security.protocol": "SASL_SSL"}, "PLAINTEXT only"),
        ({"startingOffset": "earliest"}, "did you mean startingOffsets"),
        ({"kafka.ssl.truststore.location": "/jks"}, "kafka.ssl.truststore.location is given, and .* PLAINTEXT only"),
        ({"kafka.sasl.jaas.config": "x"}, "kafka.sasl.jaas.config is given, and .* PLAINTEXT only"),
        ({"security.protocol": "SASL_SSL"}, "security.protocol is given, and .* PLAINTEXT only"),
        ({"sasl.mechanism": "PLAIN"}, "sasl.mechanism is given, and .* PLAINTEXT only"),
        ({"kafka.isolation.levle": "read_committed"}, "did you mean kafka.isolation.level"),
        ({"kafka.max.poll.recrods": "1"}, "did you mean kafka.max.poll.records"),
        ({"kafka.nobody.knows.me": "1"}, "there is no option 'kafka.nobody.knows.me'"),
        ({"kafka.max.poll.records": "abc"}, "option kafka.max.poll.records is 'abc': write a whole number"),
        ({"kafka.fetch.min.bytes": "1.5"}, "kafka.fetch.min.bytes is '1.5': write a whole number"),
        ({"kafka.check.crcs": "perhaps"}, "kafka.check.crcs is 'perhaps': write true or false"),
        ({"tidelog.exactly.once": "true"}, "there is no option tidelog.exactly.once here"),
        ({"tidelog.anything": "x"}, "there is no option tidelog.anything here"),
        ({"isolation.level": "read_committed"}, "isolation.level does nothing: write kafka.isolation.level"),
    ],
)
def test_what_cannot_work_is_refused_and_the_option_named(options: dict[str, str], said: str) -> None:
    with pytest.raises(BadOption, match=said):
        batch(**options)


def test_a_pattern_must_be_a_regular_expression() -> None:
    with pytest.raises(BadOption, match="no regular expression"):
        parse(without("subscribe", subscribePattern="("), "stream")


def test_a_broker_must_be_named() -> None:
    with pytest.raises(BadOption, match=r"kafka\.bootstrap\.servers is missing"):
        parse(without("kafka.bootstrap.servers"), "batch")


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    value = {"endingOffsets": "latest", "endingTimestamp": "1"}.get(name, '{"orders":{"0":1}}')
    with pytest.raises(BadOption, match=f"{name} is for batch reads"):
        stream(**{name: value})


def test_a_stream_may_start_at_the_latest_offset_of_single_partitions() -> None:
    assert stream(startingOffsets='{"orders":{"0":-1,"1":7}}').starting == AtOffsets({TP0: -1, TP1: 7})


def test_one_time_for_all_goes_before_times_and_times_before_offsets() -> None:
    given = {
        "startingTimestamp": "5",
        "startingOffsetsByTimestamp": '{"orders":{"0":6}}',
        "startingOffsets": '{"orders":{"0":7}}',
    }
    assert batch(**given).starting == AtTimestamp(5)
    del given["startingTimestamp"]
    assert batch(**given).starting == AtTimestamps({TP0: 6})
    del given["startingOffsetsByTimestamp"]
    assert batch(**given).starting == AtOffsets({TP0: 7})


def test_settings_of_a_consumer_that_is_not_there_are_accepted() -> None:
    options = batch(
        **{
            "kafka.max.poll.records": "1",
            "kafka.group.id": "g",
            "groupIdPrefix": "p",
            "kafka.acks": "all",
            "kafka.security.protocol": "plaintext",
            "somebodyElsesOption": "x",
            "maxOffsetsPerTrigger": "5",
        }
    )
    assert options.bootstrap == "localhost:9092"


@pytest.mark.java
def test_the_names_that_are_let_through_are_those_of_kafkas_clients_with_their_types() -> None:
    program = Path(__file__).parents[1] / "ClientOptionNames.java"
    printed = subprocess.run(["java", "-cp", classpath(), program], capture_output=True, text=True, check=True).stdout
    found = [line.split() for line in printed.splitlines() if not line.startswith((*SECURITY, "internal."))]
    assert {name for name, _ in found} == CLIENT_NAMES - {"auto.include.jmx.reporter"}
    assert {name for name, kind in found if kind in ("INT", "LONG", "SHORT")} == CLIENT_NUMBERS
    assert {name for name, kind in found if kind == "BOOLEAN"} == CLIENT_SWITCHES - {"auto.include.jmx.reporter"}


@pytest.mark.parametrize(
    ("text", "ms"),
    [("250", 250), ("250ms", 250), ("30s", 30_000), ("15m", 900_000), ("2min", 120_000), ("1h", 3_600_000)],
)
def test_a_time_is_written_as_spark_writes_it(text: str, ms: int) -> None:
    assert stream(maxTriggerDelay=text).max_trigger_delay_ms == ms


def test_what_both_kinds_of_reads_refuse_is_refused_before_the_kind_is_known() -> None:
    check_shared(LEAST | {"startingOffsets": "latest", "endingOffsets": "latest"})
    for wrong in ({"subscribe": ""}, {"kafka.security.protocol": "SSL"}, {"includeHeaders": "perhaps"}):
        with pytest.raises(BadOption):
            check_shared(LEAST | wrong)


def test_options_travel_to_executors() -> None:
    options = parse(without("subscribe", subscribePattern="or.*"), "stream")
    assert pickle.loads(pickle.dumps(options)) == options


names = st.text(st.sampled_from("abc._-"), min_size=1, max_size=5)
offsets = st.dictionaries(st.builds(TopicPartition, names, st.integers(0, 30)), st.integers(-2, 2**63 - 1), max_size=8)


@given(offsets)
def test_offsets_survive_json_in_one_and_the_same_form(given_offsets: dict[TopicPartition, int]) -> None:
    import json

    written = json.dumps(offsets_to(given_offsets))
    assert read_offsets(written) == given_offsets == offsets_from(json.loads(written))
    shuffled = dict(reversed(given_offsets.items()))
    assert json.dumps(offsets_to(shuffled)) == written


def test_partitions_are_written_in_the_order_of_their_numbers() -> None:
    written = offsets_to({TopicPartition("b", 10): 1, TopicPartition("b", 9): 2, TopicPartition("a", 0): 3})
    assert [(topic, list(by_partition)) for topic, by_partition in written.items()] == [
        ("a", ["0"]),
        ("b", ["9", "10"]),
    ]
