"""Shared parts of the commands: connecting to a broker, printing, and asking for confirmation."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

if TYPE_CHECKING:
    from tidelog.client import Client
    from tidelog.client.cluster import TopicInfo

R = TypeVar("R")
Decorated = Callable[..., Any]

DEFAULT_BOOTSTRAP: Final = "localhost:9092"
CONTEXT: Final = {"help_option_names": ["-h", "--help"]}


def suggest(ctx: click.Context, args: list[str], known: Any) -> None:
    """Says what a mistyped command was probably meant to be."""
    if not args or args[0] in known or args[0].startswith("-"):
        return
    import difflib

    close = difflib.get_close_matches(args[0], list(known), n=1)
    meant = f" Did you mean {close[0]}?" if close else f" There are: {', '.join(known)}."
    ctx.fail(f"No such command {args[0]!r}.{meant}")


class NounGroup(click.Group):
    """A noun with its verbs in the order in which they were written."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        suggest(ctx, args, self.commands)
        return super().resolve_command(ctx, args)


def noun(help_text: str) -> NounGroup:
    return NounGroup(help=help_text, context_settings=dict(CONTEXT))


def examples(*lines: str) -> str:
    """An epilog of example commands."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def debugging(ctx: click.Context) -> bool:
    """Whether --debug was given, before or behind the command."""
    found: bool = ctx.find_root().params.get("debug", False) or ctx.find_root().meta.get("debug", False)
    return found


def note_format(ctx: click.Context, arguments: list[str]) -> None:
    """Remembers whether -o json was given, before anything can go wrong: errors and notes are JSON then, too."""
    asked = any(pair in (("-o", "json"), ("--output", "json")) for pair in pairwise(arguments))
    ctx.meta["json"] = asked or not {"-ojson", "--output=json"}.isdisjoint(arguments)


def speaks_json() -> bool:
    ctx = click.get_current_context(silent=True)
    return ctx is not None and bool(ctx.find_root().meta.get("json"))


def _note_debug(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        ctx.find_root().meta["debug"] = True


debug_option: Final = click.option(
    "--debug", is_flag=True, hidden=True, expose_value=False, callback=_note_debug, is_eager=True
)


def broker_options(function: Decorated) -> Decorated:
    for option in (
        debug_option,
        click.option(
            "--timeout",
            type=click.FloatRange(min=0.1),
            default=30.0,
            metavar="SECONDS",
            help="How long to keep trying.  [default: 30]",
        ),
        click.option(
            "-b",
            "--bootstrap",
            envvar="TIDELOG_BOOTSTRAP",
            default=DEFAULT_BOOTSTRAP,
            metavar="HOST:PORT",
            help=f"Brokers to contact, separated by commas.  [env: TIDELOG_BOOTSTRAP; default: {DEFAULT_BOOTSTRAP}]",
        ),
    ):
        function = option(function)
    return function


def connected(function: Callable[..., R]) -> Decorated:
    """Gives the command a client as its first argument, and the options that say whom it asks."""

    @broker_options
    @functools.wraps(function)
    def wrapper(bootstrap: str, timeout: float, **arguments: Any) -> R:
        from tidelog.client import Client

        with Client(bootstrap, "tidelog-cli", timeout) as client:
            return function(client, **arguments)

    return wrapper


def output_option(*formats: str) -> Callable[[Decorated], Decorated]:
    """-o, the first of the formats being the default."""
    formats = formats or ("table", "wide", "json", "yaml", "name")
    return click.option(
        "-o", "--output", type=click.Choice(formats), default=formats[0], help="Output format.", show_default=True
    )


def compression_option(function: Decorated) -> Decorated:
    from tidelog.wire.compression import CODEC_NAMES

    choice = click.Choice(CODEC_NAMES)
    return click.option(
        "-z", "--compression", type=choice, default="none", show_default=True, help="Compression codec."
    )(function)


def data_dirs_option(function: Decorated) -> Decorated:
    return click.option(
        "--data-dir",
        "data_dirs",
        multiple=True,
        metavar="DIR",
        default=["tidelog-data"],
        show_default=True,
        help="Data directory of a broker on this machine; may be repeated.",
    )(function)


def dry_run_option(function: Decorated) -> Decorated:
    return click.option("--dry-run", is_flag=True, help="Only show what would be done.")(function)


def yes_option(function: Decorated) -> Decorated:
    return click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")(function)


def confirm(question: str, yes: bool) -> None:
    """Asks before something is lost; without a terminal to ask on, --yes must be given."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"{question} Use --yes to confirm, or --dry-run to see what would be done.")
    click.confirm(question, abort=True, err=True)


def pairs(values: tuple[str, ...], what: str = "setting") -> dict[str, str]:
    """`key=value` arguments; the last of a key wins."""
    found = {}
    for text in values:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise click.UsageError(f"{text!r} is not a {what}: use key=value.")
        found[key.strip()] = value
    return found


def setting_pairs(values: tuple[str, ...]) -> dict[str, str]:
    """`key=value` settings; durations and sizes as the numbers that they mean."""
    from tidelog.config.units import plain_number

    return {name: plain_number(name, text) for name, text in pairs(values).items()}


def partition_list(_: click.Context | None, __: click.Parameter | None, values: tuple[str, ...]) -> list[int] | None:
    """`0`, `0,2`, `4-7`, and any of them several times; None where nothing is given."""
    found: set[int] = set()
    for text in values:
        for part in text.split(","):
            first, dash, last = part.strip().partition("-")
            try:
                found.update(range(int(first), int(last if dash else first) + 1))
            except ValueError:
                raise click.BadParameter(f"{part!r} is not a partition: use 0, 0,2 or 4-7.") from None
    return sorted(found) if values else None


def partitions_option(function: Decorated) -> Decorated:
    return click.option(
        "-p",
        "--partition",
        "partitions",
        multiple=True,
        callback=partition_list,
        metavar="LIST",
        help="Only these partitions, such as 0, 0,2 or 4-7; may be repeated.  [default: all]",
    )(function)


def check_partitions(topic: TopicInfo, partitions: list[int] | None) -> None:
    """A NotFound for those that the topic does not have."""
    from tidelog.client.cluster import no_such_partition

    for partition in partitions or ():
        if partition not in topic.partitions:
            raise no_such_partition(topic, partition)


def check_known(names: Mapping[str, Any] | list[str], name: str, what: str) -> None:
    """A NotFound that knows what the name was probably meant to be."""
    if name in names:
        return
    import difflib

    from tidelog.client.errors import NotFound

    close = difflib.get_close_matches(name, list(names), n=1)
    hint = f"did you mean {close[0]}?" if close else f"`tidelog {what} list` shows all of them"
    raise NotFound(f"there is no {what} {name}", hint=hint)


def topic_of(client: Client, name: str) -> Any:
    """The topic, or an error that suggests another name."""
    from tidelog.client.errors import NotFound

    try:
        return client.topic(name)
    except NotFound as error:
        if not name:
            raise
        check_known(client.describe().topics, name, "topic")
        raise error
