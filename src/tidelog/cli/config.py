"""`tidelog config`: what a broker would start with, what a setting means, and what is set in a running cluster."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from tidelog.cli.complete import complete_any_setting, complete_broker_setting
from tidelog.cli.options import (
    confirm,
    connected,
    dry_run_option,
    examples,
    noun,
    output_option,
    setting_pairs,
    yes_option,
)
from tidelog.cli.output import Column, Row, show, show_done, show_fields, show_one, tell, warn

if TYPE_CHECKING:
    from tidelog.client import Client
    from tidelog.client.admin import ConfigEntry
    from tidelog.config.definitions import ConfigKey

command = noun("Show, explain and change configurations.")
KINDS: Final = ("topic", "broker", "group", "client-metrics")
HIDDEN: Final = "[hidden]"
#: where a value comes from that `tidelog serve` itself settles: its address, its directory
_OF_SERVE: Final = "tidelog serve"
#: the effect of a setting for which `tidelog serve` exits
STOPS: Final = "stops the start"

kind_argument = click.argument("kind", type=click.Choice(KINDS))
config_files = click.option(
    "--config", "files", multiple=True, metavar="FILE", help="server.properties or a TOML file; may be repeated."
)
flags_option = click.option(
    "-X",
    "flags",
    multiple=True,
    metavar="KEY=VALUE",
    shell_complete=complete_broker_setting,
    help="Broker setting; may be repeated.",
)


@command.command(
    "show",
    epilog=examples(
        "tidelog config show --config server.properties",
        "tidelog config show --all 'log.retention.*'",
        "KAFKA_NUM_PARTITIONS=3 tidelog config show -o json",
    ),
)
@click.argument("pattern", default="*", shell_complete=complete_any_setting)
@config_files
@flags_option
@click.option("-a", "--all", "everything", is_flag=True, help="Include defaults.")
@output_option()
def show_config(pattern: str, files: tuple[str, ...], flags: tuple[str, ...], everything: bool, output: str) -> None:
    """Show the settings that a broker would start with, their origin, and whether they have any effect.

    Uses the same files, KAFKA_ variables and flags as `tidelog serve`, and does not connect to a broker. If `serve`
    would refuse to start, this is reported at the end, with exit code 2.
    """
    from fnmatch import fnmatchcase

    from tidelog.config.definitions import BROKER_KEYS, broker_key
    from tidelog.config.effects import effect_of
    from tidelog.config.sources import load
    from tidelog.config.unkept import refuse_unkept, refused_names
    from tidelog.config.values import to_text
    from tidelog.server import combine

    settings = load(files, os.environ, flags)
    given = dict(settings.by_name)
    config = combine(settings, None, None, None)
    for warning in settings.warnings:
        warn(warning)
    refused = refused_names(given, settings.ignored)
    names = {*BROKER_KEYS, *config.names_set()} if everything or pattern in BROKER_KEYS else set(config.names_set())
    rows: list[Row] = []
    for name in sorted(name for name in names if fnmatchcase(name, pattern)):
        key = broker_key(name)
        secret = key is not None and key.sensitive and config.is_set(name)
        rows.append(
            {
                "name": name,
                "value": HIDDEN if secret else to_text(config.get(name)),
                "from": config.where(name) if name in given or not config.is_set(name) else _OF_SERVE,
                "effect": STOPS if name in refused else effect_of(name, config.text(name)),
                "default": None if key is None else key.default,
            }
        )
    columns = [
        Column("NAME", "name"),
        Column("VALUE", "value"),
        Column("FROM", "from"),
        Column("EFFECT", "effect"),
        Column("DEFAULT", "default", wide=True),
    ]
    if rows or output not in ("table", "wide"):
        show(rows, columns, output)
    else:
        tell("nothing is set" if pattern == "*" else f"nothing that matches {pattern} is set; --all includes defaults")
    refuse_unkept(given, settings.ignored)


@command.command(epilog=examples("tidelog config explain retention.ms", "tidelog config explain log.retention.ms"))
@click.argument("key", shell_complete=complete_any_setting)
@output_option("table", "json", "yaml")
def explain(key: str, output: str) -> None:
    """Explain a setting of brokers, topics or groups: its meaning, valid values, default and effect."""
    from tidelog.config.definitions import listener_key

    found = {kind: keys[key] for kind, keys in _definitions().items() if key in keys}
    if not found and (own := listener_key(key)) is not None:
        found = {"broker": own}
    if not found:
        raise _unknown(key, {name for keys in _definitions().values() for name in keys})
    rows = [_explained(kind, definition) for kind, definition in found.items()]

    def people() -> None:
        for number, row in enumerate(rows):
            if number:
                click.echo()
            click.echo(click.style(f"{row['name']}", bold=True) + f" of a {row['kind']}")
            click.echo(f"  {row['documentation']}")
            show_fields([(f"  {field}", row[field]) for field in row if field not in ("name", "kind", "documentation")])

    show_one({"settings": rows}, output, people)


def _definitions() -> dict[str, Mapping[str, ConfigKey]]:
    from tidelog.config.definitions import BROKER_KEYS, CLIENT_METRICS_KEYS, GROUP_KEYS, TOPIC_KEYS

    return {"topic": TOPIC_KEYS, "broker": BROKER_KEYS, "group": GROUP_KEYS, "client-metrics": CLIENT_METRICS_KEYS}


def _explained(kind: str, key: ConfigKey) -> Row:
    from tidelog.config.definitions import GROUP_SYNONYMS, TOPIC_SYNONYMS
    from tidelog.config.effects import explain_effect
    from tidelog.config.values import describe_valid

    row: Row = {
        "name": key.name,
        "kind": kind,
        "documentation": key.documentation,
        "takes": describe_valid(key),
        "default": key.default,
    }
    if kind == "topic" and key.name in TOPIC_SYNONYMS:
        row["otherwise"] = f"the broker's {TOPIC_SYNONYMS[key.name][0][0]}"
    if kind == "group" and key.name in GROUP_SYNONYMS:
        row["otherwise"] = f"the broker's {GROUP_SYNONYMS[key.name]}"
    if kind == "broker":
        row["changes"] = "at run time" if key.dynamic else "only at startup"
    row["effect"] = explain_effect(key, kind)
    return row


def _unknown(key: str, known: Iterable[str]) -> Exception:
    from tidelog.client.errors import NotFound
    from tidelog.config.errors import nearest

    suggestion = nearest(key, sorted(known))
    hint = f"did you mean {suggestion}?" if suggestion else "`tidelog config show --all` lists all broker settings"
    return NotFound(f"there is no setting {key}", hint=hint)


def check_keys(kind: str, keys: Iterable[str]) -> None:
    """Refuses a mistyped name before asking a broker; an entirely unknown name is left to the broker."""
    from tidelog.config.errors import nearest

    known = _definitions()[kind]
    for key in keys:
        if (
            key not in known
            and (suggestion := nearest(key, known)) is not None
            and not key.startswith("listener.name.")
        ):
            raise click.UsageError(f"A {kind} has no setting {key}. Did you mean {suggestion}?")


@command.command(
    epilog=examples(
        "tidelog config describe topic orders",
        "tidelog config describe topic orders retention.ms -o json",
        "tidelog config describe broker 0 --all",
    )
)
@kind_argument
@click.argument("name")
@click.argument("keys", nargs=-1, shell_complete=complete_any_setting)
@click.option("-a", "--all", "everything", is_flag=True, help="Include defaults.")
@output_option()
@connected
def describe(client: Client, kind: str, name: str, keys: tuple[str, ...], everything: bool, output: str) -> None:
    """Show the settings of a topic, broker or group in the cluster.

    NAME is a topic, a broker ID (or "default" for all brokers), a group or a client-metrics subscription. KEYS select
    settings; without them, only values that differ from the defaults are shown.
    """
    entries = client.admin.describe_configs(kind, _resource_name(kind, name), keys or None, documentation=True)
    for key in set(keys) - {entry.name for entry in entries}:
        raise _unknown(key, _definitions()[kind])
    rows = [_config_row(entry) for entry in entries if everything or keys or _was_set(entry)]
    if not rows and output in ("table", "wide"):
        tell("everything has its default value; --all shows the defaults")
        return
    columns = [
        Column("NAME", "name"),
        Column("VALUE", "value"),
        Column("FROM", "source"),
        Column("READ-ONLY", "read_only", wide=True),
        Column("OTHERWISE", lambda row: _otherwise(row), wide=True),
    ]
    show(rows, columns, output)


def _was_set(entry: ConfigEntry) -> bool:
    """A broker says of one setting that it is set for all brokers, even where nobody has set it."""
    from tidelog.config.describe import CLUSTER_WIDE

    is_as_ever = entry.name == CLUSTER_WIDE and {value for _, value, _ in entry.synonyms} == {entry.value}
    return not (entry.is_default or is_as_ever)


def _config_row(entry: ConfigEntry) -> Row:
    return {
        "name": entry.name,
        "value": HIDDEN if entry.sensitive else entry.value,
        "source": entry.source,
        "type": entry.type,
        "read_only": entry.read_only,
        "sensitive": entry.sensitive,
        "synonyms": [{"name": n, "value": v, "source": s} for n, v, s in entry.synonyms],
        "documentation": entry.documentation,
    }


def _otherwise(row: Row) -> str | None:
    """What the value would be if the strongest source did not say otherwise."""
    weaker = row["synonyms"][1:]
    return f"{weaker[0]['value']} ({weaker[0]['source']})" if weaker else None


def _resource_name(kind: str, name: str) -> str:
    return "" if kind == "broker" and name == "default" else name


@command.command(
    "set",
    epilog=examples(
        "tidelog config set topic orders retention.ms=7d retention.bytes=10GB",
        "tidelog config set broker default log.cleaner.threads=2",
        "tidelog config set group billing consumer.session.timeout.ms=60000",
        "tidelog config set topic orders cleanup.policy=compact --append",
    ),
)
@kind_argument
@click.argument("name")
@click.argument("settings", nargs=-1, required=True, metavar="KEY=VALUE...")
@click.option("--append", is_flag=True, help="Add to a list instead of replacing it.")
@click.option("--remove", is_flag=True, help="Remove from a list instead of replacing it.")
@dry_run_option
@output_option("table", "json", "yaml")
@connected
def set_config(
    client: Client,
    kind: str,
    name: str,
    settings: tuple[str, ...],
    append: bool,
    remove: bool,
    dry_run: bool,
    output: str,
) -> None:
    """Change settings of a topic, a broker (or "default" for all brokers), or a group."""
    if append and remove:
        raise click.UsageError("--append and --remove cannot be combined.")
    wanted = setting_pairs(settings)
    check_keys(kind, wanted)
    operation: Any = "append" if append else "subtract" if remove else "set"
    client.admin.alter_configs(kind, _resource_name(kind, name), validate_only=dry_run, **{operation: wanted})
    told = ", ".join(f"{key}={value}" for key, value in wanted.items())
    verb = {"set": "set", "append": "appended", "subtract": "removed"}[operation]
    done = {"kind": kind, "name": name, verb: wanted, "dry_run": dry_run}
    show_done(done, output, f"{kind} {name}: {told} {'would be ' if dry_run else ''}{verb}")


@command.command(
    epilog=examples("tidelog config unset topic orders retention.ms", "tidelog config unset topic orders --all --yes")
)
@kind_argument
@click.argument("name")
@click.argument("keys", nargs=-1, shell_complete=complete_any_setting)
@click.option("-a", "--all", "everything", is_flag=True, help="Unset everything that is set.")
@yes_option
@dry_run_option
@output_option("table", "json", "yaml")
@connected
def unset(
    client: Client, kind: str, name: str, keys: tuple[str, ...], everything: bool, yes: bool, dry_run: bool, output: str
) -> None:
    """Remove settings, so that the broker's value or the default applies again."""
    from tidelog.config.describe import CLUSTER_WIDE

    if everything == bool(keys):
        raise click.UsageError("Name the settings to unset, or use --all.")
    check_keys(kind, keys)
    resource = _resource_name(kind, name)
    own = {"topic": "topic", "broker": "broker" if resource else "all brokers", "group": "group"}.get(
        kind, "client metrics"
    )
    entries = [entry for entry in client.admin.describe_configs(kind, resource) if entry.source == own]
    found = [entry.name for entry in entries if entry.name in keys or (everything and entry.name != CLUSTER_WIDE)]
    for key in keys:
        if key not in found:
            tell(f"{kind} {name}: {key} is not set")
    if found and everything and not dry_run:
        confirm(f"Unset {', '.join(found)} of {kind} {name}?", yes)
    if found:
        client.admin.alter_configs(kind, resource, delete=found, validate_only=dry_run)
    done = {"kind": kind, "name": name, "unset": found, "dry_run": dry_run}
    show_done(done, output, f"{kind} {name}: {', '.join(found) or 'nothing'} {'would be ' if dry_run else ''}unset")
