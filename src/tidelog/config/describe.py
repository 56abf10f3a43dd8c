"""What DescribeConfigs returns: every value with its source, and the synonyms that it overrides.

A synonym is a name that sets or could set the value: first the resource's own name, then the broker's names for it,
layer by layer from the strongest to the default. The values of passwords and of unknown names are never shown.

Three details follow Kafka. `min.insync.replicas` is shown as set for all brokers, because that is how a Kafka 4 cluster
is formatted. An entry's synonyms begin with the first one that has the requested broker name, so that
`log.retention.hours` is not listed under `log.retention.ms`. And defaults that are null are not listed. One detail
differs: if such a sibling gave a topic its value, as `log.retention.hours` in a file does for `retention.ms`, the
topic's source says so, while Kafka calls it a default.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidelog.config.broker_config import (
    DEFAULT_CONFIG,
    DYNAMIC_DEFAULT_BROKER_CONFIG,
    DYNAMIC_TOPIC_CONFIG,
    STATIC_BROKER_CONFIG,
    BrokerConfig,
)
from tidelog.config.definitions import (
    BROKER_KEYS,
    CLIENT_METRICS_KEYS,
    DYNAMIC_ONLY,
    GROUP_KEYS,
    GROUP_SYNONYMS,
    TOPIC_KEYS,
    TOPIC_SYNONYMS,
    ConfigKey,
    broker_key,
    listener_base,
    same_setting,
)
from tidelog.config.group_config import effective_group
from tidelog.config.topic_config import effective
from tidelog.config.values import Value, default_value, parse, to_text

DYNAMIC_BROKER_LOGGER_CONFIG = 6
DYNAMIC_CLIENT_METRICS_CONFIG = 7
DYNAMIC_GROUP_CONFIG = 8

TYPE_CODES = {
    "boolean": 1,
    "string": 2,
    "int": 3,
    "short": 4,
    "long": 5,
    "double": 6,
    "list": 7,
    "class": 8,
    "password": 9,
}
UNKNOWN_TYPE = 0
#: holds for all brokers whether somebody has altered it or not
CLUSTER_WIDE = "min.insync.replicas"

_UNIT_SYNONYMS = {names[0][0]: [name for name, _ in names] for names in TOPIC_SYNONYMS.values()}

Synonym = tuple[str, str | None, int]


class DescribedConfig:
    """One entry: `value` is None where there is none or it must not be told; `synonyms` are (name, value, source)."""

    __slots__ = ("config_type", "documentation", "is_sensitive", "name", "read_only", "source", "synonyms", "value")

    def __init__(
        self,
        name: str,
        value: str | None,
        source: int,
        *,
        read_only: bool,
        key: ConfigKey | None,
        synonyms: list[Synonym],
    ) -> None:
        self.name = name
        self.source = source
        self.read_only = read_only
        self.is_sensitive = key is None or key.sensitive
        self.value = None if self.is_sensitive else value
        self.synonyms = [(n, None, s) for n, _, s in synonyms] if self.is_sensitive else synonyms
        self.config_type = UNKNOWN_TYPE if key is None else TYPE_CODES[key.type]
        self.documentation = "" if key is None else key.documentation

    @property
    def is_default(self) -> bool:
        """Version 0 of the response had only this."""
        return self.source == DEFAULT_CONFIG

    def __repr__(self) -> str:
        return f"DescribedConfig({self.name}={self.value} from {self.source})"


def describe_topic(
    overrides: Mapping[str, str], config: BrokerConfig, names: Iterable[str] | None = None
) -> list[DescribedConfig]:
    """A topic's entries in the order of their names; `names` None or empty means all."""
    values = effective(overrides, config)
    entries = []
    for name in _wanted(names, {*values, *overrides}):
        key = TOPIC_KEYS.get(name)
        if key is not None and key.internal and name not in overrides:
            continue
        value = to_text(values[name]) if key is not None else overrides[name]
        synonyms: list[Synonym] = [(name, value, DYNAMIC_TOPIC_CONFIG)] if name in overrides else []
        if name in TOPIC_SYNONYMS:
            synonyms += _topic_synonyms(name, config)
        source = synonyms[0][2] if synonyms else DEFAULT_CONFIG
        entries.append(DescribedConfig(name, value, source, read_only=False, key=key, synonyms=synonyms))
    return entries


def describe_broker(config: BrokerConfig, names: Iterable[str] | None = None) -> list[DescribedConfig]:
    """The broker's entries: every key that is neither internal nor a throttle, and whatever else is set."""
    shown = {name for name, key in BROKER_KEYS.items() if not key.internal} - DYNAMIC_ONLY
    entries = []
    for name in _wanted(names, shown.union(config.names_set())):
        key = broker_key(name)
        synonyms = _broker_synonyms(name, config)
        entries.append(
            DescribedConfig(
                name,
                to_text(config.get(name)),
                synonyms[0][2] if synonyms else DEFAULT_CONFIG,
                read_only=name not in BROKER_KEYS or not BROKER_KEYS[name].dynamic,
                key=key,
                synonyms=synonyms,
            )
        )
    return entries


def describe_all_brokers(config: BrokerConfig, names: Iterable[str] | None = None) -> list[DescribedConfig]:
    """What was altered for all brokers together: the entries of the broker with the empty name."""
    altered = dict(_layers(config))[DYNAMIC_DEFAULT_BROKER_CONFIG]
    entries = []
    for name in _wanted(names, altered):
        key = broker_key(name)
        synonyms = [s for s in _broker_synonyms(name, config) if s[2] == DYNAMIC_DEFAULT_BROKER_CONFIG]
        source = synonyms[0][2] if synonyms else DEFAULT_CONFIG
        read_only = name not in BROKER_KEYS or not BROKER_KEYS[name].dynamic
        entries.append(DescribedConfig(name, altered[name], source, read_only=read_only, key=key, synonyms=synonyms))
    return entries


def describe_logger(name: str, level: str) -> DescribedConfig:
    key = ConfigKey(name, "string", None, "", "medium", "", "")
    return DescribedConfig(name, level, DYNAMIC_BROKER_LOGGER_CONFIG, read_only=False, key=key, synonyms=[])


def describe_group(
    overrides: Mapping[str, str], config: BrokerConfig, names: Iterable[str] | None = None
) -> list[DescribedConfig]:
    values = effective_group(overrides, config)
    entries = []
    for name in _wanted(names, values):
        key = GROUP_KEYS[name]
        value = to_text(values[name])
        synonyms: list[Synonym] = [(name, value, DYNAMIC_GROUP_CONFIG)] if name in overrides else []
        if name in GROUP_SYNONYMS:
            synonyms += _broker_synonyms(GROUP_SYNONYMS[name], config)
        else:
            synonyms.append((name, key.default, DEFAULT_CONFIG))
        entries.append(DescribedConfig(name, value, synonyms[0][2], read_only=False, key=key, synonyms=synonyms))
    return entries


def describe_client_metrics(overrides: Mapping[str, str], names: Iterable[str] | None = None) -> list[DescribedConfig]:
    entries = []
    for name in _wanted(names, CLIENT_METRICS_KEYS):
        key = CLIENT_METRICS_KEYS[name]
        own = name in overrides
        value = to_text(parse(key, overrides[name]) if own else default_value(key))
        source = DYNAMIC_CLIENT_METRICS_CONFIG if own else DEFAULT_CONFIG
        synonyms: list[Synonym] = [(name, value, source)] if own else []
        entries.append(DescribedConfig(name, value, source, read_only=False, key=key, synonyms=synonyms))
    return entries


def _wanted(names: Iterable[str] | None, present: Iterable[str]) -> list[str]:
    wanted = set(names) if names is not None else set()
    return sorted(name for name in present if not wanted or name in wanted)


def _broker_synonyms(name: str, config: BrokerConfig) -> list[Synonym]:
    found = _listed(_names_for(name), config)
    while found and found[0][0] != name:
        del found[0]
    return found


def _topic_synonyms(name: str, config: BrokerConfig) -> list[Synonym]:
    broker_name = TOPIC_SYNONYMS[name][0][0]
    found = _broker_synonyms(broker_name, config)
    if found:
        return found
    siblings = _listed(_names_for(broker_name), config)
    return siblings if siblings and siblings[0][2] != DEFAULT_CONFIG else []


def _names_for(name: str) -> list[str]:
    """The names under which a broker's setting may stand in a layer, the strongest first."""
    if name == "log.flush.interval.ms":
        return _UNIT_SYNONYMS[name]
    base = listener_base(name)
    if base is not None:
        return [name, base]
    if name.startswith("log.r"):
        return list(same_setting(name))
    return [name]


def _layers(config: BrokerConfig) -> list[tuple[int, Mapping[str, str]]]:
    """The layers above the default, the strongest first; what holds in the whole cluster is among them."""
    layers = dict(config.layers())
    for_all, static = layers[DYNAMIC_DEFAULT_BROKER_CONFIG], layers[STATIC_BROKER_CONFIG]
    if CLUSTER_WIDE not in for_all:
        text = static.get(CLUSTER_WIDE, str(BROKER_KEYS[CLUSTER_WIDE].default))
        layers[DYNAMIC_DEFAULT_BROKER_CONFIG] = {**for_all, CLUSTER_WIDE: text}
    return list(layers.items())


def _listed(names: list[str], config: BrokerConfig) -> list[Synonym]:
    found: list[Synonym] = []
    for source, texts in _layers(config):
        found += [(name, texts[name], source) for name in names if name in texts]
    for name in names:
        default: Value = BROKER_KEYS[name].default if name in BROKER_KEYS else None
        if default is not None:
            found.append((name, str(default), DEFAULT_CONFIG))
    return found
