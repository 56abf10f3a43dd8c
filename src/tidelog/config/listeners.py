"""Listeners: where a broker listens, what it advertises to clients, and how each listener is secured.

`listeners` and `advertised.listeners` hold entries NAME://host:port. Names are converted to upper case, and
`listener.security.protocol.map` maps them to security protocols. An empty host binds every interface. A host in
brackets is an IPv6 address. Port 0 binds any free port. A single broker that binds every interface needs no
`advertised.listeners`: each client is told the address at which it reached the broker.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from tidelog.config.definitions import LISTENER_PREFIX
from tidelog.config.errors import ConfigError

if TYPE_CHECKING:
    from tidelog.config.broker_config import BrokerConfig

#: every interface; nothing that anybody could connect to from elsewhere
WILDCARD_ADDRESSES = ("0.0.0.0", "::")
SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_ENTRY = re.compile(r"(.*)://\[?([0-9a-zA-Z\-%._:]*)\]?:(-?[0-9]+)")


class ListenerEndpoint:
    """One listener. `host` is "" for every interface."""

    __slots__ = ("host", "name", "port", "security_protocol")

    def __init__(self, name: str, security_protocol: str, host: str, port: int) -> None:
        self.name = name
        self.security_protocol = security_protocol
        self.host = host
        self.port = port

    def own_setting(self, name: str) -> str:
        """The name under which this listener has its own value of the broker's setting `name`."""
        return f"{LISTENER_PREFIX}{self.name.lower()}.{name}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ListenerEndpoint) and str(other) == str(self)

    def __hash__(self) -> int:
        return hash(str(self))

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}({self.security_protocol})://{host}:{self.port}"

    __repr__ = __str__


def bound_listeners(config: BrokerConfig) -> list[ListenerEndpoint]:
    """The addresses to bind, without those of a KRaft controller."""
    return [
        endpoint
        for endpoint in _endpoints(config, "listeners", config.get("listeners"))
        if not _is_controller(config, endpoint)
    ]


def advertised_listeners(config: BrokerConfig) -> list[ListenerEndpoint]:
    """What clients are told; the bound addresses where nothing else is given."""
    given: tuple[str, ...] | None = config.get("advertised.listeners")
    if given is None:
        return bound_listeners(config)
    return [e for e in _endpoints(config, "advertised.listeners", given) if not _is_controller(config, e)]


def inter_broker_listener(config: BrokerConfig) -> str:
    """The name of the listener that brokers use among themselves."""
    name: str | None = config.get("inter.broker.listener.name")
    if name is None:
        # What security.inter.broker.protocol says: with another value a broker does not start (see `unkept`).
        return "PLAINTEXT"
    if config.is_set("security.inter.broker.protocol"):
        message = "only one of inter.broker.listener.name and security.inter.broker.protocol should be set"
        raise ConfigError(message, name="inter.broker.listener.name")
    return name.upper()


def security_protocols(config: BrokerConfig) -> dict[str, str]:
    """Listener name -> security protocol."""
    name = "listener.security.protocol.map"
    given: str = config.values.listener_security_protocol_map
    protocols: dict[str, str] = {}
    for item in filter(None, (part.strip() for part in given.split(","))):
        listener, colon, protocol = item.rpartition(":")
        if not colon or not listener.strip() or protocol.strip() not in SECURITY_PROTOCOLS:
            hint = f"write NAME:PROTOCOL, where the protocol is one of {', '.join(SECURITY_PROTOCOLS)}"
            raise ConfigError(f"{name}: {item} is not a valid entry", name=name, hint=hint).at(config.where(name))
        protocols[listener.strip().upper()] = protocol.strip()
    if not config.is_set(name):
        for listener in config.get("controller.listener.names"):
            protocols.setdefault(listener.upper(), "PLAINTEXT")
    return protocols


def check_listeners(config: BrokerConfig) -> None:
    bound = bound_listeners(config)
    _check_distinct(config, bound, ports=True)
    advertised = advertised_listeners(config)
    _check_distinct(config, advertised, ports=False)
    names = {endpoint.name for endpoint in bound}
    if not bound:
        raise _wrong(config, "listeners", "there must be at least one listener that is not a controller listener")
    for endpoint in advertised:
        if endpoint.name not in names:
            message = f"advertised.listeners names {endpoint.name}, which is not in listeners"
            raise _wrong(config, "advertised.listeners", message)
        if endpoint.host in WILDCARD_ADDRESSES:
            _check_wildcard(config, endpoint)
    inter_broker = inter_broker_listener(config)
    name, offered = "inter.broker.listener.name", [endpoint.name for endpoint in advertised]
    if inter_broker not in offered:
        if config.is_set(name):
            raise _wrong(config, name, f"{name} is {inter_broker}, which is not in advertised.listeners")
        if config.get("zookeeper.connect"):
            message = (
                f"the other brokers would look for a listener {inter_broker}, which is not in advertised.listeners"
            )
            raise _wrong(config, name, message, f"set {name} to one of {', '.join(offered)}")


def _check_wildcard(config: BrokerConfig, endpoint: ListenerEndpoint) -> None:
    """A broker that is alone may listen everywhere and advertise what each client reached it at; see docs/adr/."""
    given = config.is_set("advertised.listeners")
    if given or config.get("zookeeper.connect"):
        message = f"clients cannot connect to {endpoint.host}, so it must not be advertised"
        others = "clients" if given else "clients and the other brokers"
        hint = f"set advertised.listeners to an address at which {others} can reach this broker"
        raise _wrong(config, "advertised.listeners" if given else "listeners", message, hint)


def _endpoints(config: BrokerConfig, name: str, given: Iterable[str]) -> list[ListenerEndpoint]:
    protocols = security_protocols(config)
    endpoints = []
    for entry in given:
        match = _ENTRY.fullmatch(entry)
        port = int(match[3]) if match else -1
        if match is None or not match[1].strip() or not 0 <= port <= 65535:
            raise _wrong(config, name, f"{entry} is not a listener", "write NAME://host:port")
        listener = match[1].strip().upper()
        if listener not in protocols:
            hint = f"add {listener}:PLAINTEXT (or SSL, SASL_PLAINTEXT, SASL_SSL) to listener.security.protocol.map"
            raise _wrong(config, name, f"no security protocol is defined for listener {listener}", hint)
        endpoints.append(ListenerEndpoint(listener, protocols[listener], match[2], port))
    return endpoints


def _is_controller(config: BrokerConfig, endpoint: ListenerEndpoint) -> bool:
    return endpoint.name in {name.upper() for name in config.get("controller.listener.names")}


def _check_distinct(config: BrokerConfig, endpoints: list[ListenerEndpoint], *, ports: bool) -> None:
    name = "listeners" if ports else "advertised.listeners"
    seen: set[str] = set()
    for endpoint in endpoints:
        if endpoint.name in seen:
            raise _wrong(config, name, f"two listeners are named {endpoint.name}")
        seen.add(endpoint.name)
    taken: dict[int, ListenerEndpoint] = {}
    for endpoint in endpoints if ports else ():
        other = taken.setdefault(endpoint.port, endpoint)
        if endpoint.port and other is not endpoint and not _one_of_each_family(endpoint, other):
            raise _wrong(config, name, f"{other} and {endpoint} have the same port")


def _one_of_each_family(one: ListenerEndpoint, other: ListenerEndpoint) -> bool:
    """One port may serve an IPv4 and an IPv6 address side by side."""
    four = re.compile(r"[0-9]{1,3}(\.[0-9]{1,3}){3}")
    return any(four.fullmatch(a.host) and ":" in b.host for a, b in ((one, other), (other, one)))


def _wrong(config: BrokerConfig, name: str, message: str, hint: str | None = None) -> ConfigError:
    return ConfigError(message, name=name, hint=hint).at(config.where(name))
