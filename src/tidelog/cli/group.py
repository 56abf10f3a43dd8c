"""`tidelog group`: list and describe consumer groups, show their lag, and reset or delete their offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from tidelog.cli.complete import complete_group, complete_topic
from tidelog.cli.options import (
    check_known,
    confirm,
    connected,
    dry_run_option,
    examples,
    noun,
    output_option,
    partition_list,
    topic_of,
    yes_option,
)
from tidelog.cli.output import Column, Row, plural, show, show_fields, show_one, show_table, tell
from tidelog.cli.places import PartitionEnds, Place, ends_of, resolve, where
from tidelog.wire.partitions import TopicPartition

if TYPE_CHECKING:
    from tidelog.client import Client
    from tidelog.client.groups import DescribedGroup

SHARE: Final = "share"

command = noun("Show consumer groups, their members and lag, and reset their offsets.")
group_argument = click.argument("group", shell_complete=complete_group)


@command.command(
    "list", epilog=examples("tidelog group list", "tidelog group list --state Stable", "tidelog group list -o name")
)
@click.argument("pattern", default="*")
@click.option("--state", "states", multiple=True, help="Only groups in this state, such as Stable or Empty.")
@click.option("--type", "types", multiple=True, help="Only classic, consumer, share or streams groups.")
@output_option()
@connected
def list_groups(client: Client, pattern: str, states: tuple[str, ...], types: tuple[str, ...], output: str) -> None:
    """List groups, or only those that match PATTERN (with * and ?)."""
    from fnmatch import fnmatchcase

    rows = [
        {
            "group": g.group_id,
            "state": g.state,
            "type": g.type,
            "protocol_type": g.protocol_type,
            "coordinator": g.coordinator,
        }
        for g in client.groups.list_all(states, types)
        if fnmatchcase(g.group_id, pattern)
    ]
    if not rows and output in ("table", "wide"):
        tell("no groups")
        return
    columns = [
        Column("GROUP", "group"),
        Column("STATE", "state"),
        Column("TYPE", "type"),
        Column("PROTOCOL", "protocol_type", wide=True),
        Column("COORDINATOR", "coordinator", wide=True, right=True),
    ]
    show(rows, columns, output, name="group")


def _described(client: Client, group: str) -> DescribedGroup:
    """The group, or an error that suggests another name."""
    from tidelog.client.errors import NotFound

    try:
        return client.groups.describe(group)
    except NotFound as error:
        check_known([g.group_id for g in client.groups.list_all()], group, "group")
        raise error


class Position(NamedTuple):
    """The position of a group in a partition."""

    offset: int
    #: None where it follows from the end of the partition
    lag: int | None = None
    metadata: str | None = None


def _positions(client: Client, group: str, kind: str) -> dict[TopicPartition, Position]:
    if kind == SHARE:
        # What lies behind the start of a share group may be done with in part: the broker knows.
        started = client.share_groups.offsets(group).items()
        return {at: Position(start.offset, start.lag if start.lag >= 0 else None) for at, start in started}
    committed = client.groups.offsets(group).items()
    return {at: Position(position.offset, None, position.metadata) for at, position in committed}


def _lag(position: Position | None, ends: PartitionEnds | None) -> int | None:
    if position is None or ends is None:
        return None
    return max(0, ends.end - position.offset) if position.lag is None else position.lag


def _ends(client: Client, partitions: set[TopicPartition]) -> dict[TopicPartition, PartitionEnds]:
    """The offsets in each partition, without partitions of deleted topics."""
    known = client.describe().topics
    found: dict[TopicPartition, PartitionEnds] = {}
    for topic in {topic for topic, _ in partitions} & known.keys():
        led = [
            p.partition
            for p in known[topic].partitions.values()
            if p.leader >= 0 and (topic, p.partition) in partitions
        ]
        for partition, ends in ends_of(client, topic, led).items():
            found[TopicPartition(topic, partition)] = ends
    return found


@command.command(epilog=examples("tidelog group describe billing", "tidelog group describe billing -o json | jq .lag"))
@group_argument
@output_option()
@connected
def describe(client: Client, group: str, output: str) -> None:
    """Describe a group: its state, its members and its lag."""
    about = _described(client, group)
    positions = _positions(client, group, about.type)
    owners = {where: member for member in about.members for where in member.assignment}
    places = {*positions, *owners}
    ends = _ends(client, places)
    rows: list[Row] = []
    for place in sorted(places):
        at, end, owner = positions.get(place), ends.get(place), owners.get(place)
        rows.append(
            {
                "topic": place.topic,
                "partition": place.partition,
                "committed": at.offset if at else None,
                "end_offset": end.end if end else None,
                "lag": _lag(at, end),
                "member": owner.member_id if owner else None,
                "client": owner.client_id if owner else None,
                "host": owner.host if owner else None,
                "metadata": at.metadata if at else None,
            }
        )
    members = [
        {
            "member": m.member_id,
            "instance": m.instance_id,
            "client": m.client_id,
            "host": m.host,
            "partitions": [f"{topic}-{partition}" for topic, partition in m.assignment],
        }
        for m in about.members
    ]
    described: dict[str, Any] = {
        "group": group,
        "type": about.type,
        "state": about.state,
        "protocol_type": about.protocol_type,
        "assignor": about.assignor,
        "coordinator": about.coordinator,
        "lag": sum(row["lag"] or 0 for row in rows),
        "members": members,
        "offsets": rows,
    }

    def people() -> None:
        _show_group(described, wide=output == "wide")

    show_one(described, output, people, name="group")


def _show_group(group: dict[str, Any], wide: bool) -> None:
    show_fields(
        [
            ("Group", group["group"]),
            ("State", group["state"]),
            ("Type", group["type"]),
            ("Assignor", group["assignor"]),
            ("Coordinator", group["coordinator"]),
            ("Members", len(group["members"])),
            ("Lag", group["lag"]),
        ]
    )
    columns = [
        Column("TOPIC", "topic"),
        Column("PARTITION", "partition", right=True),
        Column("COMMITTED", "committed", right=True),
        Column("END", "end_offset", right=True),
        Column("LAG", "lag", right=True),
        Column("CLIENT", "client"),
        Column("HOST", "host", wide=True),
        Column("MEMBER", "member", wide=True),
        Column("METADATA", "metadata", wide=True),
    ]
    if group["offsets"]:
        click.echo()
        show_table(group["offsets"], [column for column in columns if wide or not column.wide])
    idle = [member for member in group["members"] if not member["partitions"]]
    if idle:
        click.echo()
        click.echo(f"{plural(len(idle), 'member')} without partitions: {', '.join(m['member'] for m in idle)}")


@command.command(
    epilog=examples(
        "tidelog group reset billing --topic orders --to earliest --dry-run",
        "tidelog group reset billing --topic orders --to -1h",
        "tidelog group reset billing --topic orders:0,2 --to 1200 --yes",
        "tidelog group reset billing --all-topics --shift -100",
    )
)
@group_argument
@click.option(
    "-t",
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC[:PARTITIONS]",
    shell_complete=complete_topic,
    help="What to reset, such as orders or orders:0,2; may be repeated.",
)
@click.option("--all-topics", is_flag=True, help="Reset all partitions for which the group has committed offsets.")
@click.option("--to", "place", type=where, metavar="POSITION", help="New position, as in `consume --from`.")
@click.option("--shift", type=int, metavar="N", help="Move by this many offsets, backwards if negative.")
@yes_option
@dry_run_option
@output_option("table", "json", "yaml")
@connected
def reset(
    client: Client,
    group: str,
    topics: tuple[str, ...],
    all_topics: bool,
    place: Place | None,
    shift: int | None,
    yes: bool,
    dry_run: bool,
    output: str,
) -> None:
    """Change the committed offsets of a group that has no members.

    A preview is shown first. Offsets that a partition does not hold are changed to the nearest one that it does.
    """
    if (place is None) == (shift is None):
        raise click.UsageError("Specify the new position with either --to or --shift.")
    if bool(topics) == all_topics:
        raise click.UsageError("Specify what to reset with either --topic or --all-topics.")
    kind = _kind_without_members(client, group)
    committed = _positions(client, group, kind)
    wanted = _chosen(client, topics) if topics else set(committed)
    if not wanted:
        tell(f"group {group} has not committed any offsets")
        return
    ends = _ends(client, wanted)
    targets = _targets(client, ends, place, shift, {where: at.offset for where, at in committed.items()})
    rows: list[Row] = []
    for target_at, target in sorted(targets.items()):
        before = committed.get(target_at)
        rows.append(
            {
                "topic": target_at.topic,
                "partition": target_at.partition,
                "committed": before.offset if before else None,
                "new_offset": target,
                "change": target - before.offset if before else None,
                "lag": ends[target_at].end - target,
            }
        )
    columns = [
        Column("TOPIC", "topic"),
        Column("PARTITION", "partition", right=True),
        Column("COMMITTED", "committed", right=True),
        Column("NEW OFFSET", "new_offset", right=True),
        Column("CHANGE", lambda row: None if row["change"] is None else f"{row['change']:+d}", right=True),
        Column("LAG", "lag", right=True),
    ]
    show(rows, columns, output)
    if dry_run or not rows:
        return
    confirm(f"Reset group {group} in {plural(len(rows), 'partition')}?", yes)
    if kind == SHARE:
        client.share_groups.move(group, targets)
    else:
        client.groups.commit(group, targets)
    tell(f"group {group} reset in {plural(len(rows), 'partition')}")


def _kind_without_members(client: Client, group: str) -> str:
    """The type of a group that may be reset: it has no members, or does not exist yet."""
    from tidelog.client.errors import ClientError, NotFound

    try:
        about = client.groups.describe(group)
    except NotFound:
        # Committing makes the group.
        return "classic"
    if about.members:
        clients = ", ".join(sorted({member.client_id for member in about.members}))
        raise ClientError(
            f"group {group} has {plural(len(about.members), 'member')} ({clients}) that would overwrite the reset",
            hint="stop its consumers first",
        )
    return about.type


def _chosen(client: Client, topics: tuple[str, ...]) -> set[TopicPartition]:
    """The partitions that arguments such as `orders` and `orders:0,2` name."""
    wanted: set[TopicPartition] = set()
    for text in topics:
        name, _, listed = text.partition(":")
        info = topic_of(client, name)
        partitions = partition_list(None, None, (listed,)) if listed else list(info.partitions)
        for partition in partitions or ():
            if partition not in info.partitions:
                from tidelog.client.cluster import no_such_partition

                raise no_such_partition(info, partition)
            wanted.add(TopicPartition(name, partition))
    return wanted


def _targets(
    client: Client,
    ends: dict[TopicPartition, PartitionEnds],
    place: Place | None,
    shift: int | None,
    committed: dict[TopicPartition, int],
) -> dict[TopicPartition, int]:
    targets: dict[TopicPartition, int] = {}
    for topic in {topic for topic, _ in ends}:
        own = {partition: e for (t, partition), e in ends.items() if t == topic}
        if place is not None:
            found = resolve(client, topic, place, own)
        else:
            assert shift is not None
            found = {
                at.partition: offset + shift for at, offset in committed.items() if at.topic == topic and at in ends
            }
        for partition, offset in found.items():
            first, end = own[partition]
            targets[TopicPartition(topic, partition)] = min(max(offset, first), end)
    return targets


@command.command(epilog=examples("tidelog group delete billing", "tidelog group delete billing --topic orders:0 --yes"))
@click.argument("groups", nargs=-1, required=True, shell_complete=complete_group)
@click.option(
    "-t",
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC[:PARTITIONS]",
    shell_complete=complete_topic,
    help="Delete only the offsets of this topic, and keep the group; may be repeated.",
)
@yes_option
@dry_run_option
@output_option("table", "json", "yaml")
@connected
def delete(
    client: Client, groups: tuple[str, ...], topics: tuple[str, ...], yes: bool, dry_run: bool, output: str
) -> None:
    """Delete groups without members. Their committed offsets are deleted too."""
    wanted = _chosen(client, topics)
    kinds = {group: _described(client, group).type for group in groups}
    rows: list[Row] = []
    for group, kind in kinds.items():
        committed = _positions(client, group, kind)
        lost = len(committed.keys() & wanted) if topics else len(committed)
        rows.append({"group": group, "offsets": lost, "offsets_only": bool(topics), "deleted": not dry_run})
        tell(f"group {group}: {plural(lost, 'committed offset')}")
    what = "the offsets of" if topics else ""
    if not dry_run:
        confirm(f"Delete {what} {', '.join(groups)}? This cannot be undone.".replace("  ", " "), yes)
    for group, kind in () if dry_run else kinds.items():
        if topics and kind == SHARE:
            client.share_groups.forget(group, sorted({topic for topic, _ in wanted}))
        elif topics:
            client.groups.delete_offsets(group, sorted(wanted))
        else:
            client.groups.delete(group)
        tell(f"deleted {what} {group}".replace("  ", " "))
    if output != "table":
        show(rows, [], output)
