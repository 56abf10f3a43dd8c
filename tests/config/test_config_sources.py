"""Settings from files, environment and flags: which wins, and what a mistake is answered with."""

from __future__ import annotations

import re
from pathlib import Path

import javaproperties
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from tidelog.config.broker_config import BrokerConfig
from tidelog.config.errors import ConfigError
from tidelog.config.properties import parse_properties
from tidelog.config.sources import environment_name, load, read_environment, read_file
from tidelog.config.toml import parse_toml

# Kafka's KRaft quickstart file, in shape.
KAFKA_FILE = """\
# a comment
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL
num.network.threads=3
socket.send.buffer.bytes=102400
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
offsets.topic.replication.factor=1
log.retention.hours=168
log.segment.bytes=1073741824
"""


def write(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def pairs(text: str) -> dict[str, str]:
    return {key: value for key, value, _ in parse_properties(text)}


# -- properties files

ALPHABET = st.sampled_from([*"ab =:#!\\\n\r\t\fé.", "\\\n", "\\u0041", "\\\r\n", "\\n"])


@given(st.lists(ALPHABET, max_size=40).map("".join))
@example("a = = b")
@example("a\\=b\\ c : d")
@example("k = v\\\n   w")
def test_properties_are_read_as_an_independent_reader_reads_them(text: str) -> None:
    # A line of nothing but a backslash is where the readers of this world disagree; the test below holds us to Java's.
    assume(not re.search(r"(?:^|[\r\n])[ \t\f]*\\(?:[\r\n]|$)", text))
    try:
        expected = javaproperties.loads(text)
    except javaproperties.InvalidUEscapeError:
        with pytest.raises(ConfigError):
            parse_properties(text)
        return
    assert pairs(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"), [("\\\r!", {}), ("\\\n#a\nb=c", {"b": "c"}), ("\\\n a", {"a": ""}), ("a\\\n#b", {"a#b": ""})]
)
def test_after_a_line_of_a_backslash_alone_a_comment_is_still_a_comment(text: str, expected: dict[str, str]) -> None:
    assert pairs(text) == expected


@given(st.dictionaries(st.text(min_size=1), st.text(), max_size=5))
def test_properties_survive_being_written_by_an_independent_writer(wanted: dict[str, str]) -> None:
    encodable = {k: v for k, v in wanted.items() if not any("\ud800" <= c <= "\udfff" for c in k + v)}
    assert pairs(javaproperties.dumps(encodable, timestamp=False)) == encodable


def test_a_property_knows_the_line_that_it_starts_on_and_the_last_repeat_wins() -> None:
    assert parse_properties("a=1\n\n# c\nb = 2\\\n  3\na=4\n") == [("b", "23", 4), ("a", "4", 6)]


@pytest.mark.parametrize("text", ["a=\\u12", "a=\\uzzzz", "\\u00g0=1", "a=\\ud800"])
def test_a_malformed_escape_is_told_with_its_line(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_properties("x=1\n" + text, "server.properties")
    assert caught.value.where == "server.properties:2"


def test_two_escaped_halves_make_one_character() -> None:
    assert pairs("broker.rack=\\ud83d\\ude00") == {"broker.rack": "😀"}


def test_a_file_that_java_wrote_in_latin_1_is_read(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_bytes("broker.rack=Zürich".encode("latin-1"))
    assert read_file(str(path))[0].text == "Zürich"
    path.write_bytes("\ufeffbroker.rack=Zürich".encode())
    assert [(s.name, s.text) for s in read_file(str(path))] == [("broker.rack", "Zürich")]


# -- TOML


def test_toml_tables_dotted_and_quoted_keys_are_the_same_names() -> None:
    text = b"""
num.partitions = 3
"log.dir.failure.timeout.ms" = 30_000
auto = { create.topics.enable = false }
[log]
dirs = ["/a", "/b"]   # two
retention.ms = -1
[log.cleaner]
min.cleanable.ratio = 0.25
"""
    assert {name: (value, line) for name, value, line in parse_toml(text, "x.toml")} == {
        "num.partitions": ("3", 2),
        "log.dir.failure.timeout.ms": ("30000", 3),
        "auto.create.topics.enable": ("false", 0),
        "log.dirs": ("/a,/b", 6),
        "log.retention.ms": ("-1", 7),
        "log.cleaner.min.cleanable.ratio": ("0.25", 9),
    }


def test_toml_says_how_to_write_a_name_that_begins_another() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_toml(b'log.dir = "/a"\nlog.dir.failure.timeout.ms = 1', "x.toml")
    assert "quote a name" in caught.value.explain() and caught.value.where == "x.toml"


@pytest.mark.parametrize("text", [b"a = ", b"a = 2020-01-01", b"\xff", b'log.dirs = "a"\n"log.dirs" = "b"'])
def test_toml_mistakes_are_configuration_errors(text: bytes) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_toml(text, "x.toml")
    assert (caught.value.where or "").startswith("x.toml")


# -- environment


@pytest.mark.parametrize(
    ("variable", "name"),
    [
        ("KAFKA_LOG_RETENTION_MS", "log.retention.ms"),
        ("KAFKA_NUM_PARTITIONS", "num.partitions"),
        ("KAFKA_TIDELOG_MAX_DECOMPRESSED_BYTES", "tidelog.max.decompressed.bytes"),
        ("KAFKA_LISTENER_NAME_EXTERNAL_SSL_CLIENT_AUTH", "listener.name.external.ssl.client.auth"),
        (
            "KAFKA_LISTENER_NAME_MY__NET_SCRAM___SHA___256_SASL_JAAS_CONFIG",
            "listener.name.my_net.scram-sha-256.sasl.jaas.config",
        ),
        ("KAFKA_NUM_PARTITIONZ", "num.partitionz"),
        ("KAFKA_HEAP_OPTS", None),
        ("KAFKA_OPTS", None),
        ("KAFKA_JMX_PORT", None),
        ("KAFKA_BOOTSTRAP_SERVERS", None),
        ("KAFKA_PORT_9092_TCP_ADDR", None),
        ("KAFKA_SERVICE_HOST", None),
    ],
)
def test_a_variable_means_a_name_or_nothing(variable: str, name: str | None) -> None:
    assert environment_name(variable) == name


def test_every_broker_key_can_be_given_by_environment() -> None:
    from tidelog.config.definitions import BROKER_KEYS

    for name in BROKER_KEYS:
        assert environment_name("KAFKA_" + name.upper().replace(".", "_")) == name


def test_other_variables_are_not_read() -> None:
    assert read_environment({"PATH": "/bin", "KAFKA": "x", "KAFKA_": "y", "NUM_PARTITIONS": "3"}) == []


# -- together


def test_flag_wins_over_environment_over_later_file_over_earlier_file(tmp_path: Path) -> None:
    first = write(tmp_path / "a.properties", "num.partitions=1\nfetch.max.bytes=2000\nbroker.rack=a\nnode.id=5\n")
    second = write(tmp_path / "b.toml", 'num.partitions = 2\nfetch.max.bytes = 3000\nbroker.rack = "b"\n')
    settings = load(
        [first, second], {"KAFKA_NUM_PARTITIONS": "3", "KAFKA_FETCH_MAX_BYTES": "4000"}, ["num.partitions=4"]
    )
    config = BrokerConfig(settings)
    found = {
        name: (config.get(name), config.where(name)) for name in ("num.partitions", "fetch.max.bytes", "broker.rack")
    }
    assert found == {
        "num.partitions": (4, "-X num.partitions"),
        "fetch.max.bytes": (4000, "KAFKA_FETCH_MAX_BYTES"),
        "broker.rack": ("b", f"{second}:3"),
    }
    assert config.broker_id == 5 and config.where("broker.id") == f"{first}:4"
    assert config.where("request.timeout.ms") == "default"


def test_another_unit_of_the_same_setting_in_a_stronger_source_wins(tmp_path: Path) -> None:
    path = write(tmp_path / "server.properties", "log.retention.ms=1000\nlog.dirs=/a,/b\n")
    config = BrokerConfig(load([path], {"KAFKA_LOG_DIR": "/c"}, ["log.retention.hours=2"]))
    assert config.topic_defaults()["retention.ms"] == 7_200_000
    assert config.log_dirs == ("/c",)
    same_source = BrokerConfig(load([], None, ["log.retention.hours=2", "log.retention.ms=5"]))
    assert same_source.topic_defaults()["retention.ms"] == 5


def test_a_file_written_for_kafka_loads_and_says_what_has_no_effect(tmp_path: Path) -> None:
    settings = load([write(tmp_path / "server.properties", KAFKA_FILE)])
    config = BrokerConfig(settings)
    assert config.broker_id == 1 and config.log_dirs == ("/tmp/kraft-combined-logs",)
    assert settings.warnings == [
        "accepted without effect: num.network.threads (`tidelog config explain NAME` says why)"
    ]


def test_an_unknown_name_in_a_file_or_variable_is_a_warning_with_a_suggestion(tmp_path: Path) -> None:
    path = write(tmp_path / "server.properties", "log.retension.ms=5\nzzz=1\n")
    settings = load([path], {"KAFKA_NUM_PARTITIONZ": "3"})
    assert settings.warnings == [
        f"{path}:1: unknown configuration log.retension.ms is ignored; did you mean log.retention.ms?",
        f"{path}:2: unknown configuration zzz is ignored",
        "KAFKA_NUM_PARTITIONZ: unknown configuration num.partitionz is ignored; did you mean num.partitions?",
    ]
    assert settings.by_name == {}


def test_an_unknown_name_in_a_flag_is_an_error_with_a_suggestion() -> None:
    with pytest.raises(ConfigError) as caught:
        load(flags=["log.retention.msec=5"])
    assert caught.value.explain() == (
        "-X log.retention.msec: Unknown config name: log.retention.msec (did you mean log.retention.ms?)"
    )
    with pytest.raises(ConfigError, match=r"did you mean listener\.name\.x\.ssl\.client\.auth"):
        load(flags=["listener.name.x.ssl.client.auht=none"])


@pytest.mark.parametrize("flag", ["num.partitions", "=3", "num.partitions:3"])
def test_a_flag_that_is_no_pair_says_how_to_write_one(flag: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(flags=[flag])
    assert "key=value" in str(caught.value) and caught.value.hint


def test_a_value_may_contain_equals_signs_and_the_last_flag_wins() -> None:
    settings = load(flags=["broker.rack=a=b", "num.partitions=2", "num.partitions=3"])
    config = BrokerConfig(settings)
    assert config.get("broker.rack") == "a=b" and config.get("num.partitions") == 3


def test_a_bad_value_is_told_with_its_place(tmp_path: Path) -> None:
    path = write(tmp_path / "server.properties", "a.b=1\n\nnum.partitions = many\n")
    with pytest.raises(ConfigError) as caught:
        BrokerConfig(load([path]))
    assert caught.value.explain().startswith(f"{path}:3: Invalid value many for configuration num.partitions")


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load([str(tmp_path / "missing.properties")])
    assert "missing.properties" in caught.value.explain()


def test_a_name_that_differs_in_case_only_is_told_as_such(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("LOG.RETENTION.MS=1\nNum.Partitions=3\n")
    assert load([str(path)], {}, []).warnings == [
        f"{path}:1: unknown configuration LOG.RETENTION.MS is ignored; did you mean log.retention.ms, in lower case?",
        f"{path}:2: unknown configuration Num.Partitions is ignored; did you mean num.partitions, in lower case?",
    ]
    with pytest.raises(ConfigError, match=r"did you mean num\.partitions, in lower case\?"):
        load([], {}, ["NUM.PARTITIONS=3"])
