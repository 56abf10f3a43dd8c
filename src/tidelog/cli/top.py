"""`tidelog top`: a cluster, live in a terminal."""

from __future__ import annotations

import shutil
import sys
import time
from typing import TYPE_CHECKING, Any, Final

import click

from tidelog.cli.options import CONTEXT, connected, examples, output_option
from tidelog.cli.output import Column, Row, json_line, on_terminal, plural, size, table_lines, value_of, warn

if TYPE_CHECKING:
    from tidelog.cli.cluster_sample import Sample
    from tidelog.client import Client

_CLEAR_AND_HOME: Final = "\x1b[H\x1b[2J"
_ENTER: Final = "\x1b[?1049h\x1b[?25l"
_LEAVE: Final = "\x1b[?25h\x1b[?1049l"
#: lines of a screen that are not rows of topics, groups or requests: headings, blank lines, the first two lines
_FRAME_LINES: Final = 12


@click.command(
    context_settings=dict(CONTEXT),
    epilog=examples(
        "tidelog top",
        "tidelog top --metrics localhost:9404",
        "tidelog top --metrics b1:9404,b2:9404,b3:9404 --interval 5",
        "tidelog top --once -o json | jq '.groups[] | select(.lag > 1000)'",
    ),
)
@click.option(
    "-m",
    "--metrics",
    "addresses",
    multiple=True,
    envvar="TIDELOG_METRICS",
    metavar="HOST:PORT",
    help="HTTP addresses of brokers (serve --http-port), for request rates; separated by commas or repeated.  "
    "[env: TIDELOG_METRICS]",
)
@click.option(
    "--interval",
    type=click.FloatRange(min=0.1),
    default=2.0,
    metavar="SECONDS",
    help="Time between refreshes.  [default: 2]",
)
@click.option("--once", is_flag=True, help="Show one interval and exit.")
@click.option(
    "--rows", type=click.IntRange(1), help="Rows of topics, groups and requests.  [default: what fits, or 10]"
)
@output_option("table", "json")
@connected
def command(
    client: Client, addresses: tuple[str, ...], interval: float, once: bool, rows: int | None, output: str
) -> None:
    """Watch the brokers, topics and groups of a cluster, until Ctrl-C.

    Topics are sorted by the rate at which records are written, and groups by lag. This works with any Kafka cluster;
    request rates, bytes read, memory and CPU are shown for Tidelog brokers whose HTTP address is given. With -o json,
    each refresh is one line.
    """
    from tidelog.cli.cluster_sample import picture, take_sample

    asked = [address.strip() for text in addresses for address in text.split(",") if address.strip()]
    before = take_sample(client, asked)
    screen = _Screen(live=output == "table" and on_terminal() and not once)
    with screen:
        while True:
            time.sleep(interval)
            after = _next_sample(client, asked, once)
            if after is None:
                continue
            shown = picture(before, after)
            if output == "json":
                click.echo(json_line(shown))
            else:
                screen.draw(_lines(shown, rows or screen.rows_that_fit(len(shown["brokers"]), bool(asked))))
            if once:
                return
            before = after


def _next_sample(client: Client, asked: list[str], once: bool) -> Sample | None:
    """None where the cluster does not answer now but may again."""
    from tidelog.cli.cluster_sample import take_sample
    from tidelog.client.errors import ClientError

    try:
        return take_sample(client, asked)
    except ClientError as error:
        if once:
            raise
        warn(str(error))
        return None


class _Screen:
    """On a terminal each picture takes the place of the last one, and the terminal is given back as it was."""

    def __init__(self, live: bool) -> None:
        self._live = live
        self._drawn = False

    def __enter__(self) -> _Screen:
        if self._live:
            self._write(_ENTER)
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._write(_LEAVE)

    def rows_that_fit(self, brokers: int, with_requests: bool) -> int:
        if not self._live:
            return 10
        free = shutil.get_terminal_size().lines - _FRAME_LINES - brokers
        return max(3, free // (3 if with_requests else 2))

    def draw(self, lines: list[str]) -> None:
        if self._live:
            self._write(_CLEAR_AND_HOME)
        elif self._drawn:
            click.echo()
        self._drawn = True
        for line in lines:
            click.echo(line)

    @staticmethod
    def _write(text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()


def _lines(shown: dict[str, Any], most: int) -> list[str]:
    health = [f"broker {broker} is down" for broker in shown["down"]]
    health += [
        f"{len(shown[what])} {words}: {', '.join(shown[what][:5])}{' …' if len(shown[what]) > 5 else ''}"
        for what, words in (("offline", "offline"), ("under_replicated", "under-replicated"))
        if shown[what]
    ]
    state = "; ".join([*(health or ["all partitions are online and fully replicated"]), *shown["without_metrics"]])
    counts = (plural(len(shown["brokers"]), "broker"), plural(len(shown["topics"]), "topic"))
    lines = [
        f"cluster {shown['cluster_id']}, {counts[0]}, {counts[1]}, {plural(shown['partitions'], 'partition')}",
        click.style(state, fg="red") if health or shown["without_metrics"] else state,
    ]
    for what, columns in _TABLES.items():
        rows = shown[what] if what == "brokers" else shown[what][:most]
        if rows:
            told = [
                column
                for column in columns
                if not column.wide or any(value_of(row, column) is not None for row in rows)
            ]
            lines += ["", *table_lines(rows, told)]
            if len(shown[what]) > len(rows):
                lines.append(f"… and {len(shown[what]) - len(rows)} more")
    return lines


def _per_s(key: str) -> Any:
    return lambda row: None if row[key] is None else f"{row[key]:,.0f}"


def _bytes_per_s(key: str) -> Any:
    return lambda row: None if row[key] is None else size(int(row[key]))


def _ms(key: str) -> Any:
    return lambda row: None if row[key] is None else f"{row[key]:.2f}"


def _percent(row: Row) -> str | None:
    return None if row["cpu_percent"] is None else f"{row['cpu_percent']}%"


#: wide: only shown where there is something to tell
_TABLES: Final[dict[str, list[Column]]] = {
    "brokers": [
        Column("BROKER", "broker", right=True),
        Column("ADDRESS", "address"),
        Column("ROLE", lambda row: "controller" if row["controller"] else None),
        Column("LEADERS", "leaders", right=True),
        Column("REPLICAS", "replicas", right=True),
        Column("SIZE", lambda row: size(row["size_bytes"]), right=True),
        Column("MSG/S", _per_s("messages_per_s"), right=True),
        Column("IN/S", _bytes_per_s("bytes_in_per_s"), wide=True, right=True),
        Column("OUT/S", _bytes_per_s("bytes_out_per_s"), wide=True, right=True),
        Column("REQ/S", _per_s("requests_per_s"), wide=True, right=True),
        Column("CONN", "connections", wide=True, right=True),
        Column("CPU", _percent, wide=True, right=True),
        Column("MEMORY", lambda row: size(row["memory_bytes"]), wide=True, right=True),
    ],
    "topics": [
        Column("TOPIC", "topic"),
        Column("PARTITIONS", "partitions", right=True),
        Column("MSG/S", _per_s("messages_per_s"), right=True),
        Column("BYTES/S", _bytes_per_s("bytes_per_s"), right=True),
        Column("SIZE", lambda row: size(row["size_bytes"]), right=True),
        Column("UNDER-REPLICATED", "under_replicated", right=True),
        Column("OFFLINE", "offline", right=True),
    ],
    "groups": [
        Column("GROUP", "group"),
        Column("STATE", "state"),
        Column("LAG", "lag", right=True),
        Column("READ/S", _per_s("read_per_s"), right=True),
        Column("TOPICS", "topics"),
    ],
    "requests": [
        Column("REQUEST", "request"),
        Column("REQ/S", _per_s("per_s"), right=True),
        Column("P50 MS", _ms("p50_ms"), right=True),
        Column("P99 MS", _ms("p99_ms"), right=True),
    ],
}
