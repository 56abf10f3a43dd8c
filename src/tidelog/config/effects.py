"""What effect each setting has: the `effect` column of the tables in words, for everything that shows it to people.

All of Kafka's settings are accepted, so that clients and files written for Kafka work unchanged. Some of them concern
features that this broker does not have. The startup log, `tidelog config show` and `explain`, `tidelog doctor` and the
docs page all take the list of these settings from here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from tidelog.config.definitions import (
    FIXED,
    OWN_DEFAULTS,
    REFUSED,
    UNSUPPORTED,
    WORKS,
    ConfigKey,
    broker_key,
)
from tidelog.config.errors import ConfigError
from tidelog.config.values import default_value, parse

#: why settings of the kinds FIXED and UNSUPPORTED have no effect
REASONS: Final = {
    "authentication": "clients do not authenticate",
    "buffers": "buffers have fixed sizes",
    "checkpoints": "log.flush.offset.checkpoint.interval.ms applies to log start offsets as well",
    "cluster": "requests between brokers have fixed versions and timeouts",
    "codec": "offsets are stored uncompressed",
    "kraft": "there is no KRaft quorum; a broker keeps its own metadata",
    "linger": "all waiting writes are written in one batch",
    "metrics": "metrics are read from tidelog.http.port, and are not sent anywhere",
    "one-cleaner": "logs are compacted one at a time",
    "plug-ins": "plug-ins are not loaded",
    "queue": "requests do not wait in a queue between threads",
    "quotas": "quotas are not enforced",
    "share": "share groups are not supported",
    "streams": "streams groups are not supported",
    "sweeps": "requests that have stopped waiting are removed at once",
    "telemetry": "client metrics are not collected",
    "threads": "the number of threads is not configurable",
    "tiering": "tiered storage is not supported",
    "timers": "each transaction has its own timer",
    "two-phase": "transactions without a timeout are not supported",
    "unstable": "only released versions are supported",
}

#: what settings of the kind REFUSED ask for
TRANSPORT: Final = "encryption or authentication, but connections are plain text and open to everyone"
RIGHTS: Final = "authorization, but everyone may do everything"
POLICY: Final = "a policy plug-in, but plug-ins are not loaded"
CLUSTER: Final = "a KRaft quorum, but clusters are kept on ZooKeeper"
TIERING: Final = "tiered storage, but records are kept only on this broker's disks"
LISTENER: Final = "a setting for one listener that exists only for the whole broker"
LAG: Final = "a limit on the messages that a follower may lag behind, which Kafka has not had since 0.9"
LAG_ADVICE: Final = (
    "Kafka removed replica.lag.max.messages because a burst of messages took healthy followers out of the ISR. "
    "Remove it: replica.lag.time.max.ms sets how long a follower may lag"
)
#: what Kafka has no more, and this broker never had -> what to do about it
GONE: Final = {"replica.lag.max.messages": LAG_ADVICE}
ASKED: Final = {
    "transport": TRANSPORT,
    "rights": RIGHTS,
    "policy": POLICY,
    "cluster": CLUSTER,
    "tiering": TIERING,
    "listener": LISTENER,
}

# What one setting comes to with one value, in a broker that starts with it.
YES: Final = "yes"
ALWAYS: Final = "always so"
NONE: Final = "none"


def effect_of(name: str, text: str | None) -> str:
    """What the broker's setting `name` does with this value, None for its default: YES, ALWAYS or NONE."""
    key = broker_key(name)
    if key is None or key.effect == UNSUPPORTED:
        return NONE
    if key.effect == FIXED and text is not None and not asks_for_nothing(key, text):
        return NONE
    return YES if key.effect == WORKS else ALWAYS


def without_effect(texts: Mapping[str, str]) -> list[str]:
    """Those of the broker's settings that are given and do nothing, sorted."""
    return sorted(name for name, text in texts.items() if effect_of(name, text) == NONE)


def told_without_effect(names: Iterable[str]) -> str:
    """The line about settings that do nothing."""
    return f"accepted without effect: {', '.join(names)} (`tidelog config explain NAME` says why)"


def asks_for_nothing(key: ConfigKey, text: str) -> bool:
    """Whether the text is empty or says what is the default, ours or Kafka's."""
    plain = text.strip()
    if plain in ("", key.default, OWN_DEFAULTS.get(key.name, (None, ""))[0]):
        return True
    try:
        return parse(key, plain) == default_value(key)
    except ConfigError:
        return False


def explain_effect(key: ConfigKey, kind: str) -> str:
    """What a setting does, in a sentence; `kind` is the resource that it belongs to."""
    if key.effect == WORKS:
        return YES
    if key.effect == REFUSED:
        what = "stops the start" if kind == "broker" else "is refused"
        given = "any value" if key.reason == "listener" else "a value other than the default"
        return f"none, and {given} {what}: it asks for {ASKED[key.reason]}"
    if key.effect == FIXED:
        return f"none: Tidelog always does what the default says, and ignores any other value ({REASONS[key.reason]})"
    assert key.effect == UNSUPPORTED
    return f"none: it is accepted and ignored ({REASONS[key.reason]})"
