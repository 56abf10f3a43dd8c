"""`tidelog doctor`: checks this machine, a data directory and a broker, and suggests what to do.

A check returns findings: `ok`, `note` (works, could be better) or `bad` (will cause problems). Checks of this machine
and of a data directory come first and need no broker. Those of the cluster come after, from the first broker that
answers.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from tidelog import how_to_install
from tidelog.cli.options import CONTEXT, broker_options, data_dirs_option, examples, output_option
from tidelog.cli.output import plural, show, size

if TYPE_CHECKING:
    from tidelog.client import Client
    from tidelog.client.cluster import ClusterInfo

OK: Final = "ok"
NOTE: Final = "note"
BAD: Final = "bad"
_STYLES: Final = {OK: "green", NOTE: "yellow", BAD: "red"}

FEW_FILES: Final = 4096
LITTLE_SPACE_BYTES: Final = 1 << 30
CLOCK_SKEW_MS: Final = 5000
JAVA_FOR_SPARK: Final = 17


class Diagnosis(NamedTuple):
    state: str
    check: str
    found: str
    advice: str | None = None


ZOOKEEPER: Final = "zookeeper.connect"
#: so many are asked for their settings, one by one
MOST_TOPICS: Final = 200


@click.command(
    context_settings=dict(CONTEXT),
    epilog=examples(
        "tidelog doctor",
        "tidelog doctor --bootstrap kafka-1.example:9092",
        "tidelog doctor --data-dir /var/lib/tidelog --deep",
    ),
)
@data_dirs_option
@click.option(
    "--zookeeper",
    envvar="KAFKA_ZOOKEEPER_CONNECT",
    metavar="HOST:PORT[/CHROOT]",
    help="Check this ZooKeeper, too.  [env: KAFKA_ZOOKEEPER_CONNECT]",
)
@click.option("--deep", is_flag=True, help="Read and check every record batch in the data directory.")
@output_option("table", "json", "yaml")
@broker_options
@click.pass_context
def command(
    ctx: click.Context,
    data_dirs: tuple[str, ...],
    zookeeper: str | None,
    deep: bool,
    output: str,
    bootstrap: str,
    timeout: float,
) -> None:
    """Check this machine, a data directory and a broker, and suggest what to do.

    The data directory must not be in use by a broker. It is only read, and everything that a start would lose is
    reported in advance.

    The exit code is 0 if nothing is bad, 3 if no broker can be reached and no data is damaged, and 1 otherwise.
    """
    from tidelog.cli.error_messages import FAILED, UNREACHABLE

    findings = list(check_machine(data_dirs))
    if zookeeper is not None:
        findings += check_zookeeper(zookeeper)
    about_data = [finding for each in data_dirs for finding in check_data_directory(each, deep, data_dirs)]
    findings += about_data
    reached, about_cluster = check_cluster(bootstrap, min(timeout, 10.0))
    findings += about_cluster
    if output == "table":
        for finding in findings:
            mark = click.style(f"{finding.state:4}", fg=_STYLES[finding.state])
            click.echo(f"{mark}  {finding.check:20}  {finding.found}")
            if finding.advice:
                click.echo(f"{'':28}→ {finding.advice}")
    else:
        show([finding._asdict() for finding in findings], [], output)
    if not reached and not any(finding.state == BAD for finding in about_data):
        ctx.exit(UNREACHABLE)
    if any(finding.state == BAD for finding in findings):
        ctx.exit(FAILED)


# --- this machine -----------------------------------------------------------------------------------


def check_machine(data_dirs: Iterable[str]) -> Iterator[Diagnosis]:
    yield _python()
    yield _kernels()
    yield _files()
    yield from map(_disk, data_dirs)
    yield _java()
    yield _spark()


def _python() -> Diagnosis:
    found = ".".join(map(str, sys.version_info[:3]))
    fits = sys.version_info >= (3, 11)
    return Diagnosis(OK if fits else BAD, "Python", found, None if fits else "install Python 3.11 or newer")


def _kernels() -> Diagnosis:
    from tidelog.kernels import COMPILED, HOW_TO_BUILD, HOW_TO_REBUILD, STALE, states, summary

    found = states()
    kinds = set(found.values())
    if kinds == {COMPILED}:
        return Diagnosis(OK, "kernels", COMPILED)
    if STALE in kinds:
        return Diagnosis(BAD, "kernels", summary(found), HOW_TO_REBUILD)
    return Diagnosis(NOTE, "kernels", f"{summary(found)}: correct, but several times slower", HOW_TO_BUILD)


def _files() -> Diagnosis:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    shown = "unlimited" if soft == resource.RLIM_INFINITY else f"{soft:,}"
    if soft == resource.RLIM_INFINITY or soft >= FEW_FILES:
        return Diagnosis(OK, "open files", shown)
    more = "ulimit -n 65536" if hard == resource.RLIM_INFINITY or hard >= 65536 else "raise LimitNOFILE or nofile"
    return Diagnosis(NOTE, "open files", f"{shown}: a partition needs about three, a connection one", more)


def _disk(data_dir: str) -> Diagnosis:
    path = os.path.abspath(data_dir)
    while not os.path.exists(path):
        path = os.path.dirname(path)
    usage = shutil.disk_usage(path)
    found = f"{size(usage.free)} of {size(usage.total)} free for {os.path.abspath(data_dir)}"
    if not os.access(path, os.W_OK):
        return Diagnosis(
            BAD, "disk", f"{path} cannot be written", "choose another with --data-dir, or change its owner"
        )
    if usage.free < LITTLE_SPACE_BYTES:
        return Diagnosis(BAD, "disk", found, "free some space, choose another disk, or lower log.retention.bytes")
    return Diagnosis(OK, "disk", found)


def _java() -> Diagnosis:
    import re
    import subprocess

    advice = "needed only for Spark and the ZooKeeper of `tidelog cluster up`: install JDK 17 or newer"
    path = shutil.which("java")
    if path is None:
        return Diagnosis(NOTE, "Java (optional)", "not found", advice)
    try:
        told = subprocess.run([path, "-version"], capture_output=True, text=True, timeout=20).stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        return Diagnosis(NOTE, "Java (optional)", f"{path} does not run: {error}", advice)
    version = re.search(r'version "(\d+)', told)
    if version is None or int(version[1]) < JAVA_FOR_SPARK:
        return Diagnosis(NOTE, "Java (optional)", f"{told.splitlines()[0] if told else path}", advice)
    return Diagnosis(OK, "Java (optional)", version[1])


def _spark() -> Diagnosis:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return Diagnosis(OK, "PySpark (optional)", version("pyspark"))
    except PackageNotFoundError:
        return Diagnosis(
            NOTE, "PySpark (optional)", "not installed", f"needed only for pipelines: {how_to_install('spark')}"
        )


# --- its data ---------------------------------------------------------------------------------------


def check_data_directory(data_dir: str, deep: bool, beside: Iterable[str] = ()) -> Iterator[Diagnosis]:
    """What a start on the directory would find; nothing where there is none."""
    from tidelog.log.directories.layout import how_to_convert, read_conversion
    from tidelog.log.disk import SystemDisk
    from tidelog.log.errors import LogError
    from tidelog.node.checkup import check_data, is_data_directory, is_in_use

    path = os.path.abspath(data_dir)
    if not is_data_directory(path):
        return
    if is_in_use(path):
        yield Diagnosis(OK, "data", f"{path} is in use: see the log of the broker that runs on it")
        return
    try:
        conversion = read_conversion(SystemDisk(), path)
        if conversion is not None:
            what = f"{path} is being converted to the {conversion.to} layout, and that was not finished"
            yield Diagnosis(BAD, "data", what, f"run `{how_to_convert(path, conversion.to)}` again")
            return
        found = check_data(path, deep, beside)
    except OSError as error:
        yield Diagnosis(BAD, "data", f"{path} cannot be read: {error}", "check the disk, or change the owner")
        return
    except LogError as error:
        yield Diagnosis(BAD, "data", str(error))
        return
    advice = "copy the directory before you start a broker on it: records that are truncated then cannot be recovered"
    for damage in found.damages:
        yield Diagnosis(BAD, "data", damage, advice)
    if not found.damages:
        how = "after a clean shutdown" if found.clean else "after a crash: the next start reads what was not flushed"
        yield Diagnosis(OK, "data", f"{found.partitions} partitions in {path}, {found.layout} layout, {how}")


# --- the cluster ------------------------------------------------------------------------------------


def check_cluster(bootstrap: str, timeout_s: float) -> tuple[bool, list[Diagnosis]]:
    """Whether a broker was reached, and what was found."""
    from tidelog.client import Client, ClientError

    with Client(bootstrap, "tidelog-doctor", timeout_s) as client:
        try:
            described = client.describe_health()
        except ClientError as error:
            local = any(host in bootstrap for host in ("localhost", "127.0.0.1", "[::1]"))
            advice = "start one with `tidelog serve`" if local else error.hint
            return False, [Diagnosis(BAD, "broker", str(error), advice)]
        findings = [Diagnosis(OK, "broker", f"reached at {bootstrap}, cluster {described.cluster_id}")]
        for check in (_versions, _addresses, _controller, _partitions, _replication, _disks, _settings, _clock):
            try:
                findings += check(client, described)
            except ClientError as error:
                findings.append(Diagnosis(BAD, check.__name__.strip("_"), str(error), error.hint))
        return True, findings


def _versions(client: Client, _: ClusterInfo) -> Iterator[Diagnosis]:
    from tidelog.wire.apis import APIS

    served = client.cluster.any_broker().versions
    unknown = sorted(APIS[key].name for key, (low, _) in served.items() if key in APIS and low > APIS[key].max_version)
    if unknown:
        yield Diagnosis(BAD, "protocol", f"the broker is too new for {', '.join(unknown)}", "install a newer tidelog")
        return
    yield Diagnosis(OK, "protocol", f"{len(served)} APIs, all of them supported by this client")


def _addresses(client: Client, described: ClusterInfo) -> Iterator[Diagnosis]:
    from tidelog.client import ClientError

    for node in sorted(described.nodes.values()):
        try:
            client.cluster.broker(node.id)
            yield Diagnosis(OK, "advertised address", f"broker {node.id} answers at {node.host}:{node.port}")
        except ClientError as error:
            advice = "set advertised.listeners on that broker to an address that this machine can reach"
            yield Diagnosis(BAD, "advertised address", f"broker {node.id}: {error}", advice)


def _controller(_: Client, described: ClusterInfo) -> Iterator[Diagnosis]:
    if described.controller_id in described.nodes:
        yield Diagnosis(OK, "controller", f"broker {described.controller_id}")
    else:
        yield Diagnosis(BAD, "controller", "none", "topics cannot be created or moved until a broker takes over")


def _partitions(_: Client, described: ClusterInfo) -> Iterator[Diagnosis]:
    partitions = [(topic.name, p) for topic in described.topics.values() for p in topic.partitions.values()]
    offline = [f"{name}-{p.partition}" for name, p in partitions if p.leader < 0]
    behind = [f"{name}-{p.partition}" for name, p in partitions if p.leader >= 0 and p.under_replicated]
    for broker in described.down:
        held = sum(broker in p.replicas for _, p in partitions)
        advice = f"start it, or move what it holds: `tidelog cluster decommission {broker}`"
        yield Diagnosis(BAD, "broker", f"broker {broker} is down, and has {plural(held, 'replica')}", advice)
    if offline:
        shown = f"{len(offline)} without a leader: {', '.join(offline[:5])}"
        yield Diagnosis(BAD, "partitions", shown, "start the brokers that hold their replicas")
    if behind:
        shown = f"{len(behind)} under-replicated: {', '.join(behind[:5])}"
        advice = "`tidelog topic describe TOPIC` shows which replicas are not in sync"
        yield Diagnosis(BAD, "partitions", shown, advice)
    if not offline and not behind:
        yield Diagnosis(OK, "partitions", f"{len(partitions)}, all with a leader and in sync")


def _replication(client: Client, described: ClusterInfo) -> Iterator[Diagnosis]:
    """RF = min.insync.replicas + 1 or more: then a broker can be down, and acks=all means several replicas."""
    if len(described.nodes) < 2 or not described.topics:
        return
    found: dict[str, list[str]] = {}
    for name, topic in sorted(described.topics.items())[:MOST_TOPICS]:
        replicas = min(len(p.replicas) for p in topic.partitions.values())
        entries = client.admin.describe_configs("topic", name, ["min.insync.replicas"])
        needed = int(next((entry.value for entry in entries if entry.value), None) or 1)
        if (what := _weakness(replicas, needed)) is not None:
            found.setdefault(what, []).append(name)
    for what, (state, advice) in _WEAKNESSES.items():
        if names := found.get(what):
            shown = ", ".join(names[:5]) + (" …" if len(names) > 5 else "")
            yield Diagnosis(state, "replication", f"{what}: {shown}", advice)
    if not found:
        yield Diagnosis(OK, "replication", "all topics have more replicas than min.insync.replicas")


def _weakness(replicas: int, needed: int) -> str | None:
    if replicas == 1:
        return _SINGLE
    if needed >= replicas:
        return _SHORT if needed > replicas else _TIGHT
    return _WEAK if needed == 1 and replicas > 2 else None


_SHORT: Final = "fewer replicas than min.insync.replicas, so that acks=all always fails"
_TIGHT: Final = "as many replicas as min.insync.replicas, so that acks=all fails when one broker is down"
_SINGLE: Final = "only one replica, which is away while its broker is down"
_WEAK: Final = "three replicas or more, but acks=all may mean a single one"
_MORE: Final = "use min.insync.replicas + 1 replicas or more: `tidelog cluster reassign TOPIC --replication-factor N`"
_WEAKNESSES: Final = {
    _SHORT: (BAD, _MORE),
    _TIGHT: (NOTE, _MORE),
    _SINGLE: (NOTE, _MORE),
    _WEAK: (NOTE, "`tidelog config set topic TOPIC min.insync.replicas=2` keeps acknowledged records on two brokers"),
}


def check_zookeeper(connect: str) -> Iterator[Diagnosis]:
    """Whether the servers of a `zookeeper.connect` answer."""
    import socket

    from tidelog.config.errors import ConfigError
    from tidelog.config.zookeeper_settings import parse_connect
    from tidelog.metadata.zookeeper_server import mode_of

    try:
        servers, _ = parse_connect(connect)
    except ConfigError as error:
        yield Diagnosis(BAD, ZOOKEEPER, str(error), error.hint)
        return
    for host, port in servers:
        try:
            socket.create_connection((host, port), 3).close()
        except OSError as error:
            why = f"{host}:{port} cannot be reached: {error.strerror or error}"
            yield Diagnosis(BAD, ZOOKEEPER, why, "start it, or correct zookeeper.connect")
            continue
        yield Diagnosis(OK, ZOOKEEPER, f"{host}:{port} answers ({mode_of(host, port) or 'its mode is not told'})")
    if len(servers) == 2:
        yield Diagnosis(NOTE, ZOOKEEPER, "two servers need each other: neither may fail", "run one, or three")


def _disks(client: Client, described: ClusterInfo) -> Iterator[Diagnosis]:
    from tidelog.client import ClientError
    from tidelog.wire.errors import ErrorCode

    for node_id in sorted(described.nodes):
        try:
            directories = client.admin.log_dirs(node_id)
        except ClientError:
            # Its address was found bad above.
            continue
        for directory in directories:
            name = f"broker {node_id}, {directory.path}"
            if directory.error_code:
                why = ErrorCode.of(directory.error_code).message
                yield Diagnosis(BAD, "log directory", f"{name}: {why}", "check the disk and the broker's log")
            elif 0 <= directory.usable_bytes < LITTLE_SPACE_BYTES:
                left = f"{name}: {size(directory.usable_bytes)} free"
                yield Diagnosis(
                    BAD, "log directory", left, "free some space, or lower the retention with `tidelog config set`"
                )
            else:
                yield Diagnosis(OK, "log directory", f"{name}: {size(directory.usable_bytes) or 'unknown'} free")


def _settings(client: Client, described: ClusterInfo) -> Iterator[Diagnosis]:
    """Settings that were given to a broker and do nothing. Of a broker that is not Tidelog nothing is known."""
    from tidelog.client import ClientError
    from tidelog.config.definitions import OWN_PREFIX
    from tidelog.config.effects import without_effect

    for node_id in sorted(described.nodes):
        try:
            entries = client.admin.describe_configs("broker", str(node_id))
        except ClientError:
            # Its address was found bad above.
            continue
        if not any(entry.name.startswith(OWN_PREFIX) for entry in entries):
            continue
        given = {entry.name: entry.value or "" for entry in entries if not entry.is_default}
        if idle := without_effect(given):
            advice = "`tidelog config explain NAME` says why; do not rely on them"
            yield Diagnosis(
                NOTE, "settings", f"broker {node_id} has settings without effect: {', '.join(idle)}", advice
            )
        else:
            yield Diagnosis(OK, "settings", f"broker {node_id}: all settings have effect")


def _clock(client: Client, described: ClusterInfo) -> Iterator[Diagnosis]:
    """A broker does not tell its time; but what was written lies in the past, unless somebody's clock is wrong."""
    now = int(time.time() * 1000)
    newest = -1
    for name, topic in described.topics.items():
        if not topic.is_internal and len(topic.partitions) <= 100:
            found = client.offsets(
                name, [p.partition for p in topic.partitions.values() if p.leader >= 0], "max-timestamp"
            )
            newest = max([newest, *(at.timestamp_ms for at in found.values())])
    if newest > now + CLOCK_SKEW_MS:
        ahead = (newest - now) / 1000
        yield Diagnosis(NOTE, "clock", f"the newest record is {ahead:.0f} s in the future", "compare the clocks (NTP)")
    else:
        yield Diagnosis(OK, "clock", "no record is in the future")
