"""What `tidelog pipeline replay` is asked for: offsets, times, partitions and values, as a range of each partition."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tidelog.cli.options import partition_list
from tidelog.cli.places import EARLIEST, LATEST, Place, ends_of, resolve

if TYPE_CHECKING:
    from tidelog.pipeline.spec import Pipeline
    from tidelog.pipeline.table.tables import Tables
    from tidelog.wire.partitions import TopicPartition


def replay_scope(
    pipeline: Pipeline,
    since: Place | None,
    until: Place | None,
    topics: tuple[str, ...],
    values: tuple[str, ...],
    timeout_s: float,
) -> tuple[dict[TopicPartition, tuple[int, int]] | None, Any, Any, dict[str, int]]:
    """(what the options ask for, the tables, what the log holds, which topics those are); None for everything."""
    from tidelog.client import Client
    from tidelog.pipeline.errors import NotReady
    from tidelog.pipeline.run.brokers import Brokers
    from tidelog.pipeline.table.tables import Tables
    from tidelog.wire.partitions import TopicPartition

    tables = Tables.look(pipeline)
    if tables is None or tables.table.epoch is None:
        raise NotReady(f"pipeline {pipeline.name} has no table yet", f"tidelog pipeline run {pipeline.file}")
    with Brokers(pipeline.source, timeout_s) as brokers:
        partitions = brokers.partitions()
        ends = brokers.ends(partitions)
    if since is None and until is None and not topics and not values:
        return None, tables, ends, brokers.topic_ids
    chosen = _chosen(partitions, topics)
    wanted: dict[TopicPartition, tuple[int, int]] = {}
    with Client(pipeline.source.bootstrap, "tidelog-cli", timeout_s) as client:
        for topic in sorted({topic for topic, _ in chosen}):
            own = ends_of(client, topic, [p for t, p in chosen if t == topic])
            first = resolve(client, topic, since or EARLIEST, own)
            last = resolve(client, topic, until or LATEST, own)
            for partition in own:
                at = TopicPartition(topic, partition)
                # Without a bound it is the table's own, which may lie outside of what the log holds now.
                start = first[partition] if since is not None else 0
                end = last[partition] if until is not None else tables.offset(at) or 0
                wanted[at] = (start, end)
    if since is not None and until is not None:
        _check_order(since, until, [(start, min(end, ends[at].end)) for at, (start, end) in wanted.items()])
    if until is not None and until.time_ms is not None:
        wanted = _with_stragglers(pipeline, tables, wanted, since, until.time_ms)
    if values:
        wanted = _with_values(pipeline, tables, wanted, values)
    return wanted, tables, ends, brokers.topic_ids


def _check_order(since: Place, until: Place, offsets: list[tuple[int, int]]) -> None:
    """Refuses a range whose end lies before its beginning."""
    both = zip(_comparable(since), _comparable(until), strict=True)
    same_kind = [(start, end) for start, end in both if start is not None and end is not None]
    # A time and an offset are compared where the log says which offset the time is.
    found = same_kind or offsets
    if any(start > end for start, end in found) and all(start >= end for start, end in found):
        raise click.UsageError("--until lies before --from: the first is where the replay ends, exclusive.")


def _comparable(place: Place) -> tuple[int | None, ...]:
    word = None if place.word is None else int(place == LATEST)
    return word, place.offset, None if place.last is None else -place.last, place.time_ms


def _with_stragglers(
    pipeline: Pipeline,
    tables: Tables,
    wanted: dict[TopicPartition, tuple[int, int]],
    since: Place | None,
    until_ms: int,
) -> dict[TopicPartition, tuple[int, int]]:
    """What is asked for up to a time, with the records that are of that time and behind later ones."""
    from tidelog.pipeline.errors import PipelineError
    from tidelog.pipeline.run.table_replay import check_origin
    from tidelog.pipeline.table.rewriting import LETTERS
    from tidelog.pipeline.table.selecting import in_time

    origin = check_origin(pipeline, tables.table.schema.names)
    timestamp = "timestamp" if pipeline.decode.format == "raw" else dict(pipeline.decode.metadata).get("timestamp")
    since_ms = None if since is None else since.time_ms
    if timestamp is None or timestamp not in tables.table.schema.names:
        if all(first >= last for first, last in wanted.values()):
            raise PipelineError(
                "the log has no such records in its order, and where its timestamps are out of order it cannot tell: "
                "the rows of the table do not have theirs",
                "give --from and --until as offsets; times need timestamp among [table] metadata",
            )
        return wanted
    found = [in_time(tables.table, origin, timestamp, since_ms, until_ms)]
    if tables.letters is not None:
        found.append(in_time(tables.letters, LETTERS, "timestamp", since_ms, until_ms))
    return {
        at: (first, max([last, *(own[at][1] for own in found if at in own)])) for at, (first, last) in wanted.items()
    }


def _with_values(
    pipeline: Pipeline, tables: Tables, wanted: dict[TopicPartition, tuple[int, int]], values: tuple[str, ...]
) -> dict[TopicPartition, tuple[int, int]]:
    """Of what is asked for, the offsets of rows with these partition values."""
    from tidelog.pipeline.run.table_replay import check_origin
    from tidelog.pipeline.table.selecting import in_partition

    named: dict[str, str | None] = {}
    for text in values:
        name, equals, value = text.partition("=")
        if not equals:
            raise click.UsageError(f"--where {text!r} is not COLUMN=VALUE, such as day=2026-01-31.")
        # To Delta an empty text is the same as null.
        named[name] = value or None
    found = in_partition(tables.table, check_origin(pipeline, tables.table.schema.names), named)
    return {
        at: (max(first, found[at][0]), min(last, found[at][1])) for at, (first, last) in wanted.items() if at in found
    }


def _chosen(partitions: list[TopicPartition], topics: tuple[str, ...]) -> list[TopicPartition]:
    if not topics:
        return partitions
    chosen: list[TopicPartition] = []
    for text in topics:
        name, _, listed = text.partition(":")
        numbers = partition_list(None, None, (listed,)) if listed else None
        found = [at for at in partitions if at[0] == name and (numbers is None or at[1] in numbers)]
        if not found or (numbers is not None and len(found) < len(numbers)):
            raise click.UsageError(f"{text!r} is not read by this pipeline.")
        chosen += found
    return chosen
