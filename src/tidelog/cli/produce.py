"""`tidelog produce`: write records to a topic, from lines, JSON lines or files.

Input from a pipe or a terminal is sent as soon as nothing more is waiting to be read; input from a file is sent in
large batches. The producer is idempotent: if a broker goes away and comes back, no record is lost or duplicated.
"""

from __future__ import annotations

import os
import select
import stat
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from typing import TYPE_CHECKING, BinaryIO, Final

import click

from tidelog.cli.complete import complete_topic
from tidelog.cli.formats import from_json, unescaped
from tidelog.cli.options import CONTEXT, check_known, compression_option, connected, examples, pairs
from tidelog.cli.output import json_line, plural, tell
from tidelog.cli.places import when
from tidelog.cli.progress import Progress

if TYPE_CHECKING:
    from tidelog.client import Client
    from tidelog.client.producer import Delivered, Message, Producer

CHUNK_BYTES: Final = 1 << 16
STDIN: Final = "-"
#: the clock is looked at after so many
PROGRESS_RECORDS: Final = 1000


@click.command(
    context_settings=dict(CONTEXT),
    epilog=examples(
        "echo 'hello' | tidelog produce greetings",
        "tidelog produce orders --key-separator : < orders.txt",
        "tidelog produce orders --input json orders.jsonl -z zstd",
        "tidelog produce pictures --input file --key cat cat.png",
        "tidelog consume orders -o json | tidelog produce orders-copy --input json",
    )
    + """

\b
A JSON line is {"key": …, "value": …, "headers": …, "timestamp": ms, "partition": …}. All fields are optional. If key
or value is not a string, it is written as JSON; use key_base64 and value_base64 for bytes. Headers are
{"name": "value"} or a list of {"name": …, "value": …}. `tidelog consume -o json` prints the same format.
""",
)
@click.argument("topic", shell_complete=complete_topic)
@click.argument("files", nargs=-1, type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option(
    "-i",
    "--input",
    "kind",
    type=click.Choice(["lines", "json", "file"]),
    default="lines",
    show_default=True,
    help="What each record is: a line, a line of JSON, or a whole file.",
)
@click.option(
    "-d", "--delimiter", default=r"\n", show_default=True, metavar="TEXT", help=r"Record delimiter, such as \0."
)
@click.option(
    "-K", "--key-separator", metavar="TEXT", help=r"Split each line at TEXT into key and value; for example : or \t."
)
@click.option("-k", "--key", metavar="TEXT", help="Key for records that have none.")
@click.option("-H", "--header", "headers", multiple=True, metavar="NAME=VALUE", help="Header to add to every record.")
@click.option(
    "-p", "--partition", type=click.IntRange(0), help="Partition to write to.  [default: by key, like the Java client]"
)
@click.option(
    "--timestamp", type=when, metavar="TIME", help="Timestamp of every record, as in `consume --from`.  [default: now]"
)
@click.option("--null", metavar="TEXT", help="Text that stands for a null key or value.")
@compression_option
@click.option(
    "--acks",
    type=click.Choice(["all", "1", "0"]),
    default="all",
    show_default=True,
    help="Which replicas must acknowledge a record.",
)
@click.option(
    "--spread",
    type=click.Choice(["sticky", "round-robin"]),
    default="sticky",
    show_default=True,
    help="How to distribute records without a key.",
)
@click.option("--no-create", is_flag=True, help="Do not let the broker create a missing topic.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["summary", "json"]),
    default="summary",
    show_default=True,
    help="What to print at the end; json prints one line per range of offsets.",
)
@connected
def command(
    client: Client,
    topic: str,
    files: tuple[str, ...],
    kind: str,
    delimiter: str,
    key_separator: str | None,
    key: str | None,
    headers: tuple[str, ...],
    partition: int | None,
    timestamp: int | None,
    null: str | None,
    compression: str,
    acks: str,
    spread: str,
    no_create: bool,
    output: str,
) -> None:
    """Write records to a topic, from FILES or standard input."""
    recipe = Recipe(kind, delimiter, key_separator, key, headers, timestamp, null)
    _ensure_topic(client, topic, no_create)
    producer = client.producer(acks=acks, compression=compression, spread=spread)
    sources = files or (STDIN,)
    try:
        with Progress("records sent:", _total_bytes(sources), shown=not sys.stdin.isatty()) as progress:
            sending = Sending(producer, topic, recipe, partition, progress)
            for name in sources:
                sending.send_source(name)
            producer.flush()
    finally:
        _report(topic, producer.delivered, output)


def _ensure_topic(client: Client, topic: str, no_create: bool) -> None:
    from tidelog.client.errors import NotFound

    try:
        client.topic(topic)
        return
    except NotFound:
        if no_create:
            check_known(client.describe().topics, topic, "topic")
    try:
        created = client.cluster.topic(topic, auto_create=True)
    except NotFound as error:
        error.hint = f"create it with `tidelog topic create {topic}`: the brokers do not create topics automatically"
        raise
    tell(f"topic {topic} did not exist: the broker created it with {plural(len(created.partitions), 'partition')}")


def _total_bytes(sources: tuple[str, ...]) -> int | None:
    if STDIN in sources:
        try:
            about = os.fstat(sys.stdin.fileno())
        except (OSError, ValueError):
            return None
        return about.st_size if stat.S_ISREG(about.st_mode) and sources == (STDIN,) else None
    return sum(os.path.getsize(name) for name in sources)


class Recipe:
    """Turns a piece of input into a record."""

    def __init__(
        self,
        kind: str,
        delimiter: str,
        key_separator: str | None,
        key: str | None,
        headers: tuple[str, ...],
        timestamp: int | None,
        null: str | None,
    ) -> None:
        if key_separator is not None and kind != "lines":
            raise click.UsageError("--key-separator is for --input lines.")
        self.kind = kind
        self.delimiter = unescaped(delimiter)
        if not self.delimiter:
            raise click.UsageError(
                "--delimiter must not be empty; use --input file to send a whole file as one record."
            )
        self._separator = None if key_separator is None else unescaped(key_separator)
        if self._separator == b"":
            raise click.UsageError("--key-separator must not be empty.")
        self._key = None if key is None else key.encode("utf-8", "surrogateescape")
        given = pairs(headers, "header").items()
        self._headers = [(name, value.encode("utf-8", "surrogateescape")) for name, value in given]
        self._timestamp = timestamp
        self._null = None if null is None else null.encode("utf-8", "surrogateescape")

    def record(self, piece: bytes) -> tuple[Message, int | None]:
        """The record and its partition; ValueError if the input is not a record."""
        from tidelog.client.producer import Message

        if self.kind == "json":
            import json

            message, partition = from_json(json.loads(piece))
            return self._completed(message), partition
        key: bytes | None = None
        value = piece
        if self._separator is not None:
            key, found, value = piece.partition(self._separator)
            if not found:
                raise ValueError(f"there is no {self._separator.decode(errors='replace')!r} between key and value")
        if self._separator is None:
            key = self._key
        elif key == self._null:
            # A key that was said to be null is not one that is missing.
            key = None
        return Message(None if value == self._null else value, key, self._headers, self._timestamp), None

    def _completed(self, message: Message) -> Message:
        return message._replace(
            key=self._key if message.key is None else message.key,
            headers=[*(message.headers or ()), *self._headers],
            timestamp_ms=self._timestamp if message.timestamp_ms is None else message.timestamp_ms,
        )


class Sending:
    """Sends the input to the topic and tracks progress."""

    def __init__(
        self, producer: Producer, topic: str, recipe: Recipe, partition: int | None, progress: Progress
    ) -> None:
        self._producer = producer
        self._topic = topic
        self._recipe = recipe
        self._partition = partition
        self._progress = progress
        self._records = 0
        self._bytes = 0

    def send_source(self, name: str) -> None:
        shown = "standard input" if name == STDIN else name
        if name == STDIN and sys.stdin.isatty():
            tell("one record per line; Ctrl-D ends the input")
        with nullcontext(sys.stdin.buffer) if name == STDIN else open(name, "rb") as stream:
            if self._recipe.kind == "file":
                self._send(stream.read(), shown)
                return
            for number, line in enumerate(_lines(stream, self._producer, self._recipe.delimiter), 1):
                self._send(line, f"{shown}, line {number}")

    def _send(self, piece: bytes, place: str) -> None:
        try:
            message, named = self._recipe.record(piece)
        except ValueError as error:
            self._producer.flush()
            raise click.ClickException(f"{place}: {error}") from None
        self._producer.send(
            self._topic,
            message.value,
            message.key,
            message.headers,
            partition=named if self._partition is None else self._partition,
            timestamp_ms=message.timestamp_ms,
        )
        self._records += 1
        self._bytes += len(piece) + 1
        if self._records % PROGRESS_RECORDS == 0:
            self._progress.update(self._records, self._bytes)


def _lines(stream: BinaryIO, producer: Producer, delimiter: bytes) -> Iterator[bytes]:
    """The lines without their delimiters; flushes whenever no more input is waiting."""
    try:
        descriptor = stream.fileno()
        waits = not stat.S_ISREG(os.fstat(descriptor).st_mode)
    except (OSError, ValueError):
        # A stream without a descriptor is in memory.
        *lines, rest = stream.read().split(delimiter)
        yield from [*lines, rest] if rest else lines
        return
    rest = b""
    while True:
        if waits and not select.select([descriptor], [], [], 0)[0]:
            producer.flush()
        chunk = os.read(descriptor, CHUNK_BYTES)
        if not chunk:
            break
        *lines, rest = (rest + chunk).split(delimiter)
        yield from lines
    if rest:
        yield rest


def _report(topic: str, delivered: list[Delivered], output: str) -> None:
    if output == "json":
        for _, partition, offset, count in delivered:
            known = offset if offset >= 0 else None
            click.echo(json_line({"topic": topic, "partition": partition, "offset": known, "count": count}))
        return
    where = [
        f"{partition} at {offset}" + (f"–{offset + count - 1}" if count > 1 else "")
        for _, partition, offset, count in sorted(delivered)
        if offset >= 0
    ]
    many = plural(sum(run.record_count for run in delivered), "record")
    told = f" (partition {', '.join(where[:8])}{' …' if len(where) > 8 else ''})" if where else ""
    tell(f"{many} written to {topic}{told}")
