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
    """Show the version of Tidelog and of the protocol."""
    from tidelog.kernels import states, summary

    kernels = states()
    about = {
        "tidelog": __version__,
        "protocol": "Apache Kafka 4.3",
        "python": platform.python_version(),
        "kernels": kernels,
    }

    def people() -> None:
        click.echo(headline())
        click.echo(f"Python {about['python']}, kernels {summary(kernels)}")

    show_one(about, output, people)


def headline() -> str:
    return f"tidelog {__version__} (Kafka protocol as of Apache Kafka 4.3)"
