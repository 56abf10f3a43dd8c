"""`tidelog serve`: run a broker until it is told to stop."""

from __future__ import annotations

import os
import sys

import click


@click.command()
@click.option("--data-dir", metavar="DIR", help="Where the data lives; overrides log.dirs.")
@click.option("--host", default=None, help="Address to listen on.  [default: 127.0.0.1, or as `listeners` says]")
@click.option("--port", type=int, default=None, help="Port to listen on, 0 for any free one.  [default: 9092]")
@click.option(
    "--config", "files", multiple=True, metavar="FILE", help="server.properties or a TOML file; may be repeated."
)
@click.option(
    "-X", "flags", multiple=True, metavar="KEY=VALUE", help="Any of Kafka's broker settings; may be repeated."
)
def command(
    data_dir: str | None, host: str | None, port: int | None, files: tuple[str, ...], flags: tuple[str, ...]
) -> None:
    """Run a broker.

    It prints one line with its address as soon as it can serve, and stops in good order on Ctrl-C or SIGTERM.

    \b
    Examples:
      tidelog serve --data-dir data
      tidelog serve --data-dir /var/lib/tidelog --host 0.0.0.0 --port 9092
      tidelog serve --config server.properties -X log.retention.ms=3600000
    """
    from tidelog.config.errors import ConfigError
    from tidelog.config.sources import load
    from tidelog.server import BrokerServer, StartFailed, configure

    try:
        settings = load(files, os.environ, flags)
        for warning in settings.warnings:
            click.echo(f"warning: {warning}", err=True)
        config = configure(settings, data_dir, host, port)
        server = BrokerServer(config)
        server.start()
    except ConfigError as error:
        click.echo(f"error: {error.explain()}", err=True)
        sys.exit(2)
    except StartFailed as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(1)
    server.run(lambda ready: click.echo(ready.describe()))
