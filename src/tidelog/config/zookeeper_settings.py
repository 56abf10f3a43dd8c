"""The settings of a broker's connection to ZooKeeper, as values.

`zookeeper.connect` is host:port,host:port/chroot: any number of servers of one ensemble, and the node under which the
cluster's own tree stands. A port that is not given is 2181. A host in brackets is an IPv6 address.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tidelog.config.errors import ConfigError, invalid_value

if TYPE_CHECKING:
    from tidelog.config.broker_config import BrokerConfig

CONNECT: Final = "zookeeper.connect"
DEFAULT_PORT: Final = 2181
_SERVER: Final = re.compile(r"(\[[0-9a-zA-Z:.%]+\]|[0-9a-zA-Z\-_.]+)(?::([0-9]{1,5}))?")
_FORM: Final = "write host:port,host:port or host:port/chroot, for instance zk1:2181,zk2:2181,zk3:2181/kafka"


@dataclass(slots=True, frozen=True)
class ZooKeeperSettings:
    #: host and port of each server; an IPv6 address without its brackets
    servers: tuple[tuple[str, int], ...]
    #: "" for the root, or else without a trailing slash
    chroot: str = ""
    #: how long the ensemble hears nothing of a session before it ends it
    session_timeout_ms: int = 18000
    #: how long the first connection may take before the ensemble counts as unreachable
    connection_timeout_ms: int = 18000
    max_in_flight_requests: int = 10

    @property
    def hosts(self) -> str:
        """The servers as text."""
        return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.servers)

    def __str__(self) -> str:
        return self.hosts + self.chroot


def zookeeper_settings(config: BrokerConfig) -> ZooKeeperSettings | None:
    """None where no ZooKeeper is named: the broker then keeps its own metadata. May raise ConfigError."""
    connect = (config.get("zookeeper.connect") or "").strip()
    if not connect:
        return None
    servers, chroot = parse_connect(connect)
    session_timeout_ms: int = config.get("zookeeper.session.timeout.ms")
    connection_timeout_ms: int | None = config.get("zookeeper.connection.timeout.ms")
    if connection_timeout_ms is None:
        connection_timeout_ms = session_timeout_ms
    _check_time("zookeeper.session.timeout.ms", session_timeout_ms)
    _check_time("zookeeper.connection.timeout.ms", connection_timeout_ms)
    in_flight: int = config.get("zookeeper.max.in.flight.requests")
    return ZooKeeperSettings(servers, chroot, session_timeout_ms, connection_timeout_ms, in_flight)


def _check_time(name: str, value_ms: int) -> None:
    """Kafka takes any number here, and cannot connect with one that is no time."""
    if value_ms < 1:
        raise invalid_value(name, value_ms, "Value must be at least 1")


def parse_connect(text: str) -> tuple[tuple[tuple[str, int], ...], str]:
    """Servers and chroot of a connect string. Raises ConfigError."""
    hosts, slash, below = text.strip().partition("/")
    servers = tuple(_server(entry.strip(), text) for entry in hosts.split(","))
    names = below.rstrip("/").split("/") if below.rstrip("/") else []
    if any(name in ("", ".", "..") or any(ord(char) < 0x20 for char in name) for name in names):
        raise _malformed(text, f"the chroot {slash}{below} is not a path")
    return servers, "".join(f"/{name}" for name in names)


def _server(entry: str, text: str) -> tuple[str, int]:
    match = _SERVER.fullmatch(entry)
    if match is None:
        raise _malformed(text, f"{entry!r} is not host:port")
    port = int(match[2] or DEFAULT_PORT)
    if not 0 < port < 65536:
        raise _malformed(text, f"{port} is not a port")
    return match[1].strip("[]"), port


def _malformed(text: str, why: str) -> ConfigError:
    return ConfigError(f"{CONNECT}={text}: {why}", name=CONNECT, hint=_FORM)
