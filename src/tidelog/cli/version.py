"""`tidelog version`."""

from __future__ import annotations

import platform

import click

from tidelog import __version__
from tidelog.cli.options import CONTEXT, examples, output_option
from tidelog.cli.output import show_one


@click.command(context_settings=dict(CONTEXT), epilog=examples("tidelog version", "tidelog version -o json"))
@output_option("table", "json", "yaml")
def command(output: str) -> None:
    """Show the version of Tidelog and what it speaks."""
    from tidelog.wire import kernel

    compiled = not str(kernel.__file__).endswith(".py")
    about = {
        "tidelog": __version__,
        "protocol": "Apache Kafka 4.3",
        "python": platform.python_version(),
        "kernel": "compiled" if compiled else "pure Python",
    }

    def people() -> None:
        click.echo(f"tidelog {__version__} (Kafka protocol as of Apache Kafka 4.3)")
        click.echo(f"Python {about['python']}, record kernel {about['kernel']}")

    show_one(about, output, people)
