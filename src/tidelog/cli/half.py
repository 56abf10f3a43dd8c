"""`tidelog half`: show half messages that were not ended, and end them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tidelog.cli.complete import complete_topic
from tidelog.cli.options import connected, examples, noun, output_option, partitions_option, topic_of
from tidelog.cli.output import Column, plural, show, show_done, tell, warn
from tidelog.cli.places import iso

if TYPE_CHECKING:
    from tidelog.client import Client

_partition_option = click.option(
    "--partition", type=click.IntRange(0), help="Where the message is, if several have one with this ID."
)

command = noun("Show half messages that were not ended, and commit or roll them back.")


@command.command(
    "list", epilog=examples("tidelog half list orders-half", "tidelog half list orders-half --partition 0 -o json")
)
@click.argument("topic", shell_complete=complete_topic)
@partitions_option
@output_option()
@connected
def list_halves(client: Client, topic: str, partitions: list[int] | None, output: str) -> None:
    """List the half messages of a topic that have no end, or were committed and cannot be delivered."""
    from tidelog.client.half_messages import MOST_LISTED

    topic_of(client, topic)
    described = client.delays.describe(topic, partitions, MOST_LISTED)
    rows = [
        {
            "id": record.half_id,
            "state": record.state,
            "prepared": None if record.due_ms is None else iso(record.due_ms),
            "partition": record.partition,
            "offset": record.offset,
            "reason": record.reason,
        }
        for partition in described
        for record in partition.records
        if record.state != "sent"
    ]
    for partition in described:
        where = f"{topic}-{partition.partition}"
        if not partition.is_half:
            warn(f"{where}: {topic} is a delay topic: `tidelog delay list` shows what waits in it")
        if partition.stalled is not None:
            warn(f"{where}: {partition.stalled}")
        listed = sum(record.state == "malformed" for record in partition.records)
        if partition.malformed > listed:
            wrong = "neither a half message nor its end"
            warn(f"{where}: {plural(partition.malformed, 'record')} {wrong}, the first {listed} of them listed")
        if partition.waiting > MOST_LISTED:
            warn(f"{where}: {plural(partition.waiting, 'half message')}, of which the oldest {MOST_LISTED} are listed")
    if not rows and output in ("table", "wide"):
        tell("no half messages")
        return
    columns = [
        Column("ID", "id"),
        Column("STATE", "state"),
        Column("PREPARED", "prepared"),
        Column("PARTITION", "partition", right=True),
        Column("OFFSET", "offset", right=True),
        Column("REASON", "reason"),
    ]
    show(rows, columns, output, name="id")


@command.command(epilog=examples("tidelog half commit orders-half payment-17"))
@click.argument("topic", shell_complete=complete_topic)
@click.argument("half_id", metavar="ID")
@_partition_option
@output_option()
@connected
def commit(client: Client, topic: str, half_id: str, partition: int | None, output: str) -> None:
    """Commit a half message. It is delivered to the target of its topic."""
    _end(client, topic, half_id, partition, True, output)


@command.command(epilog=examples("tidelog half rollback orders-half payment-17"))
@click.argument("topic", shell_complete=complete_topic)
@click.argument("half_id", metavar="ID")
@_partition_option
@output_option()
@connected
def rollback(client: Client, topic: str, half_id: str, partition: int | None, output: str) -> None:
    """Roll a half message back. It is never delivered."""
    _end(client, topic, half_id, partition, False, output)


def _end(client: Client, topic: str, half_id: str, partition: int | None, is_commit: bool, output: str) -> None:
    topic_of(client, topic)
    half = client.halves.find(topic, half_id, partition)
    client.halves.end(topic, half.partition, half_id, is_commit)
    outcome = "committed" if is_commit else "rolled back"
    show_done({"topic": topic, "id": half_id, "outcome": outcome}, output, f"half message {half_id} {outcome}")
