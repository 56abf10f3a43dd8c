"""`tidelog consume`: read records from topics: a range, a live stream, or as a member of a group."""

from __future__ import annotations

import shutil
import sys
from functools import partial
from typing import TYPE_CHECKING

import click

from tidelog.cli.complete import complete_group, complete_topic
from tidelog.cli.consumption import GroupConsumption, Printer, consume_spans
from tidelog.cli.formats import (
    NULL,
    Format,
    TableFormat,
    json_format,
    raw_format,
    template_format,
    unescaped,
    value_format,
)
from tidelog.cli.options import CONTEXT, connected, examples, partitions_option, topic_of
from tidelog.cli.output import on_terminal, tell
from tidelog.cli.places import EARLIEST, LATEST, PartitionEnds, Place, ends_of, resolve, where
from tidelog.wire.partitions import TopicPartition

if TYPE_CHECKING:
    import re

    from tidelog.client import Client
    from tidelog.client.group_member import Assignment
    from tidelog.client.reader import Isolation, Span


@click.command(
    context_settings=dict(CONTEXT),
    epilog=examples(
        "tidelog consume orders",
        "tidelog consume orders --follow",
        "tidelog consume orders --from -1h --until -30m -o json",
        "tidelog consume orders --from -10 --partition 0,2",
        "tidelog consume orders --grep 'customer.*42' -n 1",
        "tidelog consume orders 'audit-*' --follow",
        "tidelog consume orders --group billing --follow",
        r"tidelog consume orders -o value --delimiter '\0'",
        r"tidelog consume orders -f '%p %o %k: %s\n'",
    )
    + """

\b
A POSITION is one of:
  earliest, latest      the first offset, the end
  1200                  an offset
  -100                  this many offsets before the end of each partition
  -1h, -90s, -2d        this long ago (ms, s, m, h, d, w)
  2026-01-31T12:00      a time, local unless it includes a time zone (…Z, …+02:00); also 12:30
  @1767225600000        milliseconds since 1970

\b
Fields of a --format, as in kcat:
  %t topic  %p partition  %o offset  %T timestamp  %D time  %k key  %s value
  %K length of the key  %S length of the value  %h headers; \\n \\t \\r \\0 \\xHH
""",
)
@click.argument("topics", nargs=-1, required=True, shell_complete=complete_topic)
@click.option(
    "-g",
    "--group",
    shell_complete=complete_group,
    help="Join this group: continue from its offsets, share its partitions, and commit what was printed.",
)
@click.option(
    "--from",
    "first",
    type=where,
    metavar="POSITION",
    help="Where to start; with --group, only for partitions without a committed offset.  "
    "[default: earliest; latest with --follow and without --group]",
)
@click.option("--until", type=where, metavar="POSITION", help="Where to stop, exclusive.  [default: the current end]")
@click.option("-n", "--max", "limit", type=click.IntRange(1), metavar="N", help="Stop after this many records.")
@click.option("-F", "--follow", is_flag=True, help="Keep reading new records.")
@partitions_option
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "wide", "json", "value", "raw"]),
    help="table; wide, which includes headers; json and value, one record per line; raw, nothing in between.  "
    "[default: table on a terminal, value elsewhere]",
)
@click.option(
    "-d",
    "--delimiter",
    metavar="TEXT",
    help=r"Delimiter after each record of -o value or raw, such as \0.  [default: \n for value, nothing for raw]",
)
@click.option("-f", "--format", "template", metavar="TEMPLATE", help="Print each record with this template; see below.")
@click.option(
    "--grep", "pattern", metavar="REGEX", help="Print only records whose key or value matches this regular expression."
)
@click.option("--null", default=NULL, metavar="TEXT", show_default=True, help="Text to print for a null key or value.")
@click.option(
    "--isolation",
    type=click.Choice(["read_uncommitted", "read_committed"]),
    default="read_uncommitted",
    show_default=True,
    help="Whether to show records of open and aborted transactions.",
)
@connected
def command(
    client: Client,
    topics: tuple[str, ...],
    group: str | None,
    first: Place | None,
    until: Place | None,
    limit: int | None,
    follow: bool,
    partitions: list[int] | None,
    output: str | None,
    delimiter: str | None,
    template: str | None,
    pattern: str | None,
    null: str,
    isolation: Isolation,
) -> None:
    """Read records from topics, given by name or by a pattern with * and ?.

    Without --follow, reading stops at the current end of the topics. Records of one partition are printed in order;
    those of several partitions are interleaved. Null and empty values are shown differently: <null> and "" in tables,
    null and "" in JSON.
    """
    if follow and until is not None:
        raise click.UsageError("--follow has no end and cannot be combined with --until.")
    if output and template:
        raise click.UsageError("--output and --format cannot be combined.")
    if group is not None and (until is not None or partitions is not None):
        raise click.UsageError(
            "--group reads its assigned partitions to the end and cannot be combined with --until and --partition."
        )
    chosen = output or ("table" if on_terminal() and delimiter is None else "value")
    if delimiter is not None and (template or chosen not in ("value", "raw")):
        raise click.UsageError("--delimiter works only with -o value and -o raw.")
    matches = _compiled(pattern)
    form = None if template is None else template_format(template, null)
    behind = None if delimiter is None else unescaped(delimiter)
    names = _chosen(client, topics)
    ends = {name: ends_of(client, name, partitions, isolation) for name in names}
    form = form or _format(chosen, ends, null, behind)
    printer = Printer(sys.stdout.buffer, form, matches, limit)
    if isinstance(form, TableFormat):
        click.echo(click.style(form.header(), bold=True))
        sys.stdout.flush()
    if group is not None:
        member = client.group_member(group, names)
        spans_of = partial(_group_spans, client, group, first or EARLIEST, follow, isolation)
        GroupConsumption(client, member, spans_of, isolation, printer, follow).run()
        return
    start = first or (LATEST if follow else EARLIEST)
    stop = None if follow else until or LATEST
    spans = [span for name in names for span in _spans(client, name, ends[name], start, stop)]
    consume_spans(client, spans, isolation, printer, follow)


def _chosen(client: Client, topics: tuple[str, ...]) -> list[str]:
    """The topics that match the names and patterns; internal ones only by name."""
    from fnmatch import fnmatchcase

    from tidelog.client.errors import NotFound

    names: dict[str, None] = {}
    for text in topics:
        if not {"*", "?"} & set(text):
            topic_of(client, text)
            names[text] = None
            continue
        known = client.describe().topics.values()
        found = sorted(topic.name for topic in known if fnmatchcase(topic.name, text) and not topic.is_internal)
        if not found:
            raise NotFound(f"no topic matches {text}", hint="`tidelog topic list` shows all topics")
        names.update(dict.fromkeys(found))
    return list(names)


def _group_spans(
    client: Client, group: str, first: Place, follow: bool, isolation: Isolation, assigned: Assignment
) -> list[Span]:
    """Starts at the committed offset if the partition still holds it, else at `first`; ends at the end or never."""
    from tidelog.client.reader import Span

    committed = client.groups.offsets(group, sorted(assigned), require_stable=True)
    spans = []
    for topic in sorted({topic for topic, _ in assigned}):
        ends = ends_of(client, topic, sorted(p for t, p in assigned if t == topic), isolation)
        begins = resolve(client, topic, first, ends)
        for partition, (low, high) in ends.items():
            known = committed.get(TopicPartition(topic, partition))
            begin = min(max(begins[partition] if known is None else known.offset, low), high)
            spans.append(Span(topic, partition, begin, None if follow else high))
    return spans


def _compiled(pattern: str | None) -> re.Pattern[bytes] | None:
    if pattern is None:
        return None
    import re

    try:
        return re.compile(pattern.encode("utf-8", "surrogateescape"))
    except re.error as error:
        raise click.BadParameter(f"{pattern!r} is not a regular expression: {error}.") from None


def _spans(client: Client, topic: str, ends: dict[int, PartitionEnds], first: Place, until: Place | None) -> list[Span]:
    from tidelog.client.reader import Span

    begins = resolve(client, topic, first, ends)
    stops = None if until is None else resolve(client, topic, until, ends)
    spans = []
    for partition, (low, high) in ends.items():
        begin = min(max(begins[partition], low), high)
        if first.offset is not None and begin != first.offset:
            tell(f"{topic}-{partition} holds offsets {low} to {high}: starting at {begin}")
        stop = None if stops is None else min(stops[partition], high)
        spans.append(Span(topic, partition, begin, stop))
    return spans


def _format(output: str, ends: dict[str, dict[int, PartitionEnds]], null: str, delimiter: bytes | None) -> Format:
    if output == "json":
        return json_format
    if output == "raw":
        return raw_format(delimiter or b"")
    if output == "value":
        return value_format(null, b"\n" if delimiter is None else delimiter)
    columns = shutil.get_terminal_size().columns if on_terminal() else None
    last = max((e.end for found in ends.values() for e in found.values()), default=0)
    highest = max((partition for found in ends.values() for partition in found), default=0)
    topic_width = max(map(len, ends)) if len(ends) > 1 else None
    return TableFormat(len(str(highest)), len(str(last)), output == "wide", columns, null, topic_width)
