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

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeVar

from tidelog.pipeline.options.kafka_names import CLIENT_NAMES, CLIENT_NUMBERS, CLIENT_SWITCHES, PREFIX, SECURITY
from tidelog.pipeline.options.offsets_json import (
    EARLIEST,
    LATEST,
    BadJson,
    Offsets,
    TopicPartition,
    read_offsets,
    read_partitions,
    read_timestamps,
)

T = TypeVar("T")
Isolation = Literal["read_uncommitted", "read_committed"]
Reading = Literal["batch", "stream"]

COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
HEADERS: Final = "headers"

SUBSCRIBE, SUBSCRIBE_PATTERN, ASSIGN = "subscribe", "subscribePattern", "assign"
_BOOTSTRAP: Final = "kafka.bootstrap.servers"
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
    _BOOTSTRAP,
    "kafka.isolation.level",
    "kafka.client.id",
    "kafka.group.id",
    "kafka.security.protocol",
    "kafka.request.timeout.ms",
    "kafka.default.api.timeout.ms",
    "kafka.max.partition.fetch.bytes",
    "kafka.fetch.max.bytes",
)
#: what options of our own begin with
OURS: Final = "tidelog."
_REFUSED: Final = {
    "kafka.auto.offset.reset": "say where to start with startingOffsets, 'earliest' or 'latest'",
    "kafka.key.deserializer": "keys are read as bytes; decode them with DataFrame operations",
    "kafka.value.deserializer": "values are read as bytes; decode them with DataFrame operations",
    "kafka.enable.auto.commit": "the checkpoint keeps the offsets, and nothing is committed to a group",
    "kafka.interceptor.classes": "interceptors are Java classes, and may change what is read",
}
_UNIT_MS: Final = {
    "": 1, "us": 0.001, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000,
}  # fmt: skip


class BadOption(ValueError):
    """An option has a value that cannot work; the message names it and says what would."""


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
    #: how much one fetch of a task asks for; what `reading` thinks best where nothing is said
    fetch_bytes: int | None = None
    client_id: str = "tidelog-spark"

    @property
    def columns(self) -> tuple[str, ...]:
        return (*COLUMNS, HEADERS) if self.include_headers else COLUMNS


def check_shared(options: Mapping[str, str]) -> bool:
    """Refuses what is wrong in a batch and in a stream alike, before it is known which; whether headers are read."""
    given = Given(options)
    bootstrap_of(given)
    _subscription(given)
    return given.switch("includeHeaders", False)


def parse(options: Mapping[str, str], reading: Reading) -> SourceOptions:
    """The options of a batch or a streaming read; `BadOption` for the first that cannot work."""
    given = Given(options)
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


class Given:
    """The options as they were given, looked up without regard to case."""

    def __init__(
        self,
        options: Mapping[str, str],
        known: tuple[str, ...] = _KNOWN,
        refused: Mapping[str, str] = _REFUSED,
    ) -> None:
        self._options = {name.lower(): value for name, value in options.items()}
        self._refuse_what_cannot_be_honoured(refused)
        self._refuse_misspellings(known)
        self._refuse_other_types()

    def _refuse_misspellings(self, names: tuple[str, ...]) -> None:
        """Names of Kafka's have to be some; others are ignored, as by the stock connector, unless all but right."""
        known = {name.lower(): name for name in (*names, *(PREFIX + name for name in CLIENT_NAMES))}
        for name in (name for name in self._options if name not in known):
            if f"{PREFIX}{name}" in known:
                raise BadOption(f"option {name} does nothing: write {PREFIX}{name}")
            if name.startswith(OURS):
                ours = [own for own in names if own.startswith(OURS)]
                said = f"those that begin with {OURS} are {', '.join(ours)}" if ours else f"none begins with {OURS}"
                raise BadOption(f"there is no option {name} here: {said}")
            kafkas = name.startswith(PREFIX)
            close = difflib.get_close_matches(name, known, n=1, cutoff=0.6 if kafkas else 0.88)
            if kafkas or close:
                meant = f": did you mean {known[close[0]]}?" if close else ": Kafka's clients have none of that name"
                raise BadOption(f"there is no option {name!r}{meant}")

    def _refuse_other_types(self) -> None:
        """Where an option of Kafka's does nothing here, its value is still to be one that Kafka would take."""
        for name in self._options:
            if name.removeprefix(PREFIX) in CLIENT_NUMBERS:
                self.number(name, -1)
            elif name.removeprefix(PREFIX) in CLIENT_SWITCHES:
                self.switch(name, False)

    def _refuse_what_cannot_be_honoured(self, refused: Mapping[str, str]) -> None:
        for name, instead in refused.items():
            if name in self._options:
                raise BadOption(f"option {name} is not supported: {instead}")
        protocol = self._options.get("kafka.security.protocol", "PLAINTEXT").strip().upper()
        only = "this connects in PLAINTEXT only: give it a PLAINTEXT listener, or use format('kafka')"
        if protocol != "PLAINTEXT":
            raise BadOption(f"option kafka.security.protocol is {protocol}, and {only}")
        for name in self._options:
            if name.removeprefix(PREFIX).startswith(SECURITY) and name != "kafka.security.protocol":
                raise BadOption(f"option {name} is given, and {only}")

    def named(self, *names: str) -> tuple[str, ...]:
        return tuple(name for name in names if name.lower() in self._options)

    def text(self, name: str) -> str | None:
        value = self._options.get(name.lower())
        return None if value is None else value.strip()

    def switch(self, name: str, default: bool) -> bool:
        return self.word(name, ("true", "false"), "true" if default else "false") == "true"

    def word(self, name: str, words: tuple[T, ...], default: T) -> T:
        value = self.text(name)
        if value is None:
            return default
        for word in words:
            if value.lower() == word:
                return word
        raise BadOption(f"option {name} is {value!r}: write {' or '.join(map(str, words))}")

    def number(self, name: str, least: int) -> int | None:
        value = self.text(name)
        if value is None:
            return None
        if not re.fullmatch(r"[+-]?[0-9]+", value) or int(value) < least:
            raise BadOption(f"option {name} is {value!r}: write a whole number, {least} or more")
        return int(value)

    def duration_ms(self, name: str, default: int) -> int:
        value = self.text(name)
        if value is None:
            return default
        found = re.fullmatch(r"([0-9]+)\s*([a-z]*)", value.lower())
        if not found or found[2] not in _UNIT_MS:
            raise BadOption(f"option {name} is {value!r}: write a time such as 500ms, 30s, 15m or 1h")
        return int(int(found[1]) * _UNIT_MS[found[2]])

    def json(self, name: str, read: Callable[[str], T]) -> T | None:
        value = self.text(name)
        if value is None:
            return None
        try:
            return read(value)
        except BadJson as error:
            raise BadOption(f"option {name}: {error}") from None


def bootstrap_of(given: Given) -> str:
    bootstrap = given.text(_BOOTSTRAP)
    if not bootstrap:
        raise BadOption(f"option {_BOOTSTRAP} is missing: write host:port of a broker")
    return bootstrap


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
