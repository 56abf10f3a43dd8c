"""Settings that ask for something which this broker does not have, and which nobody may believe to be there.

Whoever sets a keystore, an authorizer or `zookeeper.connect` relies on it. A broker that started without it would let
anybody in, or be a cluster of its own beside the real one, so it does not start: one error names every such setting,
the place that it comes from, and what to do. Names that no table knows (`super.users`, a plug-in's `sasl.…`) count as
well: ignoring them would be no better.

What a file written for Kafka mentions without asking for it is left alone: a value that is the default, an empty one,
a protocol in `listener.security.protocol.map` that no listener uses, a KRaft quorum of this node alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from tidelog.config.definitions import BROKER_KEYS, LISTENER_PREFIX, OWN_DEFAULTS, broker_key
from tidelog.config.errors import ConfigError
from tidelog.config.sources import Setting
from tidelog.config.values import split_list

TRANSPORT: Final = "encryption or authentication, and every connection here is plain text from anybody"
RIGHTS: Final = "authorization, and everybody may do everything here"
POLICY: Final = "a plug-in that decides what is allowed, and none is loaded here"
CLUSTER: Final = "other brokers or controllers, and this broker works alone"

#: a name, or the beginning of names where it ends with a dot -> what is asked for
_ASKS: Final = {
    "ssl.": TRANSPORT,
    "sasl.": TRANSPORT,
    "security.": TRANSPORT,
    "delegation.token.": TRANSPORT,
    "connections.max.reauth.ms": TRANSPORT,
    "java.security.auth.login.config": TRANSPORT,
    "zookeeper.ssl.": TRANSPORT,
    "zookeeper.set.acl": RIGHTS,
    "authorizer.": RIGHTS,
    "principal.builder.class": RIGHTS,
    "super.users": RIGHTS,
    "allow.everyone.if.no.acl.found": RIGHTS,
    "alter.config.policy.class.name": POLICY,
    "client.quota.callback.class": POLICY,
    "create.topic.policy.class.name": POLICY,
    "zookeeper.connect": CLUSTER,
}
#: values of names that no table knows, which ask for nothing
_NOTHING: Final = {"allow.everyone.if.no.acl.found": "true", "security.protocol": "PLAINTEXT"}
#: what container images put before Kafka's name
_IMAGE_PREFIX: Final = "cfg."

_ADVICE: Final = {
    TRANSPORT: "TLS, SASL and ACLs are not there yet. Remove these settings to run without them, on 127.0.0.1 or in a "
    "network where everybody is trusted",
    CLUSTER: "Clusters are not there yet. Remove these settings to run one broker that is its own controller",
}


class _Asked(NamedTuple):
    where: str
    shown: str
    what: str


def refuse_unkept(settings: Mapping[str, Setting], ignored: Iterable[Setting] = ()) -> None:
    """ConfigError where settings ask for protection or for a cluster; `ignored` are those that no table knows."""
    found = [*_listeners(settings), *_named((*settings.values(), *ignored)), *_quorum(settings)]
    if not found:
        return
    names = list(dict.fromkeys(asked.shown.partition("=")[0] for asked in found))
    lines = [f"{asked.where}: {asked.shown} asks for {asked.what}" for asked in found]
    kinds = dict.fromkeys(CLUSTER if asked.what == CLUSTER else TRANSPORT for asked in found)
    message = f"this broker does not have what is asked for with {', '.join(names)}"
    raise ConfigError(message, name=names[0], hint="\n  ".join([*lines, *(_ADVICE[kind] for kind in kinds)]))


def asks_for(name: str, text: str) -> str | None:
    """What the setting asks for that is not there; None where there is nothing."""
    # In capitals it means nothing to Kafka either; whoever wrote it relies on it all the same.
    plain = name.removeprefix(_IMAGE_PREFIX).lower()
    what = next((what for asking, what in _ASKS.items() if _is_of(plain, asking)), None)
    return None if what is None or _is_nothing(plain, text.strip()) else what


def has_no_keeper(name: str) -> bool:
    """Whether a broker that is given more than the default of this setting does not start."""
    return any(_is_of(name, asking) for asking in _ASKS)


def _is_of(name: str, asking: str) -> bool:
    if name.startswith(LISTENER_PREFIX):
        # The listener's name, and perhaps a mechanism's, stand before what is set for it.
        return f".{asking}" in (name if asking.endswith(".") else name + ".")
    return name.startswith(asking) if asking.endswith(".") else name == asking


def _is_nothing(name: str, text: str) -> bool:
    key = broker_key(name)
    if key is None:
        return text in ("", _NOTHING.get(name, ""))
    return text in ("", key.default, OWN_DEFAULTS.get(key.name, (None, ""))[0])


def _named(settings: Iterable[Setting]) -> Iterator[_Asked]:
    for setting in settings:
        what = asks_for(setting.name, setting.text)
        if what is not None:
            # Only the name: the value may be a password.
            yield _Asked(setting.where, setting.name, what)


def _listeners(settings: Mapping[str, Setting]) -> Iterator[_Asked]:
    """Listeners whose security protocol is anything but PLAINTEXT, whoever may replace them afterwards."""
    given = settings.get("listener.security.protocol.map")
    protocols = {}
    for entry in split_list(given.text if given else BROKER_KEYS["listener.security.protocol.map"].default or ""):
        listener, _, protocol = entry.rpartition(":")
        protocols[listener.strip().upper()] = protocol.strip().upper()
    for name in ("listeners", "advertised.listeners"):
        setting = settings.get(name)
        for entry in split_list(setting.text if setting else BROKER_KEYS[name].default or ""):
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
