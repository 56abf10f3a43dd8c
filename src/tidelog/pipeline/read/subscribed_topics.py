"""What the driver asks the brokers: which partitions are subscribed, and which offsets they hold.

Every question is asked afresh, so that topics and partitions that were added or deleted are seen. A question that fails
is asked again `fetchOffset.numRetries` times, each time over new connections, with `fetchOffset.retryIntervalMs` in
between; what the client itself tries again within one attempt comes on top of that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import NamedTuple, Self, TypeVar

from tidelog.client import Client, ClientError
from tidelog.client.cluster import TopicInfo
from tidelog.client.errors import NotFound, Refused
from tidelog.client.offsets import When
from tidelog.pipeline.offset_ranges import EARLIEST, LATEST, Offsets
from tidelog.pipeline.options.source_options import (
    AtOffsets,
    AtTimestamp,
    AtTimestamps,
    AtWord,
    Isolation,
    Matching,
    Named,
    Position,
    SourceOptions,
    is_meant_by_patterns,
)
from tidelog.wire.partitions import TopicPartition

T = TypeVar("T")


class TopicsUnavailable(RuntimeError):
    """The brokers did not say what is to be read; the message has their answer and what can be done."""


class Resolved(NamedTuple):
    """A position as offsets."""

    offsets: Offsets
    #: the partitions whose offset is the end as of now, and would be another if it were asked again
    at_the_end: frozenset[TopicPartition]


class SubscribedTopics:
    def __init__(self, options: SourceOptions, sleep: Callable[[float], None] = time.sleep) -> None:
        self._options = options
        self._sleep = sleep
        self._client: Client | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()

    # --- questions ----------------------------------------------------------------------------------

    def earliest(self, wanted: Iterable[TopicPartition]) -> Offsets:
        """The first offsets of those partitions that (still) exist."""
        partitions = set(wanted)
        if not partitions:
            return {}
        return self._ask(lambda client: _list(client, partitions & set(self._existing(client)), "earliest"))

    def latest(self, known: Mapping[TopicPartition, int] | None = None) -> Offsets:
        """The ends of all subscribed partitions, as far as `kafka.isolation.level` lets one read.

        A `known` partition that is missing is asked for again, and so is one that ends before its known offset: a
        broker that has just taken over may not know better yet. After the last attempt it is believed. What was named
        and is not there is `TopicsUnavailable`, or left out where losses are allowed.
        """
        partitions = self._partitions if self._options.fail_on_data_loss else self._existing
        attempt = 1
        while True:
            ends = self._ask(lambda client: _list(client, partitions(client), "latest", self._options.isolation))
            behind = known is not None and any(tp not in ends or ends[tp] < known[tp] for tp in known)
            if not behind or attempt >= self._options.fetch_offset_retries:
                return ends
            attempt += 1
            self._sleep(self._options.fetch_offset_retry_interval_ms / 1000)

    def resolve(self, position: Position, *, starting: bool) -> Resolved:
        """Where the subscribed partitions start, or end, when that is said by `position`."""
        return self._ask(lambda client: self._resolve(client, position, starting))

    # --- answers ------------------------------------------------------------------------------------

    def _ask(self, question: Callable[[Client], T]) -> T:
        attempt = 1
        while True:
            try:
                if self._client is None:
                    given = self._options
                    timeout_s = given.request_timeout_ms / 1000
                    self._client = Client(given.bootstrap, given.client_id, timeout_s, wait_for_first=True)
                return question(self._client)
            except ClientError as error:
                self.close()
                if attempt >= self._options.fetch_offset_retries or isinstance(error, Refused):
                    hint = f"; {error.hint}" if error.hint else ""
                    raise TopicsUnavailable(f"{error}{hint}") from error
            attempt += 1
            self._sleep(self._options.fetch_offset_retry_interval_ms / 1000)

    def _partitions(self, client: Client) -> list[TopicPartition]:
        """All subscribed partitions; `NotFound` where one that was named does not exist."""
        subscription = self._options.subscription
        if isinstance(subscription, Matching):
            return self._existing(client)
        if isinstance(subscription, Named):
            return _partitions_of(client.describe(subscription.topics).topics.values())
        there = _partitions_of(client.describe({tp.topic for tp in subscription.partitions}).topics.values())
        if missing := set(subscription.partitions) - set(there):
            names = ", ".join(map(str, sorted(missing)))
            raise NotFound(f"option assign names {names}, and there is no such partition")
        return list(subscription.partitions)

    def _existing(self, client: Client) -> list[TopicPartition]:
        """The subscribed partitions that there are."""
        subscription = self._options.subscription
        topics = client.describe().topics.values()
        if isinstance(subscription, Matching):
            return _partitions_of(t for t in topics if is_meant_by_patterns(t) and subscription.pattern.search(t.name))
        if isinstance(subscription, Named):
            return _partitions_of(t for t in topics if t.name in subscription.topics)
        return [tp for tp in _partitions_of(topics) if tp in subscription.partitions]

    def _resolve(self, client: Client, position: Position, starting: bool) -> Resolved:
        partitions = self._partitions(client)
        isolation = self._options.isolation
        if isinstance(position, AtWord):
            offsets = _list(client, partitions, position.word, isolation)
            return Resolved(offsets, frozenset(partitions if position.word == "latest" else ()))
        if isinstance(position, AtOffsets):
            _check_named(position.offsets, partitions, "starting" if starting else "ending", "Offsets")
            offsets = dict(position.offsets)
        else:
            offsets = self._at_timestamps(client, position, partitions, starting)
        ends = {tp for tp, offset in offsets.items() if offset == LATEST}
        beginnings = {tp for tp, offset in offsets.items() if offset == EARLIEST}
        offsets |= _list(client, ends, "latest", isolation) | _list(client, beginnings, "earliest", isolation)
        return Resolved(offsets, frozenset(ends))

    def _at_timestamps(
        self, client: Client, position: AtTimestamp | AtTimestamps, partitions: list[TopicPartition], starting: bool
    ) -> Offsets:
        """The first offsets at or after a time; `LATEST` where there is none and that is what is wanted."""
        if isinstance(position, AtTimestamp):
            times = dict.fromkeys(partitions, position.timestamp_ms)
        else:
            times = position.timestamps_ms
            _check_named(times, partitions, "starting" if starting else "ending", "OffsetsByTimestamp")
        offsets: Offsets = {}
        for time_ms in set(times.values()):
            asked = {tp for tp, at in times.items() if at == time_ms}
            offsets |= _list(client, asked, time_ms, self._options.isolation)
        late = sorted(tp for tp, offset in offsets.items() if offset < 0)
        if late and starting and self._options.no_match == "error":
            raise Refused(
                f"{late[0]} has no record at or after {times[late[0]]}",
                hint="ask for an earlier time, or set startingOffsetsByTimestampStrategy to latest",
            )
        return offsets | dict.fromkeys(late, LATEST)


def _partitions_of(topics: Iterable[TopicInfo]) -> list[TopicPartition]:
    return sorted(TopicPartition(topic.name, partition) for topic in topics for partition in topic.partitions)


def _list(
    client: Client, partitions: Iterable[TopicPartition], when: When, isolation: Isolation = "read_uncommitted"
) -> Offsets:
    by_topic: dict[str, list[int]] = {}
    for tp in partitions:
        by_topic.setdefault(tp.topic, []).append(tp.partition)
    return {
        TopicPartition(topic, number): at.offset
        for topic, numbers in by_topic.items()
        for number, at in client.offsets(topic, numbers, when, isolation).items()
    }


def _check_named(named: Offsets, partitions: list[TopicPartition], end: str, kind: str) -> None:
    """Whoever names offsets names all of them: a partition left out would be read from nobody knows where."""
    missing, unknown = sorted(set(partitions) - named.keys()), sorted(named.keys() - set(partitions))
    hint = "-1 stands for the latest offset and -2 for the earliest" if kind == "Offsets" else None
    if missing:
        raise Refused(f"option {end}{kind} says nothing of {', '.join(map(str, missing))}", hint=hint)
    if unknown:
        raise Refused(f"option {end}{kind} names {', '.join(map(str, unknown))}, which is not read", hint=hint)
