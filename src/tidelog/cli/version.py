"""`tidelog version`."""

from __future__ import annotations

import click

from tidelog import __version__


@click.command()
def command() -> None:
    """Show the version of Tidelog and what it speaks."""
    click.echo(f"tidelog {__version__} (Kafka protocol as of Apache Kafka 4.3)")
