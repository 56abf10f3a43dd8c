"""`tidelog work`: run a program for each record of a topic, many at once, in the order of the keys."""

from __future__ import annotations

import logging
import shlex
import shutil
import sys
import time
from typing import TYPE_CHECKING, Any, Final

import click

from tidelog import how_to_install
from tidelog.cli.complete import complete_group, complete_topic
from tidelog.cli.options import CONTEXT, broker_options, examples, output_option, pairs, topic_of
from tidelog.cli.output import json_line, plural, tell, warn
from tidelog.cli.stopping import Stopping, stoppable
from tidelog.config.units import duration_ms

if TYPE_CHECKING:
    from tidelog.workers import WorkProgress

_IN_PLACE_S: Final = 0.5
_LINES_S: Final = 10.0
_CLEAR: Final = "\r\x1b[K"


def seconds(text: str) -> float:
    """Of 500ms, 30s, 5m …"""
    try:
        return float(duration_ms(text)) / 1000
    except ValueError as error:
        raise click.BadParameter(f"{error}.") from None


@click.command(
    context_settings=dict(CONTEXT),
    epilog=examples(
        "tidelog work orders --group billing --exec ./charge",
        "tidelog work orders --group billing --exec './charge --live' --concurrency 16 --handler-timeout 30s",
        "tidelog work orders --group index --exec ./index --order none --attempts 3 --dead-letters failed-orders",
        "tidelog work orders --group enrich --exec ./enrich --to enriched --transactional-id enrich-1",
        "tidelog work orders --group nightly --exec ./load --until-end -o json",
    )
    + """

\b
The program is run once for each record, with the value on its standard input and these variables:
  TIDELOG_TOPIC, TIDELOG_PARTITION, TIDELOG_OFFSET, TIDELOG_TIMESTAMP (ms), TIDELOG_ATTEMPT (1, 2, …)
  TIDELOG_KEY           not set if the key is null or contains a NUL byte
  TIDELOG_KEY_BASE64    not set if the key is null
  TIDELOG_NULL=1        if the value is null
  TIDELOG_HEADER_NAME   one for each header, with the name in capitals and _ for other characters

\b
Its exit code says what became of the record:
  0                     handled
  65                    will never succeed: goes to the dead-letter topic at once
  any other             failed: tried again; the last line on standard error is the reason
""",
)
@click.argument("topics", nargs=-1, required=True, shell_complete=complete_topic)
@click.option("-g", "--group", required=True, shell_complete=complete_group, help="The consumer group to work in.")
@click.option("--exec", "program", required=True, metavar="COMMAND", help="The program, with its arguments.")
@click.option(
    "-c", "--concurrency", type=click.IntRange(1), default=64, show_default=True, help="How many records at once."
)
@click.option(
    "--order",
    type=click.Choice(["key", "partition", "none"]),
    default="key",
    show_default=True,
    help="Which records are handled one after the other: those with the same key, of one partition, or none.",
)
@click.option("--to", metavar="TOPIC", help="Write each line that the program prints to this topic, with the same key.")
@click.option(
    "--transactional-id",
    metavar="ID",
    help="Commit offsets and what is written with --to in transactions: exactly once. Use one ID per process, and the "
    "same one after a restart.",
)
@click.option(
    "--attempts", type=click.IntRange(1), default=5, show_default=True, help="How many times a record is tried."
)
@click.option(
    "--backoff",
    type=seconds,
    default="1s",
    show_default=True,
    metavar="TIME",
    help="Wait this long, then twice as long …",
)
@click.option("--handler-timeout", type=seconds, metavar="TIME", help="Kill a program that runs longer than this.")
@click.option(
    "--dead-letters",
    metavar="TOPIC",
    help="Topic for records that failed every time.  [default: the topic's name and .dead-letters]",
)
@click.option("--stop-on-failure", is_flag=True, help="Stop instead of writing a dead letter.")
@click.option("--until-end", is_flag=True, help="Stop when everything that the topics hold is handled.")
@click.option(
    "--drain-timeout",
    type=seconds,
    default="30s",
    show_default=True,
    metavar="TIME",
    help="How long running programs may take when their partitions are revoked, or when this command stops.",
)
@click.option(
    "--protocol",
    type=click.Choice(["classic", "consumer"]),
    default="classic",
    show_default=True,
    help="Group protocol.",
)
@click.option(
    "--http-port", type=click.IntRange(0, 65535), metavar="PORT", help="Serve Prometheus metrics on this port."
)
@click.option(
    "-X", "--set", "settings", multiple=True, metavar="KEY=VALUE", help="A setting of the Kafka client (librdkafka)."
)
@output_option("text", "json")
@stoppable("record", "the records in hand")
@broker_options
def command(
    stopping: Stopping,
    bootstrap: str,
    timeout: float,
    topics: tuple[str, ...],
    group: str,
    program: str,
    concurrency: int,
    order: Any,
    to: str | None,
    transactional_id: str | None,
    attempts: int,
    backoff: float,
    handler_timeout: float | None,
    dead_letters: str | None,
    stop_on_failure: bool,
    until_end: bool,
    drain_timeout: float,
    protocol: Any,
    http_port: int | None,
    settings: tuple[str, ...],
    output: str,
) -> None:
    """Run a program for each record of a topic, many at once.

    Records with the same key are handled one after the other, in order. Offsets are committed without gaps, and what is
    done beyond them is remembered in the commit, so after a crash only records that were being handled are repeated.
    Works with any Kafka broker. Python programs can use the library instead: tidelog.workers.
    """
    if dead_letters and stop_on_failure:
        raise click.UsageError("--dead-letters and --stop-on-failure cannot be combined.")
    room = _imported()
    handler = room.Program(_words(program), to, handler_timeout)
    _check_topics(bootstrap, timeout, topics)
    workers = room.Workers(
        topics,
        group,
        handler,
        concurrency,
        order,
        bootstrap=bootstrap,
        protocol=protocol,
        attempts=attempts,
        backoff_s=backoff,
        dead_letters=None if stop_on_failure else dead_letters or room.DEAD_LETTERS,
        transactional_id=transactional_id,
        drain_timeout_s=drain_timeout,
        config=pairs(settings),
    )
    _speak()
    if http_port is not None:
        _serve_metrics(workers, http_port)
    stopping.hand_over(workers.stop)
    try:
        with ProgressLine() as line:
            done = workers.run(until_end=until_end, on_turn=line.update)
    except KeyboardInterrupt:
        handler.kill()
        raise
    except room.WorkersFailed as error:
        raise click.ClickException(f"{error}.") from None
    if output == "json":
        click.echo(
            json_line({name: getattr(done, name) for name in ("handled", "skipped", "failed", "retried", "dead")})
        )
    else:
        told = f"{plural(done.handled, 'record')} handled"
        tell(told + (f", {plural(done.dead, 'dead letter')}" if done.dead else ""))


def _imported() -> Any:
    try:
        import tidelog.workers as room
    except ModuleNotFoundError as error:
        raise click.ClickException(f"{error.name} is not installed: {how_to_install('workers')}.") from None
    return room


def _check_topics(bootstrap: str, timeout_s: float, topics: tuple[str, ...]) -> None:
    from tidelog.client import Client

    with Client(bootstrap, "tidelog-cli", timeout_s) as client:
        for topic in topics:
            topic_of(client, topic)


def _words(program: str) -> list[str]:
    try:
        words = shlex.split(program)
    except ValueError as error:
        raise click.BadParameter(f"{program!r}: {error}.", param_hint="--exec") from None
    if not words or shutil.which(words[0]) is None:
        name = words[0] if words else ""
        raise click.BadParameter(f"there is no program {name!r} that can be run.", param_hint="--exec")
    return words


def _serve_metrics(workers: Any, port: int) -> None:
    from prometheus_client import CollectorRegistry, start_http_server

    from tidelog.workers.work_metrics import WorkCollector

    registry = CollectorRegistry()
    registry.register(WorkCollector(workers))
    server, _ = start_http_server(port, "127.0.0.1", registry)
    tell(f"metrics on http://127.0.0.1:{server.server_port}/metrics")


class _Telling(logging.Handler):
    """What the workers say, as the other commands say it."""

    def emit(self, record: logging.LogRecord) -> None:
        said = record.getMessage()
        if sys.stderr.isatty():
            sys.stderr.write(_CLEAR)
        if record.levelno >= logging.WARNING:
            warn(said)
        else:
            tell(said)


def _speak() -> None:
    logger = logging.getLogger("tidelog.workers")
    logger.handlers[:] = [_Telling(logging.WARNING)]
    logger.propagate = False


class ProgressLine:
    """Updated in place on a terminal; elsewhere a line now and then."""

    def __init__(self) -> None:
        self._in_place = sys.stderr.isatty()
        self._every_s = _IN_PLACE_S if self._in_place else _LINES_S
        self._shown_at = time.monotonic()
        self._shown: WorkProgress | None = None

    def update(self, now: WorkProgress) -> None:
        passed_s = time.monotonic() - self._shown_at
        if passed_s < self._every_s:
            return
        from tidelog.workers import progress_line

        line = progress_line(now, self._shown, passed_s)
        self._shown, self._shown_at = now, time.monotonic()
        if self._in_place:
            sys.stderr.write(_CLEAR + line)
            sys.stderr.flush()
        else:
            tell(line)

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(self, *_: object) -> None:
        if self._in_place and self._shown is not None:
            sys.stderr.write(_CLEAR)
            sys.stderr.flush()
