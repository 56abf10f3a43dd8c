"""The `tidelog` command. Each noun is a module that is imported when it is used, so that `--help` is fast.

Exit codes: 0 ok, 1 failed, 2 usage error, 3 no broker reached, 4 not found, 5 not allowed, 130 interrupted. Data goes
to stdout, messages to stderr. If the reader closes the pipe, it has read enough, and the command does not fail.
Tracebacks are shown only with --debug.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any, Final

import click

from tidelog.cli.options import debugging, note_format, speaks_json, suggest

INTERRUPTED: Final = 130

#: command -> (module, what `tidelog --help` says of it)
COMMANDS: Final = {
    "serve": ("tidelog.cli.serve", "Run a broker."),
    "topic": ("tidelog.cli.topic", "List, describe, create, change and delete topics."),
    "produce": ("tidelog.cli.produce", "Write records to a topic."),
    "consume": ("tidelog.cli.consume", "Read records from a topic."),
    "work": ("tidelog.cli.work", "Run a program for each record of a topic, many at once."),
    "group": ("tidelog.cli.group", "Show consumer groups, their members and lag, and reset their offsets."),
    "transaction": ("tidelog.cli.transaction", "List transactions, find hanging ones and abort them."),
    "delay": ("tidelog.cli.delay", "Show what waits in delay topics, and cancel records."),
    "half": ("tidelog.cli.half", "Show half messages that were not ended, and commit or roll them back."),
    "pipeline": ("tidelog.cli.pipeline", "Load topics into Delta tables, each record exactly once."),
    "config": ("tidelog.cli.config", "Show, explain and change configurations."),
    "cluster": ("tidelog.cli.cluster", "Run a cluster, show its brokers and their health, and move what they hold."),
    "top": ("tidelog.cli.top", "Watch the brokers, topics and groups of a cluster."),
    "doctor": ("tidelog.cli.doctor", "Check this machine and a broker, and suggest what to do."),
    "explain": ("tidelog.cli.explain", "Show how a broker finds an offset in its files."),
    "storage": ("tidelog.cli.storage", "Convert a data directory to the other layout, and show what its files hold."),
    "sim": ("tidelog.cli.sim", "Simulate a cluster in which things go wrong, and check what it promises."),
    "completion": ("tidelog.cli.completion", "Print the shell completion script."),
    "version": ("tidelog.cli.version", "Show the version of Tidelog and of the protocol."),
}

EXAMPLES: Final = """\b
Examples:
  tidelog serve --data-dir data
  echo 'hello' | tidelog produce greetings
  tidelog consume greetings
  tidelog topic list
"""


class LateGroup(click.Group):
    """Knows the names of its commands, imports one when it is called, and turns errors into exit codes."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        found = COMMANDS.get(cmd_name)
        if found is None:
            return None
        command: click.Command = importlib.import_module(found[0]).command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        suggest(ctx, args, COMMANDS)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, help_text) for name, (_, help_text) in COMMANDS.items()])

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        note_format(ctx, args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        if os.environ.get("NO_COLOR"):
            ctx.color = False
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except click.ClickException as error:
            if not speaks_json():
                raise
            from tidelog.cli.error_messages import tell_error

            tell_error(error.format_message())
            ctx.exit(error.exit_code)
        except (click.exceptions.Exit, click.Abort):
            raise
        except KeyboardInterrupt:
            from tidelog.cli.output import tell

            # Whatever was printed stays a whole line.
            tell("interrupted")
            ctx.exit(INTERRUPTED)
        except BrokenPipeError:
            # Python flushes stdout once more at its end; it must find somebody who listens.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(0)
        except Exception as error:
            if debugging(ctx):
                raise
            from tidelog.cli.error_messages import explain

            ctx.exit(explain(error))


def _show_version(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from tidelog.cli.version import headline

        click.echo(headline())
        ctx.exit()


@click.group(cls=LateGroup, context_settings={"help_option_names": ["-h", "--help"]}, epilog=EXAMPLES)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version, help="Show the version."
)
@click.option("--debug", is_flag=True, envvar="TIDELOG_DEBUG", help="Show a traceback for errors.")
def tidelog(debug: bool) -> None:
    """A distributed commit log that speaks Kafka's protocol.

    Commands that need a broker connect to --bootstrap, $TIDELOG_BOOTSTRAP or localhost:9092.
    """


def main() -> None:
    tidelog(prog_name="tidelog")


if __name__ == "__main__":
    main()
