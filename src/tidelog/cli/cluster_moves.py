"""`tidelog cluster balance | reassign | decommission | elect`: what brokers hold and lead, changed by a plan.

Each shows its plan first, and asks before it moves anything; --dry-run only shows it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from tidelog.cli.complete import complete_topic
from tidelog.cli.options import (
    check_known,
    check_partitions,
    confirm,
    connected,
    dry_run_option,
    examples,
    output_option,
    partitions_option,
    topic_of,
    yes_option,
)
from tidelog.cli.output import Column, plural, show, show_json, tell, warn
from tidelog.wire.partitions import TopicPartition

if TYPE_CHECKING:
    from tidelog.client import Client
    from tidelog.client.cluster import ClusterInfo, PartitionInfo
    from tidelog.client.replica_plans import Assignment


def _rate(_: click.Context, __: click.Parameter, text: str | None) -> int | None:
    from tidelog.config.units import size_bytes

    if text is None:
        return None
    try:
        rate = int(text) if text.isdigit() else int(size_bytes(text))
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    if rate < 1:
        raise click.BadParameter("nothing would ever arrive: use 1MB, for instance")
    return rate


throttle_option = click.option(
    "--throttle", callback=_rate, metavar="BYTES", help="Limit for what each broker copies in a second, such as 50MB."
)


@click.command(
    epilog=examples(
        "tidelog cluster balance --dry-run",
        "tidelog cluster balance --yes --throttle 50MB",
        "tidelog cluster balance --dry-run -o json > plan.json",
    )
)
@throttle_option
@dry_run_option
@yes_option
@output_option("table", "json")
@connected
def balance(client: Client, throttle: int | None, dry_run: bool, yes: bool, output: str) -> None:
    """Spread replicas and leaders evenly over brokers and racks.

    As little as possible is moved: replicas go only from brokers that have too many to brokers that have too few.
    """
    from tidelog.cli.replica_moves import assignment_of, open_brokers
    from tidelog.client.replica_plans import balanced

    described = client.describe()
    plan = balanced(assignment_of(described), open_brokers(client, described.nodes.values()))
    _begin(client, described, plan, throttle, dry_run, yes, output)


@click.command(
    epilog=examples(
        "tidelog cluster decommission 3 --dry-run",
        "tidelog cluster decommission 3 --throttle 50MB --yes",
        "tidelog cluster decommission 3 --undo",
    )
)
@click.argument("brokers", type=int, nargs=-1, required=True, metavar="BROKER...")
@click.option("--undo", is_flag=True, help="Let brokers get new partitions again. Nothing is moved back.")
@throttle_option
@dry_run_option
@yes_option
@output_option("table", "json")
@connected
def decommission(
    client: Client, brokers: tuple[int, ...], undo: bool, throttle: int | None, dry_run: bool, yes: bool, output: str
) -> None:
    """Move everything off brokers, so that they can be switched off.

    It works for brokers that are down, too, as long as other replicas are in sync. From the start, new partitions are
    kept off these brokers (their cordoned.log.dirs is *), until you use --undo.
    """
    from tidelog.cli.replica_moves import assignment_of, cordon, uncordon
    from tidelog.client.errors import NotFound
    from tidelog.client.replica_plans import without

    described = client.describe()
    before = assignment_of(described)
    known = described.nodes.keys() | {broker for replicas in before.values() for broker in replicas}
    for broker in brokers:
        if broker not in known:
            raise NotFound(f"there is no broker {broker}", hint="`tidelog cluster describe` shows all of them")
    if undo:
        if not dry_run:
            uncordon(client, brokers)
        tell(f"broker {', '.join(map(str, brokers))}: new partitions are {'to be ' * dry_run}placed there again")
        return
    plan = without(before, {node.id: node.rack for node in described.nodes.values()}, brokers)
    empty = f"{', '.join(f'broker {broker}' for broker in brokers)} can be switched off: nothing is left on"
    reached = f"{empty} {'it' if len(brokers) == 1 else 'them'}"
    _begin(
        client,
        described,
        plan,
        throttle,
        dry_run,
        yes,
        output,
        reached,
        prepare=lambda: cordon(client, sorted(described.nodes.keys() & set(brokers))),
    )


@click.command(
    epilog=examples(
        "tidelog cluster reassign",
        "tidelog cluster reassign orders --replicas 1,2,3",
        "tidelog cluster reassign orders payments --replication-factor 3 --yes",
        "tidelog cluster reassign --plan plan.json --throttle 50MB",
        "tidelog cluster reassign --cancel --yes",
    )
)
@click.argument("topics", nargs=-1, shell_complete=complete_topic)
@click.option("--plan", "plan_file", type=click.File("r"), metavar="FILE", help="A plan in Kafka's JSON format.")
@click.option("--replicas", metavar="IDS", help="Brokers for every partition, the preferred leader first: 1,2,3.")
@click.option("--replication-factor", type=click.IntRange(1), metavar="N", help="Add or remove replicas.")
@click.option("--cancel", is_flag=True, help="End moves under way, of TOPICS or all, and remove throttles.")
@partitions_option
@throttle_option
@dry_run_option
@yes_option
@output_option("table", "json")
@connected
def reassign(
    client: Client,
    topics: tuple[str, ...],
    plan_file: Any,
    replicas: str | None,
    replication_factor: int | None,
    cancel: bool,
    partitions: list[int] | None,
    throttle: int | None,
    dry_run: bool,
    yes: bool,
    output: str,
) -> None:
    """Move replicas of TOPICS to other brokers, or change their number. Without arguments, show the moves under way."""
    from tidelog.cli.replica_moves import assignment_of

    ways = [plan_file is not None, replicas is not None, replication_factor is not None, cancel]
    if sum(ways) > 1:
        raise click.UsageError("Use only one of --plan, --replicas, --replication-factor and --cancel.")
    if cancel:
        _cancel(client, topics, dry_run, yes, output)
        return
    if not any(ways):
        if topics:
            raise click.UsageError("Say where to: --replicas 1,2,3 or --replication-factor 3.")
        _show_moves(client, output)
        return
    described = client.describe()
    before = assignment_of(described)
    if plan_file is not None:
        plan = _read_plan(plan_file)
    else:
        plan = _planned(client, described, topics, partitions, replicas, replication_factor)
    _check_plan(described, before, plan)
    changes = {at: to for at, to in plan.items() if before.get(at) != to}
    _begin(client, described, changes, throttle, dry_run, yes, output)


def _planned(
    client: Client,
    described: ClusterInfo,
    topics: tuple[str, ...],
    partitions: list[int] | None,
    replicas: str | None,
    replication_factor: int | None,
) -> Assignment:
    from tidelog.cli.replica_moves import assignment_of, open_brokers
    from tidelog.client.replica_plans import with_factor

    before = assignment_of(described)
    if not topics:
        raise click.UsageError("Name the topics whose replicas are to move.")
    for topic in topics:
        check_partitions(topic_of(client, topic), partitions)
    chosen = [at for at in before if at.topic in topics and (partitions is None or at.partition in partitions)]
    if replicas is None:
        assert replication_factor is not None
        return with_factor(before, open_brokers(client, described.nodes.values()), chosen, replication_factor)
    try:
        brokers = tuple(int(text) for text in replicas.split(","))
    except ValueError:
        raise click.UsageError(f"{replicas!r} is not a list of brokers: use 1,2,3.") from None
    return dict.fromkeys(chosen, brokers)


def _read_plan(file: Any) -> Assignment:
    from tidelog.client.errors import Refused
    from tidelog.client.replica_plans import from_json

    try:
        return from_json(json.load(file))
    except json.JSONDecodeError as error:
        raise Refused(f"{file.name} is not JSON: {error}") from None


def _check_plan(described: ClusterInfo, before: Assignment, plan: Assignment) -> None:
    """A mistake in a plan is told once, and before anybody is asked to agree to it."""
    from tidelog.client.cluster import no_such_partition
    from tidelog.client.errors import NotFound, Refused

    for at, replicas in plan.items():
        check_known(described.topics, at.topic, "topic")
        if at not in before:
            raise no_such_partition(described.topics[at.topic], at.partition)
        if len(set(replicas)) < len(replicas):
            raise Refused(f"the replicas {','.join(map(str, replicas))} of {at} name a broker twice")
        # One that is down may keep what it has.
        for broker in replicas:
            if broker not in described.nodes and broker not in before[at]:
                why = f"broker {broker} is down" if broker in described.down else f"there is no broker {broker}"
                raise NotFound(why, hint="`tidelog cluster describe` shows all of them")


def _begin(
    client: Client,
    described: ClusterInfo,
    plan: Assignment,
    throttle: int | None,
    dry_run: bool,
    yes: bool,
    output: str,
    reached: str | None = None,
    prepare: Callable[[], None] = lambda: None,
) -> None:
    """Shows the plan, and carries it out where that is wanted, after `prepare`; `reached` says what it was good for."""
    from tidelog.cli.error_messages import FAILED
    from tidelog.cli.replica_moves import PlannedMoves, as_rows, assignment_of, outcome_of, show_plan, summary
    from tidelog.client.replica_plans import to_json

    before = assignment_of(described)
    rows = as_rows(before, plan)
    if not plan:
        if not dry_run:
            prepare()
        if output == "json":
            show_json(outcome_of(rows, None) | {"done": True, **to_json(plan)})
        else:
            tell(f"nothing to move: {reached or 'everything is as planned already'}")
        return
    if output != "json":
        show_plan(rows)
        tell(summary(before, plan))
    _warn_of_waiting(described, plan)
    if dry_run:
        if output == "json":
            # A file with this is a plan for `reassign --plan`, and for Kafka's own tool.
            show_json({**outcome_of(rows, None), **to_json(plan)})
        return
    confirm(f"Move {plural(len(plan), 'partition')}?", yes)
    prepare()
    moves = PlannedMoves(client, before, plan, throttle)
    moves.carry_out()
    if output == "json":
        show_json({**outcome_of(rows, moves), **to_json(plan)})
    else:
        tell(f"{plural(len(plan) - len(moves.failed), 'partition')} moved")
        if reached and not moves.failed:
            tell(reached)
    if moves.failed:
        click.get_current_context().exit(FAILED)


def _warn_of_waiting(described: ClusterInfo, plan: Assignment) -> None:
    """A move ends when all of its replicas are in sync."""
    for broker in described.down:
        if waiting := sum(broker in replicas for replicas in plan.values()):
            warn(f"{waiting} of these moves {'ends' if waiting == 1 else 'end'} only when broker {broker} is back")


def _show_moves(client: Client, output: str) -> None:
    rows = [
        {"topic": at.topic, "partition": at.partition, **move._asdict()}
        for at, move in sorted(client.admin.reassignments().items())
    ]
    if not rows and output != "json":
        tell("no moves under way")
        return
    columns = [
        Column("TOPIC", "topic"),
        Column("PARTITION", "partition", right=True),
        Column("REPLICAS", "replicas"),
        Column("ADDING", "adding"),
        Column("REMOVING", "removing"),
    ]
    show(rows, columns, output)


def _cancel(client: Client, topics: tuple[str, ...], dry_run: bool, yes: bool, output: str) -> None:
    from tidelog.cli.error_messages import FAILED
    from tidelog.cli.replica_moves import unthrottle

    moves = {at: move for at, move in client.admin.reassignments().items() if not topics or at.topic in topics}
    cancelled = [str(at) for at in sorted(moves)]
    if output != "json":
        tell(f"moves to cancel: {', '.join(cancelled) or 'none'}")
    failed = []
    if moves and not dry_run:
        confirm(f"Cancel {plural(len(moves), 'move')}?", yes)
        outcome = client.admin.reassign(dict.fromkeys(moves))
        failed = [str(error) for error in outcome.values() if error is not None]
        for text in failed:
            warn(text)
        unthrottle(client, moves, {broker for move in moves.values() for broker in move.replicas})
    if output == "json":
        show_json({"done": not dry_run and not failed, "cancelled": cancelled, "errors": failed})
    elif moves and not dry_run:
        tell(f"{plural(len(moves) - len(failed), 'move')} cancelled")
    if failed:
        click.get_current_context().exit(FAILED)


@click.command(
    epilog=examples(
        "tidelog cluster elect --dry-run",
        "tidelog cluster elect orders",
        "tidelog cluster elect orders --partition 2 --unclean",
    )
)
@click.argument("topics", nargs=-1, shell_complete=complete_topic)
@click.option(
    "--unclean", is_flag=True, help="Let a replica that is not in sync lead if no other is left. Records are lost."
)
@partitions_option
@dry_run_option
@yes_option
@output_option("table", "json")
@connected
def elect(
    client: Client,
    topics: tuple[str, ...],
    unclean: bool,
    partitions: list[int] | None,
    dry_run: bool,
    yes: bool,
    output: str,
) -> None:
    """Make the preferred replicas lead again, of TOPICS or of all.

    With --unclean, partitions without a leader get one that may lack records, and those are lost.
    """
    from tidelog.cli.error_messages import FAILED
    from tidelog.cli.output import show_table

    for topic in topics:
        check_partitions(topic_of(client, topic), partitions)
    wanted: dict[TopicPartition, PartitionInfo] = {
        TopicPartition(topic.name, p.partition): p
        for topic in client.describe(topics or None).topics.values()
        for p in topic.partitions.values()
        if (partitions is None or p.partition in partitions) and _needs_election(p, unclean)
    }
    rows: list[dict[str, Any]] = [
        {
            "topic": at.topic,
            "partition": at.partition,
            "leader": p.leader if p.leader >= 0 else None,
            "preferred": p.replicas[0],
            "isr": p.isr,
        }
        for at, p in sorted(wanted.items())
    ]
    if output != "json" and rows:
        titles = ("topic", "partition", "leader", "preferred", "isr")
        show_table(rows, [Column(title.upper(), title) for title in titles])
    errors: list[str] = []
    if wanted and not dry_run:
        if unclean:
            confirm(f"Records may be lost. Elect leaders of {plural(len(wanted), 'partition')}?", yes)
        outcome = client.admin.elect_leaders(wanted, "unclean" if unclean else "preferred")
        errors = [str(error) for error in outcome.values() if error is not None]
    for text in errors:
        warn(text)
    if output == "json":
        show_json({"done": not dry_run and not errors, "elections": rows, "errors": errors})
    elif not wanted:
        tell("no partition is without a leader" if unclean else "all preferred replicas lead already")
    elif not dry_run:
        tell(f"{plural(len(wanted) - len(errors), 'leader')} elected")
    if errors:
        click.get_current_context().exit(FAILED)


def _needs_election(partition: PartitionInfo, unclean: bool) -> bool:
    return partition.leader < 0 if unclean else partition.leader != partition.replicas[0]
