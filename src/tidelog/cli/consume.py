"""`tidelog consume`: read records from a topic, from one place to another, or as they come."""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING, BinaryIO

import click

from tidelog.cli.complete import complete_topic
from tidelog.cli.formats import (
    NULL,
    Format,
    TableFormat,
    json_format,
    raw_format,
    template_format,
    value_format,
)
from tidelog.cli.options import CONTEXT, connected, examples, partitions_option, topic_of
from tidelog.cli.output import on_terminal, tell, warn
from tidelog.cli.places import EARLIEST, LATEST, Ends, Place, ends_of, resolve, where
from tidelog.cli.progress import Progress

if TYPE_CHECKING:
    import re

    from tidelog.client import Client
    from tidelog.client.reader import Isolation, Span
    from tidelog.wire.records import Record


@click.command(
    context_settings=dict(CONTEXT),
    epilog=examples(
        "tidelog consume orders",
        "tidelog consume orders --follow",
        "tidelog consume orders --from -1h --until -30m -o json",
        "tidelog consume orders --from -10 --partition 0,2",
        "tidelog consume orders --grep 'customer.*42' -n 1",
        r"tidelog consume orders -f '%p %o %k: %s\n'",
    )
    + """

\b
A place is one of:
  earliest, latest      the first offset, the end
  1200                  an offset
  -100                  so many back from the end of each partition
  -1h, -90s, -2d        so long ago (ms, s, m, h, d, w)
  2026-01-31T12:00      a time, local unless it names its zone (…Z, …+02:00); also 12:30
  @1767225600000        milliseconds since 1970

\b
Fields of a --format, as in kcat:
  %t topic  %p partition  %o offset  %T timestamp  %D time  %k key  %s value
  %K length of the key  %S length of the value  %h headers; \\n \\t \\r \\0 \\xHH
""",
)
@click.argument("topic", shell_complete=complete_topic)
@click.option(
    "--from",
    "first",
    type=where,
    metavar="PLACE",
    help="Where to begin.  [default: earliest; with --follow latest]",
)
@click.option("--until", type=where, metavar="PLACE", help="Where to end, exclusive.  [default: the end as it is now]")
@click.option("-n", "--max", "limit", type=click.IntRange(1), metavar="N", help="End after so many records.")
@click.option("-F", "--follow", is_flag=True, help="Go on with what comes.")
@partitions_option
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "wide", "json", "value", "raw"]),
    help="table; wide with headers; json, a line each; value, a line each; raw, without anything between.  "
    "[default: table on a terminal, value elsewhere]",
)
@click.option("-f", "--format", "template", metavar="TEMPLATE", help="What to print of each record; see below.")
@click.option("--grep", "pattern", metavar="REGEX", help="Only records whose key or value matches.")
@click.option("--null", default=NULL, metavar="TEXT", show_default=True, help="How to print a null key or value.")
@click.option(
    "--isolation",
    type=click.Choice(["read_uncommitted", "read_committed"]),
    default="read_uncommitted",
    show_default=True,
    help="Whether records of open and aborted transactions are shown.",
)
@connected
def command(
    client: Client,
    topic: str,
    first: Place | None,
    until: Place | None,
    limit: int | None,
    follow: bool,
    partitions: list[int] | None,
    output: str | None,
    template: str | None,
    pattern: str | None,
    null: str,
    isolation: Isolation,
) -> None:
    """Read records from a topic.

    Without --follow it ends where the topic ends now. Records of one partition come in order; those of several are
    interleaved. Null and empty values are told apart: <null> and "" in tables, null and "" in JSON.
    """
    if follow and until is not None:
        raise click.UsageError("--follow has no end: leave out --until.")
    if output and template:
        raise click.UsageError("--output and --format exclude each other.")
    matches = _compiled(pattern)
    templated = None if template is None else template_format(template, null)
    topic_of(client, topic)
    ends = ends_of(client, topic, partitions, isolation)
    start = first or (LATEST if follow else EARLIEST)
    spans = _spans(client, topic, ends, start, None if follow else until or LATEST)
    chosen = output or ("table" if on_terminal() else "value")
    form = templated or _format(chosen, ends, null)
    out = sys.stdout.buffer
    if isinstance(form, TableFormat):
        click.echo(click.style(form.header(), bold=True))
        sys.stdout.flush()
    _Consumption(client, spans, isolation, form, matches, limit).run(out, follow)


def _compiled(pattern: str | None) -> re.Pattern[bytes] | None:
    if pattern is None:
        return None
    import re

    try:
        return re.compile(pattern.encode("utf-8", "surrogateescape"))
    except re.error as error:
        raise click.BadParameter(f"{pattern!r} is not a regular expression: {error}.") from None


def _spans(client: Client, topic: str, ends: dict[int, Ends], first: Place, until: Place | None) -> list[Span]:
    from tidelog.client.reader import Span

    begins = resolve(client, topic, first, ends)
    stops = None if until is None else resolve(client, topic, until, ends)
    spans = []
    for partition, (low, high) in ends.items():
        begin = min(max(begins[partition], low), high)
        if first.offset is not None and begin != first.offset:
            tell(f"partition {partition} holds offsets {low} to {high}: beginning at {begin}")
        stop = None if stops is None else min(stops[partition], high)
        spans.append(Span(topic, partition, begin, stop))
    return spans


def _format(output: str, ends: dict[int, Ends], null: str) -> Format:
    if output == "json":
        return json_format
    if output == "raw":
        return raw_format
    if output == "value":
        return value_format(null)
    columns = shutil.get_terminal_size().columns if on_terminal() else None
    last = max((e.end for e in ends.values()), default=0)
    return TableFormat(len(str(max(ends, default=0))), len(str(last)), output == "wide", columns, null)


class _Consumption:
    """One run: what was scanned, what was printed, and where each partition stands."""

    def __init__(
        self,
        client: Client,
        spans: list[Span],
        isolation: Isolation,
        form: Format,
        matches: re.Pattern[bytes] | None,
        limit: int | None,
    ) -> None:
        self._client = client
        self._spans = spans
        self._isolation: Isolation = isolation
        self._form = form
        self._matches = matches
        self._limit = limit
        self._scanned = 0
        self._printed = 0

    def run(self, out: BinaryIO, follow: bool) -> None:
        from tidelog.client.errors import OffsetOutOfRange

        total = None if follow else sum(max(0, (s.until or 0) - s.position) for s in self._spans)
        # Where records go to the same terminal, they are the progress; what never ends gets nowhere.
        quiet = (on_terminal() and self._matches is None) or (follow and not sys.stderr.isatty())
        with Progress("scanned", total, shown=not quiet) as progress:
            while True:
                try:
                    self._read(out, follow, progress)
                    break
                except OffsetOutOfRange as error:
                    self._skip(error)
        if self._matches is not None:
            tell(f"{self._printed} of {self._scanned} records matched")

    def _read(self, out: BinaryIO, follow: bool, progress: Progress) -> None:
        from tidelog.client.reader import chunk_records

        keen = follow or on_terminal()
        for chunk in self._client.reader(self._spans, isolation=self._isolation).chunks():
            topic, partition = chunk.span.topic, chunk.span.partition
            for record in chunk_records(chunk):
                self._scanned += 1
                if self._scanned % 1000 == 0:
                    progress.update(self._scanned)
                if self._matches is not None and not self._wanted(record):
                    continue
                out.write(self._form(topic, partition, record))
                self._printed += 1
                if self._printed == self._limit:
                    out.flush()
                    return
            if keen:
                out.flush()
            progress.update(self._scanned)
        out.flush()

    def _wanted(self, record: Record) -> bool:
        assert self._matches is not None
        return any(part is not None and self._matches.search(part) for part in (record.key, record.value))

    def _skip(self, error: Exception) -> None:
        """Retention was faster than we: go on with what is left."""
        from tidelog.client.errors import OffsetOutOfRange

        assert isinstance(error, OffsetOutOfRange)
        behind = [span for span in self._spans if span.partition == error.partition and span.position < error.first]
        if not behind:
            raise error
        for span in behind:
            warn(f"{span.topic}-{span.partition}: offsets {span.position} to {error.first - 1} were deleted meanwhile")
            span.position = error.first
