"""The `tidelog` command. Each group of commands is a module that is imported when it is used."""

from __future__ import annotations

import importlib
from typing import Final

import click

#: command -> (module, what `tidelog --help` says of it)
COMMANDS: Final = {
    "serve": ("tidelog.cli.serve", "Run a broker."),
    "version": ("tidelog.cli.version", "Show the version of Tidelog and what it speaks."),
}


class LateGroup(click.Group):
    """Knows the names of its commands, and imports one when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        found = COMMANDS.get(cmd_name)
        if found is None:
            return None
        command: click.Command = importlib.import_module(found[0]).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, help_text) for name, (_, help_text) in COMMANDS.items()])


@click.group(cls=LateGroup, context_settings={"help_option_names": ["-h", "--help"]})
def tidelog() -> None:
    """A distributed commit log that speaks Kafka's protocol."""


def main() -> None:
    tidelog(prog_name="tidelog")


if __name__ == "__main__":
    main()
