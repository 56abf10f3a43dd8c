"""`tidelog serve`: run a broker until it is stopped."""

from __future__ import annotations

import gc
import os
from typing import TYPE_CHECKING

import click

from tidelog.cli.options import CONTEXT, debug_option, examples, output_option

if TYPE_CHECKING:
    from tidelog.server import BrokerServer


@click.command(
    context_settings=dict(CONTEXT),
    epilog=examples(
        "tidelog serve --data-dir data",
        "tidelog serve --data-dir /var/lib/tidelog --host 0.0.0.0 --http-port 9404",
        "tidelog serve --config server.properties -X log.retention.ms=3600000",
        "KAFKA_NUM_PARTITIONS=3 tidelog serve --port 0",
        "tidelog serve --zookeeper zk1:2181,zk2:2181,zk3:2181/kafka --host 10.0.0.5 -X broker.id=1",
    ),
)
@click.option(
    "--data-dir", metavar="DIR", help="Data directory; overrides log.dirs.  [default: tidelog-data, or log.dirs]"
)
@click.option(
    "--host",
    help="Address to listen on; with 0.0.0.0, each client is told the address it connected to.  "
    "[default: 127.0.0.1, or the address in `listeners`]",
)
@click.option("--port", type=click.IntRange(0, 65535), help="Port to listen on; 0 for any free port.  [default: 9092]")
@click.option(
    "--zookeeper",
    metavar="HOST:PORT[/CHROOT]",
    help="Join the cluster on this ZooKeeper; sets zookeeper.connect.  [default: work alone]",
)
@click.option(
    "--http-port",
    type=click.IntRange(0, 65535),
    help="Port for /metrics, /livez, /readyz and /version on 127.0.0.1; 0 for any free port.  [default: not served]",
)
@click.option(
    "--config", "files", multiple=True, metavar="FILE", help="server.properties or a TOML file; may be repeated."
)
@click.option("-X", "flags", multiple=True, metavar="KEY=VALUE", help="Broker setting; may be repeated.")
@output_option("line", "json")
@debug_option
@click.pass_context
def command(
    ctx: click.Context,
    data_dir: str | None,
    host: str | None,
    port: int | None,
    zookeeper: str | None,
    http_port: int | None,
    files: tuple[str, ...],
    flags: tuple[str, ...],
    output: str,
) -> None:
    """Run a broker.

    It prints one line with its address as soon as it is ready, and shuts down cleanly on Ctrl-C or SIGTERM; a second
    Ctrl-C does not wait for clients. Flags override KAFKA_ variables, which override files. `tidelog config show` shows
    the settings in force, and `tidelog config explain` what a setting means.
    """
    _check_kernels(ctx)
    # Modules stay as long as the broker does: the cyclic collector would walk them dozens of times while they are
    # imported, and once more when the broker has started.
    gc.disable()
    from tidelog.config.sources import load
    from tidelog.server import BrokerServer, StartFailed, configure

    gc.freeze()
    gc.enable()
    if zookeeper is not None:
        flags = (*flags, f"zookeeper.connect={zookeeper}")
    if http_port is not None:
        flags += (f"tidelog.http.port={http_port}",)
    settings = load(files, os.environ, flags)
    config = configure(settings, data_dir, host, port)
    for warning in settings.warnings:
        _warn(warning)
    try:
        server = BrokerServer(config)
        server.start()
    except StartFailed as error:
        from tidelog.cli.error_messages import FAILED, tell_error

        tell_error(str(error))
        ctx.exit(FAILED)
    server.run(lambda ready: _say_ready(ready, output))
    if server.failure is not None:
        from tidelog.cli.error_messages import FAILED

        ctx.exit(FAILED)


def _say_ready(server: BrokerServer, output: str) -> None:
    if output != "json":
        click.echo(server.describe())
        return
    from tidelog.cli.output import json_line

    host, port = server.addresses[0]
    about: dict[str, object] = {
        "host": host,
        "port": port,
        "broker": server.broker.id,
        "cluster": server.broker.cluster.cluster_id,
    }
    if server.http_address is not None:
        about["http"] = "{}:{}".format(*server.http_address)
    click.echo(json_line({"ready": True, **about, "data": [os.path.abspath(path) for path in server.config.log_dirs]}))


def _warn(message: str) -> None:
    # Late: a broker starts sooner without, and hardly ever warns.
    from tidelog.cli.output import warn

    warn(message)


def _check_kernels(ctx: click.Context) -> None:
    """Checks that compiled kernels match their source, and warns if there are none. Runs before any import."""
    from tidelog.kernels import BROKER_KERNELS, HOW_TO_BUILD, HOW_TO_REBUILD, PURE, STALE, states

    found = states(BROKER_KERNELS)
    if stale := [name for name, state in found.items() if state == STALE]:
        from tidelog.cli.error_messages import FAILED, tell_error

        tell_error(f"the compiled kernel of {', '.join(stale)} is {STALE}", HOW_TO_REBUILD)
        ctx.exit(FAILED)
    if slow := [name for name, state in found.items() if state == PURE]:
        what = f"runs without compiled kernels ({', '.join(slow)}): correct, but several times slower"
        _warn(f"{what}. To build them, {HOW_TO_BUILD}")
