"""The configuration of one broker: what was set at startup, and what was changed since.

There are four layers, the strongest first. Every value knows the layer it comes from:

    DYNAMIC_BROKER_CONFIG          set for this broker at run time
    DYNAMIC_DEFAULT_BROKER_CONFIG  set for all brokers at run time
    STATIC_BROKER_CONFIG           flags, environment, files (`sources.py` says which of these wins)
    DEFAULT_CONFIG                 the table

The two dynamic layers are kept as text in the controller's store. A broker loads each of them as a whole at startup and
after every change. Settings that are not dynamic cannot be changed at run time: `check_dynamic` refuses them, and
`load_dynamic` skips those that an older or newer release may have stored.

`get` parses a value once. `values` offers the same values as attributes for hot paths: after the first use
`values.fetch_max_bytes` is a plain attribute. The object stays the same when values change, so a room may keep it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tidelog.config.checks import check_altered, check_broker
from tidelog.config.definitions import (
    BROKER_KEYS,
    INTERNAL,
    PER_BROKER,
    READ_ONLY,
    TOPIC_KEYS,
    TOPIC_SYNONYMS,
    ConfigKey,
    broker_key,
    listener_base,
    same_setting,
)
from tidelog.config.effects import told_without_effect, without_effect
from tidelog.config.errors import ConfigError, unknown_key
from tidelog.config.sources import DEFAULT, START, Setting, Settings
from tidelog.config.unkept import refuse_unkept_change
from tidelog.config.values import Value, default_value, parse
from tidelog.wire.errors import ErrorCode

# Sources as DescribeConfigs numbers them.
DYNAMIC_TOPIC_CONFIG = 1
DYNAMIC_BROKER_CONFIG = 2
DYNAMIC_DEFAULT_BROKER_CONFIG = 3
STATIC_BROKER_CONFIG = 4
DEFAULT_CONFIG = 5

# Keys and certificates are altered per listener only, so that a change touches one listener at a time.
_PER_LISTENER = frozenset(
    (
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    )
)
_CLUSTER_WIDE_PER_LISTENER = frozenset(("max.connection.creation.rate", "max.connections", "num.network.threads"))
# Kafka opens and closes listeners while it runs. Here they are opened once: a change that did nothing would be a lie.
_BOUND_AT_START = frozenset(("listener.security.protocol.map", "listeners"))
# An altered interval is kept within the broker's bounds rather than refused, because bounds may differ per broker.
_CLAMPED = tuple(f"group.{kind}.assignment.interval.ms" for kind in ("consumer", "share", "streams"))

Listener = Callable[[frozenset[str]], None]
Guard = Callable[["BrokerConfig"], None]


class Values:
    """A broker's values as attributes, by their names in snake case."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config

    def __getattr__(self, attribute: str) -> Any:
        name = _ATTRIBUTES.get(attribute)
        if name is None:
            raise AttributeError(f"no configuration is called {attribute}")
        value = self._config.get(name)
        setattr(self, attribute, value)
        return value

    def forget(self, names: Iterable[str]) -> None:
        for name in names:
            self.__dict__.pop(attribute_of(name), None)


def attribute_of(name: str) -> str:
    return name.replace(".", "_").replace("-", "_").lower()


_ATTRIBUTES = {attribute_of(name): name for name in BROKER_KEYS}


class BrokerConfig:
    __slots__ = ("_default", "_dynamic", "_listeners", "_parsed", "_static", "_texts", "_topic_defaults", "values")

    def __init__(self, settings: Settings | Mapping[str, Setting] | None = None) -> None:
        """Raises ConfigError where a setting cannot be parsed or two of them contradict each other."""
        by_name = settings.by_name if isinstance(settings, Settings) else settings or {}
        self._static: dict[str, Setting] = dict(by_name)
        self._dynamic: dict[str, str] = {}
        self._default: dict[str, str] = {}
        self._listeners: list[tuple[frozenset[str], Listener, Guard | None]] = []
        self._topic_defaults: dict[str, Value] | None = None
        self.values = Values(self)
        _pair_ids(self._static)
        self._texts: dict[str, str] = _merge(self._static, self._default, self._dynamic)
        self._parsed: dict[str, Value] = {}
        for name in self._texts:
            self.get(name)
        check_broker(self)

    @classmethod
    def of(cls, texts: Mapping[str, str] | None = None) -> BrokerConfig:
        """A configuration from plain names and texts: for tests and programs."""
        return cls({name: Setting(name, text, START, name) for name, text in (texts or {}).items()})

    # -- reading -------------------------------------------------------------------------------------------------------

    def get(self, name: str) -> Any:
        """The typed value in force."""
        parsed = self._parsed
        if name in parsed:
            return parsed[name]
        key = _key(name)
        text = self._texts.get(name)
        try:
            value = default_value(key) if text is None else parse(_named(key, name), text)
        except ConfigError as error:
            raise error.at(self.where(name)) from None
        if name in _CLAMPED and text is not None:
            value = max(self.get(_bound(name, "min")), min(value, self.get(_bound(name, "max"))))
        parsed[name] = value
        return value

    def is_set(self, name: str) -> bool:
        """Whether anything but the default gives the value."""
        return name in self._texts

    def text(self, name: str) -> str | None:
        """The text in force as it was given, or the default's."""
        text = self._texts.get(name)
        return _key(name).default if text is None else text

    def names_set(self) -> list[str]:
        """Every name that is set, listeners' own ones included."""
        return sorted(self._texts)

    def source(self, name: str) -> int:
        """The layer that the value comes from, as DescribeConfigs numbers it."""
        if name not in self._texts:
            return DEFAULT_CONFIG
        if name in self._dynamic:
            return DYNAMIC_BROKER_CONFIG
        return DYNAMIC_DEFAULT_BROKER_CONFIG if name in self._default else STATIC_BROKER_CONFIG

    def where(self, name: str) -> str:
        """The place that the value comes from, in words."""
        if name in self._texts and name in self._dynamic:
            return "set for this broker"
        if name in self._texts and name in self._default:
            return "set for all brokers"
        return self._static[name].where if name in self._texts and name in self._static else DEFAULT

    def layers(self) -> tuple[tuple[int, Mapping[str, str]], ...]:
        """The texts of the layers above the default, the strongest first."""
        static = {name: setting.text for name, setting in self._static.items()}
        return (
            (DYNAMIC_BROKER_CONFIG, self._dynamic),
            (DYNAMIC_DEFAULT_BROKER_CONFIG, self._default),
            (STATIC_BROKER_CONFIG, static),
        )

    # -- what follows from several settings ----------------------------------------------------------------------------

    @property
    def broker_id(self) -> int:
        """This broker's number: the one given, else 0. Never -1, which clients take for "no leader"."""
        given: int = self.get("broker.id")
        return max(0, given)

    @property
    def log_dirs(self) -> tuple[str, ...]:
        dirs: tuple[str, ...] | None = self.get("log.dirs")
        single: tuple[str, ...] = self.get("log.dir")
        return single if dirs is None else dirs

    def internal_topic(self, name: str, at_most: int) -> int:
        """A replication factor or min.isr of an internal topic: as set, or Kafka's default where `at_most` allows it.

        Kafka's defaults ask for three brokers, and its own sample files lower them; a single broker works without.
        """
        value: int = self.get(name)
        return value if self.is_set(name) else min(value, at_most)

    def topic_defaults(self) -> Mapping[str, Value]:
        """What a topic without overrides has: typed, by topic names; not to be changed by the caller."""
        defaults = self._topic_defaults
        if defaults is None:
            defaults = {name: default_value(key) for name, key in TOPIC_KEYS.items()}
            for name in TOPIC_SYNONYMS:
                defaults[name] = self._topic_default(name)
            self._topic_defaults = defaults
        return defaults

    def _topic_default(self, name: str) -> Value:
        for synonym, unit in TOPIC_SYNONYMS[name]:
            value: Value = self.get(synonym)
            if value is not None:
                scaled: Value = value * unit if unit > 1 and isinstance(value, int) else value
                return max(-1, scaled) if name == "retention.ms" and isinstance(scaled, int) else scaled
        return None

    # -- changing ------------------------------------------------------------------------------------------------------

    def settle(self, name: str, text: str) -> None:
        """A value that only the start could decide, such as a generated broker id; it counts as static from now on."""
        static = {key: value for key, value in self._static.items() if key not in same_setting(name)}
        static[name] = Setting(name, text, START, "set at startup")
        _pair_ids(static)
        self._adopt(self._trial(static, self._default, self._dynamic))

    def check_dynamic(self, texts: Mapping[str, str], *, per_broker: bool) -> None:
        """Whether `texts` may become the dynamic layer of this broker, or of all brokers; ConfigError where not."""
        try:
            self._check_names(texts, per_broker)
            altered = {name: Setting(name, text, START, "altered") for name, text in texts.items()}
            refuse_unkept_change({**self._static, **altered})
            _refuse_bound(texts)
            layers = (self._default, dict(texts)) if per_broker else (dict(texts), self._dynamic)
            check_altered(self._trial(self._static, *layers))
        except ConfigError as error:
            # Kafka answers INVALID_REQUEST to every refusal of a broker's change, and clients know it so.
            error.code = ErrorCode.INVALID_REQUEST
            raise

    def load_dynamic(self, texts: Mapping[str, str], *, per_broker: bool) -> list[str]:
        """Makes `texts` the dynamic layer, without what cannot be used: that is told in the list it returns."""
        warnings: list[str] = []
        usable: dict[str, str] = {}
        for name, text in texts.items():
            try:
                self._check_names({name: text}, per_broker)
                _refuse_bound((name,))
            except ConfigError as error:
                warnings.append(f"stored configuration is ignored: {error}")
            else:
                usable[name] = text
        trial = self._trial_without_misfits(usable, warnings, per_broker)
        if trial is None:
            return warnings
        self._adopt(trial)
        if idle := without_effect(usable):
            warnings.append(told_without_effect(idle))
        return warnings

    def _trial_without_misfits(
        self, usable: dict[str, str], warnings: list[str], per_broker: bool
    ) -> BrokerConfig | None:
        """Leaves out what does not fit the broker's other settings any more, so that the rest still applies."""
        while True:
            layers = (self._default, usable) if per_broker else (usable, self._dynamic)
            try:
                return self._trial(self._static, *layers)
            except ConfigError as error:
                if error.name not in usable:
                    names = ", ".join(sorted(usable)) or "none"
                    warnings.append(f"stored configuration cannot be applied ({names}): {error}")
                    return None
                del usable[error.name]
                warnings.append(f"stored configuration {error.name} is ignored: {error}")

    def on_change(self, names: Iterable[str], changed: Listener, guard: Guard | None = None) -> None:
        """Calls `changed` with the changed ones of `names` after a change of any.

        `guard` may refuse a change beforehand: it is given the configuration to be, and raises ConfigError.
        """
        self._listeners.append((frozenset(names), changed, guard))

    # -- inside --------------------------------------------------------------------------------------------------------

    def _check_names(self, texts: Mapping[str, str], per_broker: bool) -> None:
        for name in texts:
            if broker_key(name) is None:
                raise unknown_key(name, BROKER_KEYS)
        fixed = [name for name in texts if _key(name).scope in (READ_ONLY, INTERNAL) and listener_base(name) is None]
        _refuse(fixed, "Cannot update these configs dynamically")
        _refuse(_PER_LISTENER.intersection(texts), "These security configs can be changed only with a listener prefix")
        for name, text in texts.items():
            parse(_named(_key(name), name), text)
        if not per_broker:
            own = [name for name in texts if _is_per_broker(name)]
            _refuse(own, "Cannot update these configs for all brokers at once, a broker ID must be given")

    def _trial(self, static: dict[str, Setting], default: dict[str, str], dynamic: dict[str, str]) -> BrokerConfig:
        """The configuration to be, once nobody objects to it."""
        trial = BrokerConfig.__new__(BrokerConfig)
        trial._static, trial._default, trial._dynamic = static, default, dynamic
        trial._listeners, trial._topic_defaults = [], None
        trial.values = Values(trial)
        trial._texts, trial._parsed = _merge(static, default, dynamic), {}
        check_broker(trial)
        changed = _differences(self, trial)
        for names, _, guard in self._listeners:
            if guard is not None and not names.isdisjoint(changed):
                guard(trial)
        return trial

    def _adopt(self, trial: BrokerConfig) -> None:
        changed = _differences(self, trial)
        self._static, self._default, self._dynamic = trial._static, trial._default, trial._dynamic
        self._texts, self._parsed, self._topic_defaults = trial._texts, trial._parsed, trial._topic_defaults
        self.values.forget(changed)
        for names, listener, _ in self._listeners:
            if hit := names & changed:
                listener(hit)


def _merge(static: Mapping[str, Setting], default: Mapping[str, str], dynamic: Mapping[str, str]) -> dict[str, str]:
    """The texts in force: a stronger layer hides the other names for its settings in weaker ones."""
    texts = {name: setting.text for name, setting in static.items()}
    for layer in (default, dynamic):
        for name, text in layer.items():
            for other in same_setting(name):
                texts.pop(other, None)
            texts[name] = text
    return texts


def _key(name: str) -> ConfigKey:
    key = broker_key(name)
    if key is None:
        raise unknown_key(name, BROKER_KEYS)
    return key


def _named(key: ConfigKey, name: str) -> ConfigKey:
    """The key under a listener's own name, so that errors name what was written."""
    if key.name == name:
        return key
    effect = f"{key.effect}:{key.reason}"
    return ConfigKey(name, key.type, key.default, key.valid, key.importance, key.scope, key.documentation, effect)


def _bound(name: str, which: str) -> str:
    return name.replace(".assignment.", f".{which}.assignment.")


def _is_per_broker(name: str) -> bool:
    base = listener_base(name)
    return base not in _CLUSTER_WIDE_PER_LISTENER if base is not None else _key(name).scope == PER_BROKER


def _refuse(names: Iterable[str], why: str) -> None:
    refused = sorted(names)
    if refused:
        raise ConfigError(f"{why}: {', '.join(refused)}", name=refused[0])


def _refuse_bound(names: Iterable[str]) -> None:
    _refuse(
        _BOUND_AT_START.intersection(names), "Cannot update these configs dynamically, set them when the broker starts"
    )


def _pair_ids(static: dict[str, Setting]) -> None:
    """broker.id and node.id are one setting: the one that is given gives the other."""
    for name, other in (("broker.id", "node.id"), ("node.id", "broker.id")):
        if name in static and other not in static:
            given = static[name]
            static[other] = Setting(other, given.text, given.kind, given.where)


def _differences(before: BrokerConfig, after: BrokerConfig) -> frozenset[str]:
    names = {*before._texts, *after._texts, *_CLAMPED}
    return frozenset(name for name in names if before.get(name) != after.get(name))
