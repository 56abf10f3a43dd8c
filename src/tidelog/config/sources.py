"""Where settings come from (files, environment, flags) and which source wins.

A setting has a name, a text, and an origin, written as in the source itself (`server.properties:12`,
`KAFKA_LOG_RETENTION_MS`, `-X log.retention.ms=1000`). Flags override the environment, the environment overrides files,
later files override earlier ones, and all of them override the default. Different names for the same setting
(`log.retention.hours` and `log.retention.ms`) compete across sources too: a flag in hours hides milliseconds in a file.

An unknown name is reported with the name that was probably meant. In a file or in the environment this is a warning,
because Kafka ignores such names too and files are shared with other tools. In a flag it is an error. The setting is
kept in `ignored` anyway, because `unkept.py` checks whether it asks for security.

Text is used literally: nothing in it is expanded, looked up or run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidelog.config.definitions import (
    BROKER_KEYS,
    LISTENER_PREFIX,
    MECHANISM_KEYS,
    broker_key,
    same_setting,
)
from tidelog.config.effects import GONE, told_without_effect, without_effect
from tidelog.config.errors import ConfigError, meant, unknown_key
from tidelog.config.properties import parse_properties
from tidelog.config.units import plain_number

FLAG = "flag"
ENVIRONMENT = "environment"
FILE = "file"
DEFAULT = "default"
START = "start"  # settled by the broker itself when it started, such as a generated broker id

ENVIRONMENT_PREFIX = "KAFKA_"
# Variables of Kafka's start scripts, container images and of client programs; they configure no broker.
_FOREIGN_NAMES = """
BOOTSTRAP_SERVER BOOTSTRAP_SERVERS BROKER BROKERS BROKER_LIST BROKER_URL CLIENT_ID CLUSTER_ID CONFIG_FILE DEBUG
GC_LOG_OPTS GROUP_ID HEAP_OPTS HOME HOST HOSTNAME JMX_HOSTNAME JMX_OPTS JMX_PORT JVM_PERFORMANCE_OPTS
LOG4J_CMD_OPTS LOG4J_LOGGERS LOG4J_OPTS LOG4J_ROOT_LOGLEVEL MODE NATIVE OPTS PASSWORD PORT SERVER SERVERS
TOOLS_LOG4J_LOGLEVEL TOPIC TOPICS URL USER USERNAME VERSION
"""
_FOREIGN = frozenset(ENVIRONMENT_PREFIX + name for name in _FOREIGN_NAMES.split())
# Kubernetes puts these into every container beside a service called kafka.
_FOREIGN_PREFIXES = (ENVIRONMENT_PREFIX + "SERVICE_", ENVIRONMENT_PREFIX + "PORT_", ENVIRONMENT_PREFIX + "DEBUG_")


class Setting:
    """A name with its text and where it came from."""

    __slots__ = ("kind", "name", "text", "where")

    def __init__(self, name: str, text: str, kind: str, where: str) -> None:
        self.name = name
        self.text = text
        self.kind = kind
        self.where = where

    def __repr__(self) -> str:
        return f"Setting({self.name} from {self.where})"


class Settings:
    """What all sources together say. `warnings` are for the operator; nothing in them is fatal."""

    __slots__ = ("by_name", "ignored", "warnings")

    def __init__(self) -> None:
        self.by_name: dict[str, Setting] = {}
        #: settings under names that nobody knows
        self.ignored: list[Setting] = []
        self.warnings: list[str] = []

    def overlay(self, settings: Iterable[Setting]) -> None:
        """Settings of a stronger source: they replace their names, and the other names for the same setting."""
        layer = {setting.name: _plain_setting(setting) for setting in settings}
        for name in layer:
            for other in same_setting(name):
                if other not in layer:
                    self.by_name.pop(other, None)
        self.by_name.update(layer)


def load(files: Iterable[str] = (), environ: Mapping[str, str] | None = None, flags: Iterable[str] = ()) -> Settings:
    """Settings of `files` (in order), the KAFKA_ variables of `environ` and `flags` (`key=value` each)."""
    settings = Settings()
    for path in files:
        settings.overlay(_known(read_file(path), settings))
    if environ is not None:
        settings.overlay(_known(read_environment(environ), settings))
        settings.ignored += _java_logins(environ)
    settings.overlay(read_flags(flags))
    idle = without_effect({name: setting.text for name, setting in settings.by_name.items()})
    if idle:
        settings.warnings.append(told_without_effect(idle))
    return settings


def read_file(path: str) -> list[Setting]:
    """The settings of a `.toml` file, or of a properties file under any other name."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        raise ConfigError(f"cannot read the configuration file: {error.strerror}", where=path) from error
    if path.endswith(".toml"):
        from tidelog.config.toml import parse_toml  # late: tomllib is only needed for such a file

        return [
            Setting(name, text, FILE, f"{path}:{line}" if line else path) for name, text, line in parse_toml(data, path)
        ]
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("latin-1")  # what Java writes
    return [Setting(name, value, FILE, f"{path}:{line}") for name, value, line in parse_properties(text, path)]


def read_environment(environ: Mapping[str, str]) -> list[Setting]:
    """The settings among the KAFKA_ variables; a name that is not known keeps dots for its underscores."""
    settings = []
    for variable in sorted(environ):
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable == ENVIRONMENT_PREFIX:
            continue
        name = environment_name(variable)
        if name is None:
            continue
        settings.append(Setting(name, environ[variable], ENVIRONMENT, variable))
    return settings


def environment_name(variable: str) -> str | None:
    """The configuration name that a KAFKA_ variable means, None where it is known to mean something else.

    `_` stands for a dot; `__` for an underscore and `___` for a dash, as in Kafka's container image, where a listener's
    or mechanism's name has them.
    """
    body = variable[len(ENVIRONMENT_PREFIX) :]
    name = body.replace("___", "-").replace("__", "\0").replace("_", ".").replace("\0", "_").lower()
    if broker_key(name) is not None:
        return name
    plain = _plain(body)
    for known in BROKER_KEYS:
        if _plain(known) == plain:
            return known
    if name.startswith(LISTENER_PREFIX):
        return name
    if variable in _FOREIGN or variable.startswith(_FOREIGN_PREFIXES):
        return None
    return name


def read_flags(flags: Iterable[str]) -> list[Setting]:
    """The settings of `-X key=value` flags; the last of a name wins."""
    settings: dict[str, Setting] = {}
    for flag in flags:
        name, equals, text = flag.partition("=")
        name = name.strip()
        where = f"-X {name}"
        if not equals or not name:
            raise ConfigError("write settings as key=value", where=f"-X {flag}", hint="for example -X num.partitions=3")
        if name in GONE:
            raise ConfigError(f"there is no {name}", name=name, where=where, hint=GONE[name])
        if broker_key(name) is None:
            raise unknown_key(name, _candidates(name)).at(where)
        settings[name] = Setting(name, text, FLAG, where)
    return list(settings.values())


def _java_logins(environ: Mapping[str, str]) -> list[Setting]:
    """Login files that are given to Kafka's Java process, which is where a broker's SASL users often stand."""
    option = "java.security.auth.login.config"
    variables = [name for name in sorted(environ) if name.startswith(ENVIRONMENT_PREFIX) and name.endswith("_OPTS")]
    return [Setting(option, environ[name], ENVIRONMENT, name) for name in variables if f"-D{option}=" in environ[name]]


def _known(given: Iterable[Setting], settings: Settings) -> list[Setting]:
    known = []
    for setting in given:
        if broker_key(setting.name) is not None:
            known.append(setting)
            continue
        settings.ignored.append(setting)
        question = meant(setting.name, _candidates(setting.name))
        settings.warnings.append(
            f"{setting.where}: unknown configuration {setting.name} is ignored{f'; {question}' if question else ''}"
        )
    return known


def _plain_setting(setting: Setting) -> Setting:
    """Durations and sizes as the numbers that they mean."""
    try:
        return Setting(setting.name, plain_number(setting.name, setting.text), setting.kind, setting.where)
    except ConfigError as error:
        raise error.at(setting.where) from None


def _candidates(name: str) -> Iterable[str]:
    """Names that a mistaken `name` may have been meant to be."""
    if not name.startswith(LISTENER_PREFIX):
        return BROKER_KEYS
    listener = name[len(LISTENER_PREFIX) :].partition(".")[0]
    bases = (key for key in BROKER_KEYS if key.startswith(("ssl.", "sasl.")) or key in MECHANISM_KEYS)
    return (f"{LISTENER_PREFIX}{listener}.{base}" for base in bases)


def _plain(name: str) -> str:
    return name.upper().replace(".", "_").replace("-", "_")
