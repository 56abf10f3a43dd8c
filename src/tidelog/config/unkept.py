"""Settings that ask for something this broker does not have, and that nobody must rely on by mistake.

If you set a keystore, or an authorizer, you rely on it. A broker that started without it would let
anybody in, or form a cluster of its own next to the real one. So it does not start: one error names every such setting,
where it comes from, and what to do. Names that no table knows (`super.users`, the `sasl.…` setting of a plug-in) count
as well, because ignoring them would be no better.

A single listener can have limits on its connections (`listener.name.<listener>.max.connections`). Any other setting for
a single listener, or for a listener that does not exist, is refused as well.

Settings that a file written for Kafka mentions without asking for anything are ignored: a default value, an empty
value, a protocol in `listener.security.protocol.map` that no listener uses, or a KRaft quorum of this node alone.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from tidelog.config.definitions import BROKER_KEYS, LISTENER_LIMITS, LISTENER_PREFIX, REFUSED, broker_key
from tidelog.config.effects import (
    ASKED,
    CLUSTER,
    LAG,
    LAG_ADVICE,
    LISTENER,
    RIGHTS,
    TIERING,
    TRANSPORT,
    asks_for_nothing,
)
from tidelog.config.errors import ConfigError
from tidelog.config.sources import Setting
from tidelog.config.values import split_list

NO_LISTENER: Final = "something for a listener that does not exist"

#: names that no table knows, or the beginning of such names where it ends with a dot -> what is asked for
_STRANGERS: Final = {
    "ssl.": TRANSPORT,
    "sasl.": TRANSPORT,
    "security.": TRANSPORT,
    "delegation.token.": TRANSPORT,
    "java.security.auth.login.config": TRANSPORT,
    "zookeeper.ssl.": TRANSPORT,
    "authorizer.": RIGHTS,
    "super.users": RIGHTS,
    "allow.everyone.if.no.acl.found": RIGHTS,
    "replica.lag.max.messages": LAG,
}
#: values of such names that ask for nothing
_NOTHING: Final = {"allow.everyone.if.no.acl.found": "true", "security.protocol": "PLAINTEXT"}
#: what container images put before Kafka's name
_IMAGE_PREFIX: Final = "cfg."
#: judged by their values below: a KRaft node that is its whole quorum is what this broker is
_OF_QUORUM: Final = ("process.roles", "controller.quorum.voters", "controller.quorum.bootstrap.servers")

_ADVICE: Final = {
    TRANSPORT: "TLS, SASL and ACLs are not supported yet. Remove these settings to run without them, on 127.0.0.1 "
    "or in a trusted network",
    CLUSTER: "KRaft quorums are not supported. Remove these settings, and set zookeeper.connect to run several brokers",
    LAG: LAG_ADVICE,
    TIERING: "Tiered storage is not supported. Remove these settings to keep all data in log.dirs",
    LISTENER: f"A listener can have its own {' and '.join(LISTENER_LIMITS)}. Set anything else for the whole "
    "broker, without listener.name.<listener>., or remove it",
    NO_LISTENER: "Correct the listener's name, or remove the setting",
}


class _Asked(NamedTuple):
    where: str
    shown: str
    what: str

    @property
    def name(self) -> str:
        return self.shown.partition("=")[0]


def refuse_unkept(settings: Mapping[str, Setting], ignored: Iterable[Setting] = ()) -> None:
    """ConfigError where a broker must not start with the settings; `ignored` are those that no table knows."""
    _refuse(_find(settings, ignored))


def refuse_unkept_change(settings: Mapping[str, Setting]) -> None:
    """ConfigError where a running broker must not be altered to the settings; a listener's are taken as Kafka does."""
    _refuse([asked for asked in _find(settings, ()) if asked.what not in (LISTENER, NO_LISTENER)])


def _refuse(found: list[_Asked]) -> None:
    if not found:
        return
    names = list(dict.fromkeys(asked.name for asked in found))
    lines = [f"{asked.where}: {asked.shown} asks for {asked.what}" for asked in found]
    kinds = dict.fromkeys(asked.what if asked.what in _ADVICE else TRANSPORT for asked in found)
    message = f"this broker does not support what these settings ask for: {', '.join(names)}"
    raise ConfigError(message, name=names[0], hint="\n  ".join([*lines, *(_ADVICE[kind] for kind in kinds)]))


def refused_names(settings: Mapping[str, Setting], ignored: Iterable[Setting] = ()) -> frozenset[str]:
    """The settings for which a broker would not start."""
    return frozenset(asked.name for asked in _find(settings, ignored))


def _find(settings: Mapping[str, Setting], ignored: Iterable[Setting]) -> list[_Asked]:
    return [
        *_listeners(settings),
        *_named((*settings.values(), *ignored), _listener_names(settings)),
        *_quorum(settings),
    ]


def _named(settings: Iterable[Setting], listeners: Collection[str]) -> Iterator[_Asked]:
    for setting in settings:
        # In capitals it means nothing to Kafka either; whoever wrote it relies on it all the same.
        name = setting.name.removeprefix(_IMAGE_PREFIX).lower()
        what = None if name in _OF_QUORUM else _asks_for(name, setting.text, listeners)
        if what is not None:
            # Only the name: the value may be a password.
            yield _Asked(setting.where, setting.name, what)


def _asks_for(name: str, text: str, listeners: Collection[str]) -> str | None:
    """What the setting asks for that is not there; None where there is nothing."""
    key = broker_key(name)
    if key is not None and key.effect == REFUSED:
        return None if asks_for_nothing(key, text) else ASKED[key.reason]
    if key is None:
        what = next((what for beginning, what in _STRANGERS.items() if _is_of(name, beginning)), None)
        if what is not None:
            return None if text.strip() in ("", _NOTHING.get(name, "")) else what
    if not name.startswith(LISTENER_PREFIX):
        return None
    listener, _, base = name.removeprefix(LISTENER_PREFIX).partition(".")
    if base not in LISTENER_LIMITS:
        return LISTENER
    return None if listener.upper() in listeners else NO_LISTENER


def _is_of(name: str, beginning: str) -> bool:
    if name.startswith(LISTENER_PREFIX):
        # The listener's name, and perhaps a mechanism's, stand before what is set for it.
        return f".{beginning}" in (name if beginning.endswith(".") else name + ".")
    return name.startswith(beginning) if beginning.endswith(".") else name == beginning


def _listener_names(settings: Mapping[str, Setting]) -> set[str]:
    return {entry.partition("://")[0].strip().upper() for entry in _entries(settings, "listeners")}


def _entries(settings: Mapping[str, Setting], name: str) -> Sequence[str]:
    given = settings.get(name)
    return split_list(given.text if given else BROKER_KEYS[name].default or "")


def _listeners(settings: Mapping[str, Setting]) -> Iterator[_Asked]:
    """Listeners whose security protocol is anything but PLAINTEXT, whoever may replace them afterwards."""
    given = settings.get("listener.security.protocol.map")
    protocols = {}
    for entry in _entries(settings, "listener.security.protocol.map"):
        listener, _, protocol = entry.rpartition(":")
        protocols[listener.strip().upper()] = protocol.strip().upper()
    for name in ("listeners", "advertised.listeners"):
        setting = settings.get(name)
        for entry in _entries(settings, name):
            listener = entry.partition("://")[0].strip().upper()
            protocol = protocols.get(listener, listener)
            if protocol in ("SSL", "SASL_PLAINTEXT", "SASL_SSL"):
                # A listener that nobody gave is unsafe only by what its name was made to stand for.
                origin = setting or given
                assert origin is not None
                yield _Asked(origin.where, f"{name}={entry} ({protocol})", TRANSPORT)


def _quorum(settings: Mapping[str, Setting]) -> Iterator[_Asked]:
    """A KRaft node that is its whole quorum is what this broker is; any other belongs to a cluster."""
    roles = settings.get("process.roles")
    if roles is not None and (text := set(split_list(roles.text))) and text != {"broker", "controller"}:
        yield _Asked(roles.where, f"process.roles={roles.text.strip()}", CLUSTER)
    voters = settings.get("controller.quorum.voters")
    if voters is not None:
        node = settings.get("node.id") or settings.get("broker.id")
        own = node.text.strip() if node else "0"
        if any(voter.partition("@")[0] != own for voter in split_list(voters.text)):
            yield _Asked(voters.where, f"controller.quorum.voters={voters.text.strip()}", CLUSTER)
    servers = settings.get("controller.quorum.bootstrap.servers")
    if servers is not None:
        here = _own_hosts(settings)
        if any(_host(server) not in here for server in split_list(servers.text)):
            yield _Asked(servers.where, f"controller.quorum.bootstrap.servers={servers.text.strip()}", CLUSTER)


def _own_hosts(settings: Mapping[str, Setting]) -> set[str]:
    import socket  # late: hardly anybody asks

    hosts = {"localhost", "127.0.0.1", "::1", "0.0.0.0", "", socket.gethostname().lower()}
    for name in ("listeners", "advertised.listeners"):
        if name in settings:
            hosts.update(_host(entry.partition("://")[2]) for entry in split_list(settings[name].text))
    return hosts


def _host(address: str) -> str:
    return re.sub(r":\d*$", "", address.strip()).strip("[]").lower()
