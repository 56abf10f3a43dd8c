"""`tidelog delay`: show what waits in delay topics, what is stopped and why, and cancel records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tidelog.cli.complete import complete_topic
from tidelog.cli.options import connected, examples, noun, output_option, partitions_option, topic_of
from tidelog.cli.output import Column, plural, show, show_done, tell, warn
from tidelog.cli.places import iso

if TYPE_CHECKING:
    from tidelog.client import Client
    from tidelog.client.delayed_messages import DelayedPartition

command = noun("Show what waits in delay topics, and cancel records.")


@command.command(
    "list",
    epilog=examples(
        "tidelog delay list orders-later",
        "tidelog delay list orders-later --partition 0 --max-records 1000",
        "tidelog delay list orders-later -o json",
    ),
)
@click.argument("topic", shell_complete=complete_topic)
@partitions_option
@click.option(
    "--max-records", type=click.IntRange(0, 10_000), default=20, show_default=True, help="Most records per partition."
)
@output_option()
@connected
def list_delayed(client: Client, topic: str, partitions: list[int] | None, max_records: int, output: str) -> None:
    """List the records that wait in a delay topic. Those that are stopped come first, then those that are due first."""
    topic_of(client, topic)
    found = client.delays.describe(topic, partitions, max_records)
    rows: list[dict[str, Any]] = [
        {
            "place": f"{record.partition}@{record.offset}",
            "partition": record.partition,
            "offset": record.offset,
            "due": None if record.due_ms is None or partition.is_half else iso(record.due_ms),
            "due_ms": None if partition.is_half else record.due_ms,
            "state": record.state,
            "reason": record.reason,
        }
        for partition in found
        for record in partition.records
    ]
    columns = [
        Column("PARTITION", "partition", right=True),
        Column("OFFSET", "offset", right=True),
        Column("DUE", "due"),
        Column("STATE", "state"),
        Column("REASON", "reason"),
    ]
    if rows or output not in ("table", "wide"):
        show(rows, columns, output, name="place")
    for partition in found:
        _summarise(topic, partition)


def _summarise(topic: str, partition: DelayedPartition) -> None:
    where = f"{topic}-{partition.partition}"
    what = "half message" if partition.is_half else "record"
    tell(f"{where}: {plural(partition.waiting, what)} waiting for {partition.target}")
    if partition.malformed:
        wrong = "neither a half message nor its end" if partition.is_half else "with headers that name no time"
        listed = sum(record.state == "malformed" for record in partition.records)
        which = "" if listed == partition.malformed else f", {listed} of them listed (see --max-records)"
        warn(f"{where}: {plural(partition.malformed, 'record')} {wrong}{which}")
    if partition.held_back:
        tell(f"{where}: an open transaction holds back up to {plural(partition.held_back, 'record')} more")
    if partition.stalled is not None:
        warn(f"{where}: nothing is delivered: {partition.stalled}")


@command.command(
    epilog=examples("tidelog delay cancel orders-later 0 1234", "tidelog delay cancel orders-later 2 7 8 9")
)
@click.argument("topic", shell_complete=complete_topic)
@click.argument("partition", type=click.IntRange(0))
@click.argument("offsets", type=click.IntRange(0), nargs=-1, required=True)
@output_option()
@connected
def cancel(client: Client, topic: str, partition: int, offsets: tuple[int, ...], output: str) -> None:
    """Cancel records that wait, are stopped or malformed at these offsets. They will not be delivered; those that were
    already stay so. Half messages that are not ended are rolled back instead: see `tidelog half`."""
    from tidelog.client.errors import Refused

    topic_of(client, topic)
    said = client.delays.cancel(topic, partition, offsets)
    cancelled = [offset for offset, refusal in said.items() if refusal is None]
    refused = {offset: refusal for offset, refusal in said.items() if refusal is not None}
    if cancelled:
        done = {"topic": topic, "partition": partition, "cancelled": cancelled}
        show_done(done, output, f"cancelled {plural(len(cancelled), 'record')} of {topic}-{partition}")
    if refused:
        why = "; ".join(f"offset {offset}: {refusal}" for offset, refusal in refused.items())
        raise Refused(f"{plural(len(refused), 'record')} of {topic}-{partition} could not be cancelled ({why})")
