"""What can be configured: every key of brokers, topics, groups, client metrics and client quotas, by Kafka's names.

The keys stand in tables of text, one row a key and its meaning indented below:

    name type default valid importance scope effect

- type: boolean, string, int, short, long, double, list, class or password, as Kafka parses them.
- default: as text; `null` is no value, `""` the empty one.
- valid: `-` anything; `>=1`; `1..9`; `in:a,b`; `anycase:a,b`; `nonempty`; lists without repeats and empty items: `set`,
  `set:a,b` of given items, `set+` and `set+:a,b` with at least one item; and three shapes of their own, `gzip-level`,
  `replicas`, `offset-reset`.
- scope: for brokers what may change while they run: `read-only`, `per-broker`, `cluster-wide` (per broker too), and
  `internal` (read-only, and not told to clients). Otherwise the kind of resource that the key belongs to.
- effect: whether the key does anything here. `works`; `fixed:<why>`, what the default says is always done and another
  value changes nothing; `none:<why>`, it concerns something that is not there; `refused:<why>`, like none, but a value
  other than the default is refused because somebody would rely on it. `effects.py` says what follows from it.

A `class` is only ever a name here: nothing is loaded by it. The tables follow Apache Kafka 4.3.0, which a test compares
with the real one; `OWN_DEFAULTS` says where we differ and why.
"""

from __future__ import annotations

from tidelog.config import (
    definitions_cluster,
    definitions_groups,
    definitions_log,
    definitions_net,
    definitions_security,
    definitions_topic,
)

READ_ONLY = "read-only"
PER_BROKER = "per-broker"
CLUSTER_WIDE = "cluster-wide"
INTERNAL = "internal"

OWN_PREFIX = "tidelog."

# Kinds of effect.
WORKS = "works"
FIXED = "fixed"
UNSUPPORTED = "none"
REFUSED = "refused"


class ConfigKey:
    """One row of a table. `default` is text as Kafka writes it, None where there is no value."""

    __slots__ = ("default", "documentation", "effect", "importance", "name", "reason", "scope", "type", "valid")

    def __init__(
        self,
        name: str,
        type: str,
        default: str | None,
        valid: str,
        importance: str,
        scope: str,
        documentation: str,
        effect: str = WORKS,
    ) -> None:
        self.name = name
        self.type = type
        self.default = default
        self.valid = valid
        self.importance = importance
        self.scope = scope
        self.documentation = documentation
        self.effect, _, self.reason = effect.partition(":")

    @property
    def dynamic(self) -> bool:
        return self.scope in (PER_BROKER, CLUSTER_WIDE)

    @property
    def internal(self) -> bool:
        return self.scope == INTERNAL

    @property
    def sensitive(self) -> bool:
        return self.type == "password"

    def __repr__(self) -> str:
        return f"ConfigKey({self.name})"


def read_table(table: str) -> dict[str, ConfigKey]:
    """The keys of one table, in its order."""
    keys: dict[str, ConfigKey] = {}
    key: ConfigKey | None = None
    for line in table.splitlines():
        if line.startswith("    ") and key is not None:
            text = line.strip()
            key.documentation = f"{key.documentation} {text}" if key.documentation else text
        elif line:
            name, type, default_text, valid, importance, scope, effect = line.split()
            default = None if default_text == "null" else "" if default_text == '""' else default_text
            key = keys[name] = ConfigKey(name, type, default, valid, importance, scope, "", effect)
    return keys


BROKER_KEYS: dict[str, ConfigKey] = {
    **read_table(definitions_cluster.TABLE),
    **read_table(definitions_net.TABLE),
    **read_table(definitions_security.TABLE),
    **read_table(definitions_log.TABLE),
    **read_table(definitions_groups.TABLE),
}
TOPIC_KEYS: dict[str, ConfigKey] = read_table(definitions_topic.TOPIC_TABLE)
GROUP_KEYS: dict[str, ConfigKey] = read_table(definitions_topic.GROUP_TABLE)
CLIENT_METRICS_KEYS: dict[str, ConfigKey] = read_table(definitions_topic.CLIENT_METRICS_TABLE)

TOPIC_SYNONYMS = definitions_topic.TOPIC_SYNONYMS
GROUP_SYNONYMS = definitions_topic.GROUP_SYNONYMS

# Name -> (Kafka's default, None where Kafka demands a value; why ours differs).
OWN_DEFAULTS: dict[str, tuple[str | None, str]] = {
    "controller.listener.names": (None, "a broker needs no separate controller"),
    "log.dir": (
        "/tmp/kafka-logs",
        "the system may clean up /tmp; relative to the directory in which the broker starts",
    ),
    "max.connections": ("2147483647", "too many connections must not bring the broker down"),
    "node.id": (None, "a single broker gets ID 0"),
    "process.roles": (None, "a broker needs no separate controller"),
    "socket.listen.backlog.size": ("50", "when many clients connect at once, those beyond the backlog wait a second"),
    "ssl.keystore.type": ("JKS", "keys are read as PEM; a Java key store cannot be read"),
    "ssl.truststore.type": ("JKS", "certificates are read as PEM; a Java trust store cannot be read"),
}

# Names that say the same thing, the strongest first: setting one in a stronger source hides the others in weaker ones.
SAME_SETTING: tuple[tuple[str, ...], ...] = (
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    ("log.dirs", "log.dir"),
    ("broker.id", "node.id"),
)
_SAME_SETTING_OF = {name: names for names in SAME_SETTING for name in names}

# Throttles are set while an operation needs them and told only then.
DYNAMIC_ONLY = frozenset(
    (
        "follower.replication.throttled.rate",
        "leader.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    )
)

# Broker keys that a listener may have of its own, and those that it may have per SASL mechanism.
LISTENER_PREFIX = "listener.name."
LISTENER_LIMITS = ("max.connections", "max.connection.creation.rate")
_LISTENER_FAMILIES = ("ssl.", "sasl.")
_LISTENER_KEYS = frozenset(
    (*LISTENER_LIMITS, "connections.max.reauth.ms", "num.network.threads", "principal.builder.class")
)
MECHANISM_KEYS = (
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
    "connections.max.reauth.ms",
)


def same_setting(name: str) -> tuple[str, ...]:
    """The names that say the same as `name`, itself among them."""
    return _SAME_SETTING_OF.get(name, (name,))


def listener_base(name: str) -> str | None:
    """`ssl.keystore.location` of `listener.name.external.ssl.keystore.location`; None for any other name."""
    if not name.startswith(LISTENER_PREFIX):
        return None
    listener, dot, base = name[len(LISTENER_PREFIX) :].partition(".")
    if not listener or not dot:
        return None
    for key in MECHANISM_KEYS:
        if base == key or base.endswith("." + key):
            return key
    known = base in BROKER_KEYS and (base.startswith(_LISTENER_FAMILIES) or base in _LISTENER_KEYS)
    return base if known else None


def listener_key(name: str) -> ConfigKey | None:
    """The key of a listener's own setting, under its whole name; None for any other name.

    A listener has only limits on its connections of its own. Whatever else is given to one is refused.
    """
    base = listener_base(name)
    if base is None:
        return None
    key = BROKER_KEYS[base]
    effect = f"{key.effect}:{key.reason}" if base in LISTENER_LIMITS or key.effect == REFUSED else f"{REFUSED}:listener"
    return ConfigKey(name, key.type, key.default, key.valid, key.importance, key.scope, key.documentation, effect)


def broker_key(name: str) -> ConfigKey | None:
    """The key that says how the broker's setting `name` is parsed; for a listener's own setting, that of its base."""
    key = BROKER_KEYS.get(name)
    if key is None:
        base = listener_base(name)
        if base is not None:
            return BROKER_KEYS[base]
    return key
