"""Apache Kafka itself is asked: its definitions, its parsing of values, Java's parsing of properties files."""

from __future__ import annotations

import base64
import random
import subprocess
from pathlib import Path

import pytest
from bench.systems.java import classpath
from settings_page import OWN_NAMES

from tidelog.config.definitions import (
    BROKER_KEYS,
    CLIENT_METRICS_KEYS,
    GROUP_KEYS,
    OWN_DEFAULTS,
    OWN_PREFIX,
    TOPIC_KEYS,
    ConfigKey,
)
from tidelog.config.errors import ConfigError
from tidelog.config.properties import parse_properties
from tidelog.config.values import parse, to_text

TABLES = {"broker": BROKER_KEYS, "topic": TOPIC_KEYS, "group": GROUP_KEYS, "client-metrics": CLIENT_METRICS_KEYS}
# Kafka 4 has no ZooKeeper, and these went with it.
ZOOKEEPER_ERA = {
    "broker.id.generation.enable",
    "controlled.shutdown.max.retries",
    "controlled.shutdown.retry.backoff.ms",
    "inter.broker.protocol.version",
    "leader.imbalance.per.broker.percentage",
    "reserved.broker.max.id",
    "zookeeper.connect",
    "zookeeper.connection.timeout.ms",
    "zookeeper.max.in.flight.requests",
    "zookeeper.session.timeout.ms",
    "zookeeper.set.acl",
}

pytestmark = pytest.mark.java


def ask(*arguments: str, lines: list[str] | None = None) -> list[str]:
    program = Path(__file__).with_name("ConfigFacts.java")
    answer = subprocess.run(
        ["java", "-Xshare:auto", "-cp", classpath(), str(program), *arguments],
        input="\n".join(lines) if lines is not None else None,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return answer.stdout.splitlines()


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def decoded(text: str) -> str:
    return base64.b64decode(text).decode()


def test_every_key_of_apache_kafka_is_known_with_its_type_default_importance_and_scope() -> None:
    seen: dict[str, set[str]] = {kind: set() for kind in TABLES}
    differences = []
    for line in ask("definitions"):
        kind, name, type, default_text, importance, internal, mode = line.split("\t")
        kind = "broker" if kind == "broker-quota" else kind
        seen[kind].add(name)
        key = TABLES[kind].get(name)
        if key is None:
            differences.append(f"{kind} {name} is missing")
            continue
        default = decoded(default_text)
        expected_default = None if default == "null" else default
        if kind == "broker" and name in OWN_DEFAULTS:
            assert OWN_DEFAULTS[name][0] == (None if default == "<required>" else expected_default), name
            expected_default = key.default
        expected_scope = "internal" if internal == "true" else mode if kind == "broker" else kind
        ours = (key.type, _comparable(key.default), key.importance, key.scope)
        theirs = (type.lower(), _comparable(expected_default), importance.lower(), expected_scope)
        if ours != theirs:
            differences.append(f"{kind} {name}: {ours} here, {theirs} there")
    assert differences == []
    kafkas = {name for name in BROKER_KEYS if not name.startswith(OWN_PREFIX)} - OWN_NAMES
    assert kafkas - seen["broker"] == ZOOKEEPER_ERA
    for kind in ("topic", "group", "client-metrics"):
        assert seen[kind] == {name for name in TABLES[kind] if not name.startswith(OWN_PREFIX)}


def _comparable(default: str | None) -> object:
    """Java keeps some sets and maps without order."""
    return frozenset(default.split(",")) if default and "," in default else default


TEXTS = {
    "boolean": ["true", " TRUE\t", "False", "yes", "1", "", "tru e"],
    "int": [
        "0",
        "1",
        "-1",
        "+5",
        " 7 ",
        "2147483647",
        "2147483648",
        "-2147483649",
        "1_000",
        "0x10",
        "",
        "1.0",
        "１２",
        "9",
    ],
    "short": ["1", "32767", "32768", "-1", "0"],
    "long": ["0", "1", "-1", "-2", "9223372036854775807", "9223372036854775808", "86400000", "--1", "+-1", "1 2"],
    "double": [
        *("0", "1", "0.5", "1e-3", "1E7", "12345678.9", "0.0001", "1.5d", ".5", "5.", "1f", "NaN", "Infinity", "inf"),
        *("1_0", "", "-0.0", "1e400", "1e-400", "100", "123456.789", "9999999", "10000000", "1e22", "1e21"),
    ],
    "string": ["", " a ", "x y", "lz4", "LZ4", "gzip", "producer", "CreateTime", "earliest", "by_duration:PT1H"],
    "list": [
        "",
        " ",
        "a",
        "a,b",
        " a , b ",
        "a,,b",
        "a,a",
        ",",
        "compact",
        "compact,delete,compact",
        "*",
        "1:2",
        "0:1,x",
    ],
    "password": [" secret ", ""],
}
DURATIONS = [
    "PT1H",
    "P1D",
    "P",
    "PT",
    "P1DT",
    "-PT1H",
    "PT-1H",
    "PT2H-30M",
    "pt1s",
    "PT1.5S",
    "PT1.S",
    "P1W",
    "PT1H1D",
    "",
]


def _questions() -> list[tuple[str, ConfigKey, str]]:
    questions = []
    for kind, table in TABLES.items():
        for key in table.values():
            ours = OWN_NAMES | OWN_DEFAULTS.keys()
            known = key.name not in ZOOKEEPER_ERA | ours and not key.name.startswith(OWN_PREFIX)
            dynamic_only = key.name.endswith((".throttled.rate", ".io.max.bytes.per.second")) and key.type == "long"
            # A class is loaded by Kafka and never here; these two are validated as endpoints of a quorum.
            asked = key.type != "class" and not key.name.startswith(
                ("controller.quorum.voters", "controller.quorum.boot")
            )
            if known and asked and not dynamic_only:
                questions += [(kind, key, text) for text in TEXTS[key.type]]
    questions += [("group", GROUP_KEYS["share.auto.offset.reset"], f"by_duration:{text}") for text in DURATIONS]
    return questions


def test_values_parse_as_apache_kafka_parses_them() -> None:
    questions = _questions()
    answers = ask("parse", lines=[f"{kind}\t{key.name}\t{encoded(text)}" for kind, key, text in questions])
    differences = []
    for (kind, key, text), answer in zip(questions, answers, strict=True):
        verdict, _, told = answer.partition("\t")
        theirs = decoded(told) if verdict == "ok" else ConfigError
        try:
            ours: object = to_text(parse(key, text))
        except ConfigError:
            ours = ConfigError
        if ours != theirs:
            differences.append(f"{kind} {key.name} {text!r}: {ours!r} here, {theirs!r} there")
    assert differences == []


def test_properties_parse_as_java_parses_them() -> None:
    source = random.Random(4)
    pieces = [
        "a",
        "b",
        "key",
        " ",
        "\t",
        "\f",
        "=",
        ":",
        "#",
        "!",
        "\\",
        "\\\n",
        "\n",
        "\r\n",
        "\r",
        "\\u0041",
        "\\t",
        "é",
    ]
    files = ["".join(source.choices(pieces, k=source.randrange(1, 30))) for _ in range(3000)]
    files += ["\\u12", "a=\\uzzzz", "a\\", "a=b\\\n", "\\ud83d\\ude00=x", "=v", ":", "a = = b", "a\\=b=c", "a\\ b c"]
    for text, answer in zip(files, ask("properties", lines=[encoded(text) for text in files]), strict=True):
        try:
            pairs = {f"{encoded(key)}={encoded(value)}" for key, value, _ in parse_properties(text)}
        except ConfigError:
            assert answer == "error", repr(text)
            continue
        # A lone backslash at the end is an empty key for Java, and nothing here; no setting has an empty name.
        theirs = {pair for pair in answer.split(" ")[1:] if not pair.startswith("=")}
        assert answer.startswith("ok") and {pair for pair in pairs if not pair.startswith("=")} == theirs - {""}, repr(
            text
        )
