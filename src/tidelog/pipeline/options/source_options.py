"""The options of `format("tidelog")`: those of Spark's Kafka connector, with its names, defaults and refusals.

Names are case-insensitive, values are text. Whatever cannot work is refused here, before anything is read, with a
message that names the option. Three kinds of options do nothing on purpose:

- `kafka.*` that tune a consumer which is not there (`kafka.max.poll.records` and its like).
- `groupIdPrefix` and `kafka.group.id`: executors read the partitions that the driver gave them and join no group.
- limits per trigger in a batch read.

What the client cannot do and the user would rely on, encryption and authentication, is refused; so are names that
Kafka's clients do not have, values that are not of the option's type, and Kafka's names without `kafka.`, which would
do nothing at all. Names that begin with `tidelog.` are ours, and those that are not there are refused as well.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from tidelog.client.cluster import TopicInfo
from tidelog.pipeline.offset_ranges import EARLIEST, LATEST, Offsets
from tidelog.pipeline.options.given import BOOTSTRAP, LEDGER_TOPIC, BadOption, Given, bootstrap_of
from tidelog.pipeline.options.offsets_json import read_offsets, read_partitions, read_timestamps
from tidelog.wire.partitions import TopicPartition

Isolation = Literal["read_uncommitted", "read_committed"]
Reading = Literal["batch", "stream"]

CONNECTOR_COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
HEADERS: Final = "headers"

SUBSCRIBE, SUBSCRIBE_PATTERN, ASSIGN = "subscribe", "subscribePattern", "assign"
_KNOWN: Final = (
    SUBSCRIBE,
    SUBSCRIBE_PATTERN,
    ASSIGN,
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "failOnDataLoss",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "includeHeaders",
    "groupIdPrefix",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "kafkaConsumer.pollTimeoutMs",
    BOOTSTRAP,
    "kafka.isolation.level",
    "kafka.client.id",
    "kafka.group.id",
    "kafka.security.protocol",
    "kafka.request.timeout.ms",
    "kafka.default.api.timeout.ms",
    "kafka.max.partition.fetch.bytes",
    "kafka.fetch.max.bytes",
)
_REFUSED: Final = {
    "kafka.auto.offset.reset": "say where to start with startingOffsets, 'earliest' or 'latest'",
    "kafka.key.deserializer": "keys are read as bytes; decode them with DataFrame operations",
    "kafka.value.deserializer": "values are read as bytes; decode them with DataFrame operations",
    "kafka.enable.auto.commit": "the checkpoint keeps the offsets, and nothing is committed to a group",
    "kafka.interceptor.classes": "interceptors are Java classes, and may change what is read",
}


@dataclass(frozen=True, slots=True)
class Named:
    """`subscribe`: all partitions of these topics."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Matching:
    """`subscribePattern`: all partitions of the topics in whose name the pattern is found, now and later."""

    pattern: re.Pattern[str]


@dataclass(frozen=True, slots=True)
class Assigned:
    """`assign`: these partitions."""

    partitions: tuple[TopicPartition, ...]


Subscription = Named | Matching | Assigned


def is_meant_by_patterns(topic: TopicInfo) -> bool:
    """Internal topics, and the ledger of writes, are read only where they are named."""
    return not topic.is_internal and topic.name != LEDGER_TOPIC


@dataclass(frozen=True, slots=True)
class AtWord:
    """The beginning or the end of every partition."""

    word: Literal["earliest", "latest"]


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """An offset per partition, `EARLIEST` and `LATEST` among them."""

    offsets: Offsets


@dataclass(frozen=True, slots=True)
class AtTimestamp:
    """The first record of every partition that is not older."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class AtTimestamps:
    """The first record that is not older, with a time per partition."""

    timestamps_ms: Offsets


Position = AtWord | AtOffsets | AtTimestamp | AtTimestamps


@dataclass(frozen=True, slots=True)
class SourceOptions:
    bootstrap: str
    subscription: Subscription
    starting: Position
    ending: Position
    #: where a partition begins that has no record as late as the time asked for
    no_match: Literal["error", "latest"] = "error"
    isolation: Isolation = "read_uncommitted"
    fail_on_data_loss: bool = True
    include_headers: bool = False
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = 900_000
    fetch_offset_retries: int = 3
    fetch_offset_retry_interval_ms: int = 1000
    poll_timeout_ms: int = 120_000
    request_timeout_ms: int = 30_000
    #: how much one fetch of a task asks for; what `range_reader` thinks best where nothing is said
    fetch_bytes: int | None = None
    client_id: str = "tidelog-spark"

    @property
    def columns(self) -> tuple[str, ...]:
        return (*CONNECTOR_COLUMNS, HEADERS) if self.include_headers else CONNECTOR_COLUMNS


def check_shared(options: Mapping[str, str]) -> bool:
    """Refuses what is wrong in a batch and in a stream alike, before it is known which; whether headers are read."""
    given = Given(options, _KNOWN, _REFUSED)
    bootstrap_of(given)
    _subscription(given)
    return given.switch("includeHeaders", False)


def parse(options: Mapping[str, str], reading: Reading) -> SourceOptions:
    """The options of a batch or a streaming read; `BadOption` for the first that cannot work."""
    given = Given(options, _KNOWN, _REFUSED)
    bootstrap = bootstrap_of(given)
    starting = _position(given, "starting", "earliest" if reading == "batch" else "latest")
    ending = _position(given, "ending", "latest")
    if reading == "batch":
        _check_batch_positions(starting, ending)
    elif ends := given.named("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"):
        raise BadOption(f"option {ends[0]} is for batch reads: a stream has no end")
    subscription = _subscription(given)
    least, most = given.number("minOffsetsPerTrigger", 0), given.number("maxOffsetsPerTrigger", 1)
    if least is not None and most is not None and least > most:
        raise BadOption(f"minOffsetsPerTrigger ({least}) is above maxOffsetsPerTrigger ({most})")
    defaults = SourceOptions(bootstrap, subscription, starting, ending)
    return SourceOptions(
        bootstrap,
        subscription,
        starting,
        ending,
        no_match=given.word("startingOffsetsByTimestampStrategy", ("error", "latest"), defaults.no_match),
        isolation=given.word("kafka.isolation.level", ("read_uncommitted", "read_committed"), defaults.isolation),
        fail_on_data_loss=given.switch("failOnDataLoss", True),
        include_headers=given.switch("includeHeaders", False),
        min_partitions=given.number("minPartitions", 1),
        max_records_per_partition=given.number("maxRecordsPerPartition", 1),
        max_offsets_per_trigger=most,
        min_offsets_per_trigger=least,
        max_trigger_delay_ms=given.duration_ms("maxTriggerDelay", defaults.max_trigger_delay_ms),
        fetch_offset_retries=given.number("fetchOffset.numRetries", 1) or defaults.fetch_offset_retries,
        fetch_offset_retry_interval_ms=given.duration_ms(
            "fetchOffset.retryIntervalMs", defaults.fetch_offset_retry_interval_ms
        ),
        poll_timeout_ms=given.number("kafkaConsumer.pollTimeoutMs", 1) or defaults.poll_timeout_ms,
        request_timeout_ms=given.number("kafka.default.api.timeout.ms", 1)
        or given.number("kafka.request.timeout.ms", 1)
        or defaults.request_timeout_ms,
        fetch_bytes=given.number("kafka.max.partition.fetch.bytes", 1) or given.number("kafka.fetch.max.bytes", 1),
        client_id=given.text("kafka.client.id") or defaults.client_id,
    )


def _subscription(given: Given) -> Subscription:
    ways = given.named(SUBSCRIBE, SUBSCRIBE_PATTERN, ASSIGN)
    if len(ways) != 1:
        all_of_them = f"{SUBSCRIBE}, {SUBSCRIBE_PATTERN} and {ASSIGN}"
        said = f"{' and '.join(ways)} are given" if ways else "none is given"
        raise BadOption(f"exactly one of {all_of_them} says what to read: {said}")
    value = given.text(ways[0]) or ""
    if ways[0] == ASSIGN:
        partitions = given.json(ASSIGN, read_partitions)
        if not partitions:
            raise BadOption(f"option {ASSIGN} is {value!r}: it names no partition")
        return Assigned(tuple(partitions))
    if ways[0] == SUBSCRIBE:
        topics = tuple(dict.fromkeys(filter(None, (topic.strip() for topic in value.split(",")))))
        if not topics:
            raise BadOption(f"option {SUBSCRIBE} is {value!r}: it names no topic")
        return Named(topics)
    if not value:
        raise BadOption(f"option {SUBSCRIBE_PATTERN} is empty: .* stands for all topics")
    try:
        return Matching(re.compile(value, re.ASCII))
    except re.error as error:
        raise BadOption(f"option {SUBSCRIBE_PATTERN} is {value!r}, which is no regular expression: {error}") from None


def _position(given: Given, end: Literal["starting", "ending"], default: Literal["earliest", "latest"]) -> Position:
    """In the order of the stock connector: one time for all, then times, then offsets."""
    if (timestamp_ms := given.number(f"{end}Timestamp", 0)) is not None:
        return AtTimestamp(timestamp_ms)
    if (timestamps_ms := given.json(f"{end}OffsetsByTimestamp", read_timestamps)) is not None:
        return AtTimestamps(timestamps_ms)
    word = (given.text(f"{end}Offsets") or default).lower()
    if word == "earliest":
        return AtWord("earliest")
    if word == "latest":
        return AtWord("latest")
    offsets = given.json(f"{end}Offsets", read_offsets)
    assert offsets is not None
    return AtOffsets(offsets)


def _check_batch_positions(starting: Position, ending: Position) -> None:
    if starting == AtWord("latest"):
        raise BadOption("option startingOffsets: a batch read cannot start at the latest offset, it would read nothing")
    if ending == AtWord("earliest"):
        raise BadOption("option endingOffsets: a batch read cannot end at the earliest offset, it would read nothing")
    for name, position, word, called in (
        ("startingOffsets", starting, LATEST, "start at the latest offset (-1)"),
        ("endingOffsets", ending, EARLIEST, "end at the earliest offset (-2)"),
    ):
        if isinstance(position, AtOffsets) and word in position.offsets.values():
            which = ", ".join(str(tp) for tp, offset in position.offsets.items() if offset == word)
            raise BadOption(f"option {name}: a batch read of {which} cannot {called}")
    if isinstance(starting, AtOffsets) and isinstance(ending, AtOffsets):
        _check_order(starting.offsets, ending.offsets, "Offsets")
    if isinstance(starting, AtTimestamps) and isinstance(ending, AtTimestamps):
        _check_order(starting.timestamps_ms, ending.timestamps_ms, "OffsetsByTimestamp")


def _check_order(starts: Offsets, ends: Offsets, kind: str) -> None:
    if differ := starts.keys() ^ ends.keys():
        which = ", ".join(map(str, sorted(differ)))
        raise BadOption(f"starting{kind} and ending{kind} must name the same partitions: only one of them has {which}")
    for tp, start in starts.items():
        if 0 <= ends[tp] < start:
            raise BadOption(f"{tp} starts at {start} and ends before it, at {ends[tp]}")
