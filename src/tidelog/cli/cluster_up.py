"""`tidelog cluster up`: a cluster on this machine, brokers and ZooKeeper as processes of their own."""

from __future__ import annotations

import contextlib
import os
import shlex
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from tidelog.cli.options import CONTEXT, debug_option, examples, output_option

if TYPE_CHECKING:
    from tidelog.cli.supervision import RestartPolicy
    from tidelog.testing.broker import RunningBroker
    from tidelog.testing.cluster import RunningCluster

DEFAULT_PORT: Final = 9092
#: counted up from broker to broker, as the port for clients is
HTTP_PORT: Final = "tidelog.http.port"
#: so long those that are ready wait for the preferred replicas to be in sync, and lead
EVEN_WITHIN_S: Final = 10.0
EVEN_RETRY_S: Final = 0.2
#: what differs from broker to broker -> the option that says it for all of them
ONE_BROKERS: Final = {
    "broker.id": "--first-id",
    "node.id": "--first-id",
    "log.dirs": "--data-dir",
    "log.dir": "--data-dir",
    "listeners": "--host and --port",
    "advertised.listeners": "--host and --port",
}


def _policy(_: click.Context, __: click.Parameter, text: str) -> RestartPolicy:
    from tidelog.cli.supervision import RestartPolicy

    try:
        return RestartPolicy.parse(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command(
    context_settings=dict(CONTEXT),
    epilog=examples(
        "tidelog cluster up --data-dir data",
        "tidelog cluster up --brokers 5 --data-dir data --port 0 -X num.partitions=6",
        "tidelog cluster up --zookeeper zk1:2181/kafka --brokers 4 --first-id 11 --rack r1 --host 10.0.0.5 "
        "--data-dir /data",
    ),
)
@click.option("--brokers", type=click.IntRange(1, 1000), default=3, show_default=True, help="How many brokers to run.")
@click.option(
    "--data-dir",
    metavar="DIR",
    default="tidelog-cluster",
    show_default=True,
    help="Directory for the data and the log of each process.",
)
@click.option(
    "--zookeeper",
    metavar="HOST:PORT[/CHROOT]",
    help="Use this ZooKeeper.  [default: run one, from the jars that PySpark brings]",
)
@click.option(
    "--zookeeper-port", type=click.IntRange(0, 65535), default=0, help="Port for the ZooKeeper that this command runs."
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address for all brokers to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=DEFAULT_PORT,
    show_default=True,
    help="Port of the first broker; the others get the following ones. 0 for any free ports.",
)
@click.option("--first-id", type=click.IntRange(0), default=1, show_default=True, help="broker.id of the first broker.")
@click.option("--rack", metavar="RACK[,RACK…]", help="broker.rack of all brokers, or several racks in turn.")
@click.option(
    "--restart",
    callback=_policy,
    default="after:10s",
    show_default=True,
    metavar="now|after:10s|never",
    help="When to start a process again that failed.",
)
@click.option(
    "--config", "files", multiple=True, metavar="FILE", help="server.properties or a TOML file; may be repeated."
)
@click.option("-X", "flags", multiple=True, metavar="KEY=VALUE", help="Setting of all brokers; may be repeated.")
@output_option("line", "json")
@debug_option
@click.pass_context
def up(ctx: click.Context, /, output: str, restart: RestartPolicy, data_dir: str, **options: Any) -> None:
    """Run a cluster on this machine until it is stopped.

    Starts a ZooKeeper server, unless --zookeeper names one, and several brokers, each a process of its own. When all of
    them serve, it prints one line with their addresses. Ctrl-C or SIGTERM stops them cleanly: each broker hands over
    its leaders first, and ZooKeeper goes last. A second Ctrl-C ends them at once. The same command on the same
    directory starts the cluster again.

    Topics get three replicas, or as many as there are brokers if that is less. Several machines run one cluster if they
    name the same ZooKeeper, and give their brokers different ids.
    """
    from tidelog.cli.error_messages import FAILED, tell_error
    from tidelog.cli.supervision import StopAsked, Supervisor, stop_signals
    from tidelog.metadata.zookeeper_server import ZooKeeperFailed
    from tidelog.testing.broker import BrokerFailed

    directory = Path(data_dir).absolute()
    cluster = _cluster(directory, **options)
    try:
        with _held(directory), stop_signals():
            try:
                _say_starting(cluster)
                cluster.start()
                _lead_evenly(cluster)
                _say_ready(cluster, output)
                Supervisor(cluster, restart, _tell, _by_hand).run()
                raise BrokerFailed("all processes have ended")
            except StopAsked:
                _tell("stopping; press Ctrl-C again to end everything at once")
                cluster.stop()
            finally:
                cluster.kill()
    except StopAsked:
        ctx.exit(FAILED)
    except (BrokerFailed, ZooKeeperFailed) as error:
        tell_error(str(error))
        ctx.exit(FAILED)


def _cluster(
    directory: Path,
    brokers: int,
    zookeeper: str | None,
    zookeeper_port: int,
    host: str,
    port: int,
    first_id: int,
    rack: str | None,
    files: tuple[str, ...],
    flags: tuple[str, ...],
) -> RunningCluster:
    from tidelog.testing.cluster import RunningCluster
    from tidelog.testing.leash import leash

    if port and port + brokers - 1 > 65535:
        raise click.UsageError(f"There are no {brokers} ports from {port} on: choose a lower --port.")
    if zookeeper is not None:
        flags = (*flags, f"zookeeper.connect={zookeeper}")
    config = _settings(files, flags)
    racks = rack.split(",") if rack else []
    http_port = int(config.get(HTTP_PORT, "0"))
    own: dict[int, dict[str, str]] = {}
    for n in range(brokers):
        own[first_id + n] = {"broker.rack": racks[n % len(racks)]} if racks else {}
        if http_port > 0:
            own[first_id + n][HTTP_PORT] = str(http_port + n)
    return RunningCluster(
        brokers,
        config,
        configs=own,
        data_dir=directory,
        zookeeper=config.get("zookeeper.connect") or None,
        zookeeper_port=zookeeper_port,
        host=host,
        ports=[port + n for n in range(brokers)] if port else (),
        first_id=first_id,
        runner=leash(),
    )


def _settings(files: tuple[str, ...], flags: tuple[str, ...]) -> dict[str, str]:
    """What is given for all brokers, checked here: one error is better than one from each of them."""
    from tidelog.cli.output import warn
    from tidelog.config.broker_config import BrokerConfig
    from tidelog.config.sources import load
    from tidelog.config.unkept import refuse_unkept
    from tidelog.config.zookeeper_settings import zookeeper_settings

    settings = load(files, os.environ, flags)
    for name, option in ONE_BROKERS.items():
        if name in settings.by_name:
            where = settings.by_name[name].where
            raise click.UsageError(f"{where}: {name} differs from broker to broker. Use {option} instead.")
    refuse_unkept(settings.by_name, settings.ignored)
    zookeeper_settings(BrokerConfig(settings))
    for warning in settings.warnings:
        warn(warning)
    return {name: setting.text for name, setting in settings.by_name.items()}


@contextlib.contextmanager
def _held(directory: Path) -> Iterator[None]:
    """Two clusters must not use one directory: ZooKeeper would not notice."""
    import fcntl

    from tidelog.testing.broker import BrokerFailed

    directory.mkdir(parents=True, exist_ok=True)
    with open(directory / "cluster.lock", "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BrokerFailed(
                f"another `tidelog cluster up` uses {directory}. Stop it, or choose another --data-dir"
            ) from None
        yield


def _tell(message: str) -> None:
    from tidelog.cli.output import tell

    tell(message)


def _by_hand(broker: RunningBroker) -> str:
    return shlex.join(["tidelog", "serve", *broker.arguments])


def _say_starting(cluster: RunningCluster) -> None:
    """A ZooKeeper that does not answer is waited for, and that must not look like nothing."""
    from tidelog.cli.output import plural

    where = "a ZooKeeper of its own" if cluster.zookeeper is not None else f"ZooKeeper at {cluster.connect}"
    _tell(f"starting {plural(len(cluster.brokers), 'broker')} with {where}")


def _lead_evenly(cluster: RunningCluster) -> None:
    """Has the preferred replicas lead: the brokers that were first to start have taken up everything. Those that are
    not in sync within a few seconds lead later, when leaders are balanced."""
    from tidelog.client import Client
    from tidelog.client.errors import ClientError

    config = next(iter(cluster.brokers.values())).config
    if config.get("auto.leader.rebalance.enable", "true").lower() == "false":
        return
    deadline = time.monotonic() + EVEN_WITHIN_S
    try:
        with Client(cluster.bootstrap, timeout_s=EVEN_WITHIN_S) as client:
            while any(client.admin.elect_leaders().values()) and time.monotonic() < deadline:
                time.sleep(EVEN_RETRY_S)
    except ClientError:
        # It is a matter of speed, and the controller sees to it from time to time.
        return


def _say_ready(cluster: RunningCluster, output: str) -> None:
    from tidelog.cli.output import json_line, plural

    if output == "json":
        brokers = [{**_place(broker), "host": broker.host, "port": broker.port} for broker in cluster.brokers.values()]
        about = {"bootstrap": cluster.bootstrap, "cluster": cluster.cluster_id, "zookeeper": cluster.connect}
        click.echo(json_line({"ready": True, **about, "data": str(cluster.data_dir), "brokers": brokers}))
        return
    for broker in cluster.brokers.values():
        place = _place(broker)
        more = "".join(f"  {what} {place[what]}" for what in ("rack", "http") if place[what])
        _tell(f"broker {place['id']}  {broker.bootstrap}{more}  pid {place['pid']}  log {place['log']}")
    if cluster.zookeeper is not None:
        server = cluster.zookeeper
        _tell(f"ZooKeeper {server.connect}  pid {server.pid}  log {server.log}")
    if advice := _advice(next(iter(cluster.brokers.values())).config):
        _tell(advice)
    count = plural(len(cluster.brokers), "broker")
    click.echo(
        f"tidelog cluster ready on {cluster.bootstrap} "
        f"({count}, cluster {cluster.cluster_id}, ZooKeeper {cluster.connect}, data {cluster.data_dir})"
    )


def _place(broker: RunningBroker) -> dict[str, Any]:
    return {
        "id": broker.broker_id,
        "pid": broker.pid,
        "rack": broker.config.get("broker.rack"),
        "http": broker.http,
        "data": str(broker.data_dir),
        "log": str(broker.log),
    }


def _advice(config: Mapping[str, str]) -> str | None:
    replicas, needed = int(config["default.replication.factor"]), int(config.get("min.insync.replicas", "1"))
    if needed >= replicas > 1:
        return (
            f"min.insync.replicas={needed} with {replicas} replicas: acks=all fails as soon as one broker is down. "
            "Use at least one replica more"
        )
    if replicas > 2 and needed < 2:
        return (
            "min.insync.replicas is 1: acks=all may then mean one replica only. "
            "-X min.insync.replicas=2 keeps every acknowledged record on two brokers"
        )
    return None
