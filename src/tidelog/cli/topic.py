"""`tidelog topic`: list, describe, create, change, delete and truncate topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tidelog.cli.complete import complete_topic, complete_topic_setting
from tidelog.cli.options import (
    confirm,
    connected,
    dry_run_option,
    examples,
    noun,
    output_option,
    partitions_option,
    setting_pairs,
    topic_of,
    yes_option,
)
from tidelog.cli.output import Column, Row, plural, show, show_done, show_fields, show_one, show_table, size, tell
from tidelog.cli.places import Place, ends_of, iso, resolve, where

if TYPE_CHECKING:
    from tidelog.client import Client
    from tidelog.client.cluster import TopicInfo

command = noun("List, describe, create, change and delete topics.")
name_argument = click.argument("name", shell_complete=complete_topic)


def _row(topic: TopicInfo) -> Row:
    from tidelog.wire.ids import uuid_to_base64

    partitions = topic.partitions.values()
    return {
        "name": topic.name,
        "partitions": len(topic.partitions),
        "replication_factor": max((p.replication_factor for p in partitions), default=0),
        "internal": topic.is_internal,
        "under_replicated": sum(p.under_replicated for p in partitions),
        "offline": sum(p.leader < 0 for p in partitions),
        "topic_id": uuid_to_base64(topic.topic_id),
    }


@command.command(
    "list",
    epilog=examples(
        "tidelog topic list",
        "tidelog topic list 'orders*' -o wide",
        "tidelog topic list -o name | xargs -n1 tidelog topic describe",
    ),
)
@click.argument("pattern", default="*")
@click.option("-a", "--all", "internal", is_flag=True, help="Include internal topics.")
@output_option()
@connected
def list_topics(client: Client, pattern: str, internal: bool, output: str) -> None:
    """List topics, or only those that match PATTERN (with * and ?)."""
    from fnmatch import fnmatchcase

    found = client.describe_health().topics
    topics = [t for name, t in sorted(found.items()) if fnmatchcase(name, pattern) and (internal or not t.is_internal)]
    columns = [
        Column("NAME", "name"),
        Column("PARTITIONS", "partitions", right=True),
        Column("REPLICAS", "replication_factor", right=True),
        Column("UNDER-REPLICATED", "under_replicated", wide=True, right=True),
        Column("OFFLINE", "offline", wide=True, right=True),
        Column("ID", "topic_id", wide=True),
    ]
    if not topics and output in ("table", "wide"):
        tell("no topics")
        return
    show(map(_row, topics), columns, output)


@command.command(epilog=examples("tidelog topic describe orders", "tidelog topic describe orders -o json"))
@name_argument
@output_option()
@connected
def describe(client: Client, name: str, output: str) -> None:
    """Describe a topic. Shows its partitions, their replicas and sizes, and its own settings."""
    topic = topic_of(client, name)
    topic = client.describe_health([name]).topics.get(name, topic)
    led = [p.partition for p in topic.partitions.values() if p.leader >= 0]
    ends = ends_of(client, name, led)
    sizes = _sizes(client, topic)
    partitions = [
        {
            "partition": p.partition,
            "leader": p.leader if p.leader >= 0 else None,
            "leader_epoch": p.leader_epoch,
            "replicas": p.replicas,
            "isr": p.isr,
            "offline_replicas": p.offline_replicas,
            "first_offset": ends[p.partition].first if p.partition in ends else None,
            "end_offset": ends[p.partition].end if p.partition in ends else None,
            "size_bytes": sizes.get(p.partition),
        }
        for p in topic.partitions.values()
    ]
    own = {e.name: e.value for e in client.admin.describe_configs("topic", name) if e.source == "topic"}
    about = _row(topic)
    described = {**about, "partition_count": about["partitions"], "config": own, "partitions": partitions}

    def people() -> None:
        shown = ", ".join(f"{key}={value}" for key, value in own.items())
        fields = [("Topic", name), ("Id", described["topic_id"]), ("Replicas", described["replication_factor"])]
        show_fields([*fields, ("Own settings", shown), ("Size", size(sum(sizes.values())))])
        click.echo()
        show_table(partitions, [c for c in _PARTITION_COLUMNS if output == "wide" or not c.wide])

    show_one(described, output, people)


_PARTITION_COLUMNS = [
    Column("PARTITION", "partition", right=True),
    Column("LEADER", "leader", right=True),
    Column("EPOCH", "leader_epoch", wide=True, right=True),
    Column("REPLICAS", "replicas"),
    Column("ISR", "isr"),
    Column("OFFLINE", "offline_replicas", wide=True),
    Column("FIRST", "first_offset", right=True),
    Column("END", "end_offset", right=True),
    Column("SIZE", lambda row: size(row["size_bytes"]), right=True),
]


def _sizes(client: Client, topic: TopicInfo) -> dict[int, int]:
    """Bytes of each partition at its leader."""
    sizes = {}
    for leader in {p.leader for p in topic.partitions.values() if p.leader >= 0}:
        for directory in client.admin.log_dirs(leader, [topic.name]):
            for replica in directory.replicas:
                if topic.partitions[replica.partition].leader == leader and not replica.is_future:
                    sizes[replica.partition] = replica.size_bytes
    return sizes


@command.command(
    epilog=examples(
        "tidelog topic create orders",
        "tidelog topic create orders --partitions 6 --replication-factor 3",
        "tidelog topic create latest-prices -c cleanup.policy=compact -c segment.ms=1h",
    )
)
@click.argument("name")
@click.option(
    "-p", "--partitions", type=click.IntRange(1), help="Number of partitions.  [default: the broker's num.partitions]"
)
@click.option(
    "-r",
    "--replication-factor",
    type=click.IntRange(1),
    help="Number of replicas of each partition.  [default: the broker's default.replication.factor]",
)
@click.option(
    "-c",
    "--config",
    "configs",
    multiple=True,
    metavar="KEY=VALUE",
    shell_complete=complete_topic_setting,
    help="Setting of the topic, such as retention.ms=7d or segment.bytes=64MiB; may be repeated. "
    "`tidelog config explain` describes them.",
)
@click.option("--if-not-exists", is_flag=True, help="Do nothing if the topic already exists.")
@dry_run_option
@output_option("table", "json", "yaml", "name")
@connected
def create(
    client: Client,
    name: str,
    partitions: int | None,
    replication_factor: int | None,
    configs: tuple[str, ...],
    if_not_exists: bool,
    dry_run: bool,
    output: str,
) -> None:
    """Create a topic."""
    from tidelog.client.errors import Exists
    from tidelog.wire.ids import uuid_to_base64

    try:
        created = client.admin.create_topic(
            name, partitions or -1, replication_factor or -1, setting_pairs(configs), validate_only=dry_run
        )
    except Exists as error:
        if if_not_exists:
            tell(f"topic {name} already exists")
            return
        error.hint = "use --if-not-exists to accept this"
        raise
    row = {
        "name": name,
        "partitions": created.partitions,
        "replication_factor": created.replication_factor,
        "topic_id": None if dry_run else uuid_to_base64(created.topic_id),
        "dry_run": dry_run,
    }

    def people() -> None:
        done = "would be created" if dry_run else "created"
        many = plural(created.partitions, "partition")
        tell(f"topic {name} {done} with {many}, replication factor {created.replication_factor}")

    show_one(row, output, people)


@command.command(
    epilog=examples(
        "tidelog topic delete orders",
        "tidelog topic delete old-orders new-orders --yes",
        "tidelog topic delete __consumer_offsets --internal --dry-run",
    )
)
@click.argument("names", nargs=-1, required=True, shell_complete=complete_topic)
@click.option("--if-exists", is_flag=True, help="Do nothing for topics that do not exist.")
@click.option(
    "--internal",
    is_flag=True,
    help="Also delete internal topics, with all committed offsets or open transactions in them.",
)
@yes_option
@dry_run_option
@output_option("table", "json", "yaml")
@connected
def delete(
    client: Client, names: tuple[str, ...], if_exists: bool, internal: bool, yes: bool, dry_run: bool, output: str
) -> None:
    """Delete topics and all their records.

    Brokers keep the offsets of all groups and the state of all transactions in internal topics such as
    __consumer_offsets. These are deleted only with --internal, even if --yes is given.
    """
    known = client.describe().topics
    missing = [name for name in names if name not in known]
    for name in missing:
        if not if_exists:
            topic_of(client, name)
        tell(f"topic {name} does not exist")
    present = [name for name in dict.fromkeys(names) if name in known]
    for name in present:
        ends = ends_of(client, name, [p.partition for p in known[name].partitions.values() if p.leader >= 0])
        offsets = sum(e.end - e.first for e in ends.values())
        tell(f"topic {name}: {plural(len(known[name].partitions), 'partition')}, about {plural(offsets, 'record')}")
    own = [name for name in present if known[name].is_internal]
    if own and not internal:
        why = "brokers keep committed offsets or transactions there, and all of them would be lost"
        raise click.UsageError(f"{', '.join(own)}: {why}. Add --internal to delete internal topics.")
    if present and not dry_run:
        confirm(f"Delete {', '.join(present)}? This cannot be undone.", yes)
        client.admin.delete_topics(present)
    done = {"deleted": [] if dry_run else present, "would_delete": present if dry_run else [], "missing": missing}
    show_done(done, output, f"{'would delete' if dry_run else 'deleted'} {', '.join(present) or 'nothing'}")


@command.command(
    epilog=examples(
        "tidelog topic alter orders --partitions 12",
        "tidelog topic alter orders --set retention.ms=7d --set retention.bytes=10GB --unset segment.ms",
    )
)
@name_argument
@click.option("-p", "--partitions", type=click.IntRange(1), help="Add partitions up to this number.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    shell_complete=complete_topic_setting,
    help="Set this value, such as retention.ms=7d; may be repeated.",
)
@click.option("--unset", multiple=True, metavar="KEY", help="Return to the broker's value; may be repeated.")
@dry_run_option
@output_option("table", "json", "yaml")
@connected
def alter(
    client: Client,
    name: str,
    partitions: int | None,
    settings: tuple[str, ...],
    unset: tuple[str, ...],
    dry_run: bool,
    output: str,
) -> None:
    """Add partitions to a topic, or change its settings.

    After you add partitions, new records of a key may go to a different partition than before.
    """
    if partitions is None and not settings and not unset:
        raise click.UsageError("Specify what to change: --partitions, --set or --unset.")
    topic = topic_of(client, name)
    wanted = setting_pairs(settings)
    if settings or unset:
        from tidelog.cli.config import check_keys

        check_keys("topic", [*wanted, *unset])
        client.admin.alter_configs("topic", name, set=wanted, delete=unset, validate_only=dry_run)
    if partitions is not None:
        client.admin.create_partitions(name, partitions, validate_only=dry_run)
    changes = [*(f"{key}={value}" for key, value in wanted.items()), *(f"{key} unset" for key in unset)]
    if partitions is not None:
        changes.append(f"partitions {len(topic.partitions)} → {partitions}")
    done = {"name": name, "set": wanted, "unset": list(unset), "partitions": partitions, "dry_run": dry_run}
    show_done(done, output, f"topic {name} {'would be changed' if dry_run else 'changed'}: {', '.join(changes)}")


@command.command(
    epilog=examples(
        "tidelog topic offsets orders",
        "tidelog topic offsets orders --at -1h",
        "tidelog topic offsets orders --at 2026-01-31T12:00 -o json",
    )
)
@name_argument
@click.option(
    "--at",
    "place",
    type=where,
    metavar="POSITION",
    help="Also show the offset at this position, as in `consume --from`.",
)
@click.option("--newest", is_flag=True, help="Also show the record with the largest timestamp.")
@partitions_option
@output_option("table", "json", "yaml")
@connected
def offsets(
    client: Client, name: str, place: Place | None, newest: bool, partitions: list[int] | None, output: str
) -> None:
    """Show the first and end offsets of each partition. With --at or --newest, also the offset there."""
    topic_of(client, name)
    ends = ends_of(client, name, partitions)
    rows: list[Row] = [
        {"partition": p, "first_offset": e.first, "end_offset": e.end, "span": e.end - e.first} for p, e in ends.items()
    ]
    columns = [
        Column("PARTITION", "partition", right=True),
        Column("FIRST", "first_offset", right=True),
        Column("END", "end_offset", right=True),
        Column("SPAN", "span", right=True),
    ]
    if place is not None:
        found = resolve(client, name, place, ends)
        for row in rows:
            row["at"] = found[row["partition"]]
        columns.append(Column("AT", "at", right=True))
    if newest:
        largest = client.offsets(name, list(ends), "max-timestamp")
        for row in rows:
            at = largest[row["partition"]]
            row["newest_offset"] = at.offset if at.offset >= 0 else None
            row["newest_timestamp"] = at.timestamp_ms if at.offset >= 0 else None
        columns.append(Column("NEWEST", "newest_offset", right=True))
        columns.append(Column("TIME", lambda row: _time(row["newest_timestamp"])))
    show(rows, columns, output)


def _time(timestamp_ms: int | None) -> str | None:
    return None if timestamp_ms is None else iso(timestamp_ms)


@command.command(
    epilog=examples(
        "tidelog topic truncate orders --before -7d --dry-run",
        "tidelog topic truncate orders --before 120000 --partition 0",
        "tidelog topic truncate orders --before latest --yes",
    )
)
@name_argument
@click.option(
    "--before",
    "place",
    type=where,
    metavar="POSITION",
    required=True,
    help="Delete everything before this position, as in `consume --from`.",
)
@partitions_option
@yes_option
@dry_run_option
@output_option("table", "json", "yaml")
@connected
def truncate(
    client: Client, name: str, place: Place, partitions: list[int] | None, yes: bool, dry_run: bool, output: str
) -> None:
    """Delete the oldest records of a topic (Kafka's DeleteRecords)."""
    topic_of(client, name)
    ends = ends_of(client, name, partitions)
    wanted = {p: min(offset, ends[p].end) for p, offset in resolve(client, name, place, ends).items()}
    rows: list[Row] = [
        {
            "partition": p,
            "first_offset": ends[p].first,
            "new_first_offset": max(offset, ends[p].first),
            "deleted": max(0, offset - ends[p].first),
        }
        for p, offset in wanted.items()
    ]
    before: dict[int, Any] = {row["partition"]: row["new_first_offset"] for row in rows if row["deleted"]}
    if before and not dry_run:
        lost = plural(sum(row["deleted"] for row in rows), "offset")
        confirm(f"Delete {lost} from {plural(len(before), 'partition')} of {name}? This cannot be undone.", yes)
        low = client.admin.delete_records(name, before)
        for row in rows:
            row["new_first_offset"] = low.get(row["partition"], row["new_first_offset"])
    columns = [
        Column("PARTITION", "partition", right=True),
        Column("FIRST", "first_offset", right=True),
        Column("NEW FIRST", "new_first_offset", right=True),
        Column("WOULD DELETE" if dry_run else "DELETED", "deleted", right=True),
    ]
    show(rows, columns, output)
