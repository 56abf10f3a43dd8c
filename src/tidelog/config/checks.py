"""Rules that involve several settings.

The rules are Kafka's. An error names the settings that break a rule and where they come from, so that one of them can
be changed. The rules are checked at startup and before every change.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tidelog.config.errors import ConfigError, invalid_value
from tidelog.config.listeners import check_listeners

if TYPE_CHECKING:
    from tidelog.config.broker_config import BrokerConfig

# The left side is at most the right side.
_ORDERED = (
    ("replica.fetch.wait.max.ms", "replica.socket.timeout.ms"),
    ("replica.fetch.wait.max.ms", "replica.lag.time.max.ms"),
    ("log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"),
    ("group.share.min.delivery.count.limit", "group.share.delivery.count.limit"),
    ("group.share.delivery.count.limit", "group.share.max.delivery.count.limit"),
    ("group.share.min.partition.max.record.locks", "group.share.partition.max.record.locks"),
    ("group.share.partition.max.record.locks", "group.share.max.partition.max.record.locks"),
    ("group.share.min.record.lock.duration.ms", "group.share.record.lock.duration.ms"),
    ("group.share.record.lock.duration.ms", "group.share.max.record.lock.duration.ms"),
    ("group.share.max.size", "group.share.max.share.sessions"),
    ("group.streams.num.standby.replicas", "group.streams.max.standby.replicas"),
    ("group.min.session.timeout.ms", "group.max.session.timeout.ms"),
    *(
        pair
        for kind in ("consumer", "share", "streams")
        for what in ("heartbeat.interval.ms", "session.timeout.ms", "assignment.interval.ms")
        for pair in (
            (f"group.{kind}.min.{what}", f"group.{kind}.max.{what}"),
            (f"group.{kind}.min.{what}", f"group.{kind}.{what}"),
            (f"group.{kind}.{what}", f"group.{kind}.max.{what}"),
        )
    ),
)
_MEGABYTE = 1 << 20
#: the assignors that there are: a plug-in's class is not loaded
CONSUMER_ASSIGNORS = ("uniform", "range")
#: what chooses the replica that a consumer reads from, by the names of Kafka's classes: likewise
RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
REPLICA_SELECTORS = (RACK_AWARE_SELECTOR, "org.apache.kafka.common.replica.LeaderSelector")


def check_broker(config: BrokerConfig) -> None:
    for lesser, greater in _ORDERED:
        # Defaults agree with one another, so a pair is looked at only where one of it is set.
        if (config.is_set(lesser) or config.is_set(greater)) and config.get(lesser) > config.get(greater):
            raise _conflict(config, f"{lesser} must be less than or equal to {greater}", lesser, greater)
    for kind in ("consumer", "share", "streams"):
        heartbeat, session = f"group.{kind}.heartbeat.interval.ms", f"group.{kind}.session.timeout.ms"
        if config.get(heartbeat) >= config.get(session):
            raise _conflict(config, f"{heartbeat} must be less than {session}", heartbeat, session)
    _check_log(config)
    _check_network(config)
    if config.get("broker.id") != config.get("node.id"):
        raise _conflict(config, "broker.id and node.id must be the same", "broker.id", "node.id")
    if config.get("broker.id") < -1:
        raise _conflict(config, "broker.id must be at least 0", "broker.id")
    if "classic" not in config.get("group.coordinator.rebalance.protocols"):
        name = "group.coordinator.rebalance.protocols"
        raise _conflict(config, f"{name} must contain classic: groups of most clients depend on it", name)
    if strangers := set(config.get("group.consumer.assignors")).difference(CONSUMER_ASSIGNORS):
        name = "group.consumer.assignors"
        raise _conflict(config, f"{name} must be one of {', '.join(CONSUMER_ASSIGNORS)}, not {min(strangers)}", name)
    selector = config.get("replica.selector.class")
    if selector and selector.strip() not in REPLICA_SELECTORS:
        name = "replica.selector.class"
        raise _conflict(config, f"{name} must be one of {', '.join(REPLICA_SELECTORS)}, or empty", name)
    check_listeners(config)


def check_altered(config: BrokerConfig) -> None:
    """What must hold besides when a running broker is altered: Kafka is stricter then than at start."""
    topic = config.topic_defaults()
    for what in ("ms", "bytes"):
        local, whole = topic[f"local.retention.{what}"], topic[f"retention.{what}"]
        assert isinstance(local, int) and isinstance(whole, int)
        name = f"log.local.retention.{what}"
        if whole < 0 or local == -2:
            continue
        if local == -1:
            raise invalid_value(name, local, f"Value must not be -1 as log.retention.{what} value is set as {whole}.")
        if local > whole:
            raise invalid_value(
                name, local, f"Value must not be more than log.retention.{what} property value: {whole}"
            )


def _check_log(config: BrokerConfig) -> None:
    topic = config.topic_defaults()
    segment_ms, retention_ms, jitter_ms = topic["segment.ms"], topic["retention.ms"], topic["segment.jitter.ms"]
    assert isinstance(segment_ms, int) and isinstance(retention_ms, int) and isinstance(jitter_ms, int)
    if segment_ms < 1:
        raise _conflict(config, "log.roll.ms must be at least 1", "log.roll.ms")
    if jitter_ms < 0:
        raise _conflict(config, "log.roll.jitter.ms must be at least 0", "log.roll.jitter.ms")
    if retention_ms == 0:
        names = ("log.retention.ms", "log.retention.minutes", "log.retention.hours")
        raise _conflict(config, "log.retention.ms must be unlimited (-1) or at least 1", *names)
    threads = config.get("log.cleaner.threads")
    if threads and config.get("log.cleaner.dedupe.buffer.size") // threads <= _MEGABYTE:
        name = "log.cleaner.dedupe.buffer.size"
        raise _conflict(config, f"{name} must be more than 1 MiB per cleaner thread", name, "log.cleaner.threads")
    _check_log_dirs(config)
    cordoned = config.get("cordoned.log.dirs")
    if "*" in cordoned:
        if len(cordoned) > 1:
            raise _conflict(config, "cordoned.log.dirs must not contain anything else besides *", "cordoned.log.dirs")
    elif strangers := [path for path in cordoned if path not in config.log_dirs]:
        message = f"cordoned.log.dirs must be in log.dirs, which does not contain {', '.join(strangers)}"
        raise _conflict(config, message, "cordoned.log.dirs")


def _check_log_dirs(config: BrokerConfig) -> None:
    """However it is written: a directory that is opened twice would seem to be another broker's."""
    seen: dict[str, str] = {}
    for path in config.log_dirs:
        other = seen.setdefault(os.path.realpath(path), path)
        if other != path:
            message = f"{other} and {path} are the same directory: name it once"
            raise _conflict(config, message, "log.dirs" if config.is_set("log.dirs") else "log.dir")


def _check_network(config: BrokerConfig) -> None:
    queued = config.get("queued.max.request.bytes")
    if 0 < queued < config.get("socket.request.max.bytes"):
        message = "queued.max.request.bytes must be at least socket.request.max.bytes"
        raise _conflict(config, message, "queued.max.request.bytes", "socket.request.max.bytes")
    idle_ms = config.get("connections.max.idle.ms")
    delay = "connection.failed.authentication.delay.ms"
    if 0 <= idle_ms <= config.get(delay):
        message = f"{delay} must be less than connections.max.idle.ms, or the failure would never be sent"
        raise _conflict(config, message, delay, "connections.max.idle.ms")
    overrides = connection_overrides(config)
    if config.get("max.connections.per.ip") == 0 and not overrides:
        message = "max.connections.per.ip can be zero only with max.connections.per.ip.overrides"
        raise _conflict(config, message, "max.connections.per.ip")


def connection_overrides(config: BrokerConfig) -> dict[str, int]:
    """max.connections.per.ip.overrides as host -> number."""
    name = "max.connections.per.ip.overrides"
    given: str = config.values.max_connections_per_ip_overrides
    overrides: dict[str, int] = {}
    for item in filter(None, (part.strip() for part in given.split(","))):
        host, colon, number = item.rpartition(":")
        if not colon or not host or not number.strip().isdecimal():
            raise _conflict(config, f"{name}: {item} is not host:number", name)
        overrides[host.strip()] = int(number)
    return overrides


def _conflict(config: BrokerConfig, message: str, *names: str) -> ConfigError:
    given = [f"{name}={config.text(name)} ({config.where(name)})" for name in names if config.is_set(name)]
    return ConfigError(message, name=names[0], hint="given: " + ", ".join(given) if given else None)
