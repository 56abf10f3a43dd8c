"""Offsets as Spark's Kafka connector writes them: `{"orders":{"0":23,"1":-1}}`, and partitions as `{"orders":[0,1]}`.

In options -1 means the end of a partition and -2 its beginning; in a checkpoint every offset is a number of its own,
that of the record to be read next. Spark compares offsets as text, so topics and partitions are always in order.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tidelog.pipeline.offset_ranges import EARLIEST, Offsets
from tidelog.wire.partitions import TopicPartition

#: what the same looks like as JSON: topic -> partition, as text -> offset
OffsetsJson = dict[str, dict[str, int]]


class BadJson(ValueError):
    """The text does not have the form; `str(error)` says what was expected."""


def read_partitions(text: str) -> list[TopicPartition]:
    expected = '{"topicA":[0,1],"topicB":[2]}'
    found = _load(text, expected)
    partitions = []
    for topic, numbers in found.items():
        if not isinstance(numbers, list) or not all(_is_whole(n) and n >= 0 for n in numbers):
            raise BadJson(f"expected the numbers of partitions per topic, such as {expected}, got {text}")
        partitions += [TopicPartition(topic, n) for n in numbers]
    return sorted(set(partitions))


def read_offsets(text: str) -> Offsets:
    """Offsets of an option: -1 and -2 are words in it."""
    expected = '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'
    return _read_numbers(text, expected, EARLIEST, "offsets, -1 for the latest and -2 for the earliest")


def read_timestamps(text: str) -> Offsets:
    expected = '{"topicA":{"0":1700000000000,"1":1700000000000}}'
    return _read_numbers(text, expected, 0, "milliseconds since 1970")


def offsets_from(found: Mapping[str, Mapping[str, int]]) -> Offsets:
    """Offsets from a checkpoint, already parsed."""
    return {
        TopicPartition(topic, int(p)): offset
        for topic, by_partition in found.items()
        for p, offset in by_partition.items()
    }


def offsets_to(offsets: Mapping[TopicPartition, int]) -> OffsetsJson:
    """Offsets for a checkpoint, in the order in which they are always written."""
    written: OffsetsJson = {}
    for tp in sorted(offsets):
        written.setdefault(tp.topic, {})[str(tp.partition)] = offsets[tp]
    return written


def _read_numbers(text: str, expected: str, least: int, what: str) -> Offsets:
    read: Offsets = {}
    for topic, by_partition in _load(text, expected).items():
        if not isinstance(by_partition, dict):
            raise BadJson(f"expected {what}, per topic and partition, such as {expected}, got {text}")
        for partition, number in by_partition.items():
            if not (partition.isascii() and partition.isdigit() and _is_whole(number) and number >= least):
                raise BadJson(f"expected {what}, per topic and partition, such as {expected}, got {text}")
            read[TopicPartition(topic, int(partition))] = number
    return read


def _load(text: str, expected: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise BadJson(f"expected JSON such as {expected}, got {text!r} ({error})") from None
    if not isinstance(found, dict):
        raise BadJson(f"expected JSON such as {expected}, got {text}")
    return found


def _is_whole(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool)
