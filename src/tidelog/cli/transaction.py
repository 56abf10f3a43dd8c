"""`tidelog transaction`: list and describe transactions, and abort hanging ones."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from tidelog.cli.complete import complete_topic, complete_transactional_id
from tidelog.cli.options import (
    check_known,
    confirm,
    connected,
    dry_run_option,
    examples,
    noun,
    output_option,
    partitions_option,
    topic_of,
    yes_option,
)
from tidelog.cli.output import Column, Row, plural, show, show_fields, show_one, show_table, tell
from tidelog.cli.places import iso
from tidelog.config.units import duration_ms

if TYPE_CHECKING:
    from tidelog.client import Client
    from tidelog.client.transactions import DescribedTransaction, OpenTransaction

command = noun("List transactions, find hanging ones and abort them.")


def _duration(text: str) -> int:
    try:
        return round(duration_ms(text))
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _now_ms() -> int:
    return round(time.time() * 1000)


def _age(milliseconds: int) -> str:
    """A duration for people: 450ms, 12s, 3m20s, 5h12m, 3d4h."""
    seconds = max(0, milliseconds) // 1000
    if seconds < 1:
        return f"{max(0, milliseconds)}ms"
    parts = [(seconds // 86400, "d"), (seconds // 3600 % 24, "h"), (seconds // 60 % 60, "m"), (seconds % 60, "s")]
    first = next(at for at, (number, _) in enumerate(parts) if number)
    return "".join(f"{number}{unit}" for number, unit in parts[first : first + 2] if number)


@command.command(
    "list",
    epilog=examples(
        "tidelog transaction list",
        "tidelog transaction list 'billing-*' --state Ongoing",
        "tidelog transaction list --longer-than 10m -o name",
    ),
)
@click.argument("pattern", default="*")
@click.option(
    "--state", "states", multiple=True, help="Only transactions in this state, such as Ongoing; may be repeated."
)
@click.option(
    "--producer-id", "producer_ids", multiple=True, type=int, help="Only the transaction of this producer ID."
)
@click.option(
    "--longer-than",
    type=_duration,
    metavar="DURATION",
    help="Only transactions that have been open for longer than this, such as 10m.",
)
@output_option()
@connected
def list_transactions(
    client: Client,
    pattern: str,
    states: tuple[str, ...],
    producer_ids: tuple[int, ...],
    longer_than: int | None,
    output: str,
) -> None:
    """List transactional IDs, or only those that match PATTERN. It may contain * and ?."""
    from fnmatch import fnmatchcase

    rows = [
        {
            "transactional_id": listed.transactional_id,
            "state": listed.state,
            "producer_id": listed.producer_id,
            "coordinator": listed.coordinator,
        }
        for listed in client.transactions.list_all(states, producer_ids, -1 if longer_than is None else longer_than)
        if fnmatchcase(listed.transactional_id, pattern)
    ]
    if not rows and output in ("table", "wide"):
        tell("no transactions")
        return
    columns = [
        Column("TRANSACTIONAL ID", "transactional_id"),
        Column("STATE", "state"),
        Column("PRODUCER ID", "producer_id", right=True),
        Column("COORDINATOR", "coordinator", wide=True, right=True),
    ]
    show(rows, columns, output, name="transactional_id")


def _described(client: Client, transactional_id: str) -> DescribedTransaction:
    """The transaction, or an error that suggests another name."""
    from tidelog.client.errors import NotFound

    try:
        return client.transactions.describe(transactional_id)
    except NotFound as error:
        check_known([row.transactional_id for row in client.transactions.list_all()], transactional_id, "transaction")
        raise error


@command.command(
    epilog=examples("tidelog transaction describe billing-0", "tidelog transaction describe billing-0 -o json")
)
@click.argument("transactional_id", metavar="ID", shell_complete=complete_transactional_id)
@output_option()
@connected
def describe(client: Client, transactional_id: str, output: str) -> None:
    """Describe a transactional ID. Shows its producer, its state and the partitions of its open transaction."""
    about = _described(client, transactional_id)
    open_for_ms = _now_ms() - about.start_ms if about.is_open and about.start_ms is not None else None
    described: dict[str, Any] = {
        "transactional_id": about.transactional_id,
        "state": about.state,
        "producer_id": about.producer_id,
        "producer_epoch": about.producer_epoch,
        "timeout_ms": about.timeout_ms,
        "start": None if about.start_ms is None else iso(about.start_ms),
        "open_for_ms": open_for_ms,
        "coordinator": about.coordinator,
        "partitions": [{"topic": topic, "partition": partition} for topic, partition in about.partitions],
    }

    def people() -> None:
        show_fields(
            [
                ("Transactional id", described["transactional_id"]),
                ("State", described["state"]),
                ("Producer id", described["producer_id"]),
                ("Producer epoch", described["producer_epoch"]),
                ("Timeout", _age(about.timeout_ms)),
                ("Began", described["start"]),
                ("Open for", None if open_for_ms is None else _age(open_for_ms)),
                ("Coordinator", described["coordinator"]),
            ]
        )
        if described["partitions"]:
            click.echo()
            columns = [Column("TOPIC", "topic"), Column("PARTITION", "partition", right=True)]
            show_table(described["partitions"], columns)

    show_one(described, output, people, name="transactional_id")


@command.command(
    "find-hanging",
    epilog=examples(
        "tidelog transaction find-hanging",
        "tidelog transaction find-hanging --topic orders -p 0",
        "tidelog transaction find-hanging --older-than 1h -o json",
    ),
)
@click.option(
    "-t", "--topic", "topics", multiple=True, shell_complete=complete_topic, help="Only in this topic.  [default: all]"
)
@partitions_option
@click.option(
    "--older-than",
    type=_duration,
    default="15m",
    metavar="DURATION",
    help="Only transactions that have been idle for this long; at least transaction.max.timeout.ms.  [default: 15m]",
)
@output_option("table", "wide", "json", "yaml")
@connected
def find_hanging(
    client: Client, topics: tuple[str, ...], partitions: list[int] | None, older_than: int, output: str
) -> None:
    """Find transactions that no coordinator will end.

    Hanging transactions block `read_committed` consumers. `transaction abort` ends them.
    """
    if partitions is not None and len(topics) != 1:
        raise click.UsageError("--partition needs exactly one --topic.")
    known = [topic_of(client, name) for name in topics] if topics else list(client.describe().topics.values())
    wanted = {info.name: partitions or list(info.partitions) for info in known}
    now_ms = _now_ms()
    rows = [_row(txn, now_ms) for txn in client.transactions.find_hanging(wanted, older_than, now_ms)]
    if not rows and output in ("table", "wide"):
        tell("no hanging transactions")
        return
    show(rows, OPEN_COLUMNS, output)


OPEN_COLUMNS = [
    Column("TOPIC", "topic"),
    Column("PARTITION", "partition", right=True),
    Column("START OFFSET", "start_offset", right=True),
    Column("PRODUCER ID", "producer_id", right=True),
    Column("EPOCH", "producer_epoch", right=True),
    Column("COORDINATOR EPOCH", "coordinator_epoch", wide=True, right=True),
    Column("LAST WRITE", "last_write"),
    Column("AGE", lambda row: _age(row["age_ms"]), right=True),
]


def _row(txn: OpenTransaction, now_ms: int) -> Row:
    return {
        "topic": txn.topic,
        "partition": txn.partition,
        "start_offset": txn.start_offset,
        "producer_id": txn.producer_id,
        "producer_epoch": txn.producer_epoch,
        "coordinator_epoch": txn.coordinator_epoch,
        "last_write": iso(txn.last_timestamp_ms),
        "age_ms": now_ms - txn.last_timestamp_ms,
    }


@command.command(
    epilog=examples(
        "tidelog transaction abort billing-0",
        "tidelog transaction abort --topic orders --partition 0 --start-offset 1200 --dry-run",
        "tidelog transaction abort --topic orders --partition 0 --start-offset 1200 --yes",
    )
)
@click.argument("transactional_id", metavar="[ID]", required=False, shell_complete=complete_transactional_id)
@click.option("-t", "--topic", shell_complete=complete_topic, help="Topic of a hanging transaction.")
@click.option("-p", "--partition", type=click.IntRange(min=0), help="Partition of a hanging transaction.")
@click.option(
    "--start-offset",
    type=click.IntRange(min=0),
    help="Start offset of a hanging transaction, as shown by find-hanging.",
)
@yes_option
@dry_run_option
@output_option("table", "json", "yaml")
@connected
def abort(
    client: Client,
    transactional_id: str | None,
    topic: str | None,
    partition: int | None,
    start_offset: int | None,
    yes: bool,
    dry_run: bool,
    output: str,
) -> None:
    """Abort a transaction.

    With an ID, the coordinator aborts the transaction on all its partitions and fences its producer. A hanging
    transaction, which no coordinator knows, is given by topic, partition and start offset.
    """
    place = (topic, partition, start_offset)
    if (transactional_id is None) == (place == (None, None, None)):
        raise click.UsageError("Specify a transaction: an ID, or --topic, --partition and --start-offset.")
    if transactional_id is not None:
        was_open = _abort_known(client, transactional_id, yes, dry_run)
        done = {"transactional_id": transactional_id, "aborted": was_open and not dry_run}
        show_one(done, output, lambda: None)
        return
    if topic is None or partition is None or start_offset is None:
        raise click.UsageError("A hanging transaction needs --topic, --partition and --start-offset together.")
    _abort_hanging(client, topic, partition, start_offset, yes, dry_run)
    hanging = {"topic": topic, "partition": partition, "start_offset": start_offset, "aborted": not dry_run}
    show_one(hanging, output, lambda: None)


def _abort_known(client: Client, transactional_id: str, yes: bool, dry_run: bool) -> bool:
    """Whether there was a transaction to abort."""
    about = _described(client, transactional_id)
    if not about.is_open:
        tell(f"{transactional_id} has no open transaction (its state is {about.state})")
        return False
    tell(f"{transactional_id}: {about.state} in {plural(len(about.partitions), 'partition')}")
    if not dry_run:
        confirm(f"Abort the transaction of {transactional_id} and fence its producer?", yes)
        client.transactions.abort(transactional_id)
        tell(f"aborted the transaction of {transactional_id}")
    return True


def _abort_hanging(client: Client, topic: str, partition: int, start_offset: int, yes: bool, dry_run: bool) -> None:
    from tidelog.client.errors import ClientError, NotFound

    topic_of(client, topic)
    where = f"{topic}-{partition}"
    found = [txn for txn in client.transactions.open_on({topic: [partition]}) if txn.start_offset == start_offset]
    if not found:
        raise NotFound(
            f"no open transaction starts at offset {start_offset} of {where}",
            hint=f"`tidelog transaction find-hanging --topic {topic}` lists hanging transactions",
        )
    (txn,) = found
    if client.transactions.is_expected(txn):
        raise ClientError(
            f"the transaction at offset {start_offset} of {where} is not hanging: its coordinator knows it",
            hint=f"`tidelog transaction list --producer-id {txn.producer_id}` shows its ID: abort it with that",
        )
    tell(f"{where}: open from offset {start_offset}, producer {txn.producer_id}, epoch {txn.producer_epoch}")
    if dry_run:
        return
    confirm(f"Abort it on {where}? `read_committed` consumers will never see what it wrote there.", yes)
    client.transactions.abort_hanging(txn)
    tell(f"aborted the transaction at offset {start_offset} of {where}")
