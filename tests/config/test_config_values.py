"""Text becomes typed values as Kafka's ConfigDef makes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.config.definitions import (
    BROKER_KEYS,
    CLIENT_METRICS_KEYS,
    GROUP_KEYS,
    GROUP_SYNONYMS,
    OWN_DEFAULTS,
    SAME_SETTING,
    TOPIC_KEYS,
    TOPIC_SYNONYMS,
    ConfigKey,
    broker_key,
)
from tidelog.config.errors import ConfigError
from tidelog.config.values import Password, default_value, describe_valid, duration_ms, parse, to_text

ALL_KEYS = [key for table in (BROKER_KEYS, TOPIC_KEYS, GROUP_KEYS, CLIENT_METRICS_KEYS) for key in table.values()]


def key(type: str, valid: str = "-") -> ConfigKey:
    return ConfigKey("some.name", type, None, valid, "low", "read-only", "")


@pytest.mark.parametrize("each", ALL_KEYS, ids=lambda each: f"{each.scope}:{each.name}")
def test_every_default_is_valid_and_survives_being_written_and_parsed(each: ConfigKey) -> None:
    value = default_value(each)
    if value is None:
        assert each.default is None
        return
    assert to_text(value) == each.default
    if each.name not in OWN_DEFAULTS:  # some of ours are empty where Kafka demands a value
        assert parse(each, each.default or "") == value
    assert each.documentation.endswith(".") and describe_valid(each)


def test_synonyms_and_families_name_keys_that_exist() -> None:
    for name, synonyms in TOPIC_SYNONYMS.items():
        assert name in TOPIC_KEYS and all(synonym in BROKER_KEYS for synonym, _ in synonyms)
    assert GROUP_SYNONYMS.keys() <= GROUP_KEYS.keys() and set(GROUP_SYNONYMS.values()) <= BROKER_KEYS.keys()
    assert {name for names in SAME_SETTING for name in names} <= BROKER_KEYS.keys()
    assert OWN_DEFAULTS.keys() <= BROKER_KEYS.keys()


def test_a_topic_default_equals_the_default_of_its_broker_synonym() -> None:
    for name, synonyms in TOPIC_SYNONYMS.items():
        own = default_value(TOPIC_KEYS[name])
        inherited = next(
            value * unit if unit > 1 else value
            for synonym, unit in synonyms
            if (value := default_value(BROKER_KEYS[synonym])) is not None
        )
        assert own == inherited, name


@given(st.integers(-(2**70), 2**70), st.sampled_from([("short", 16), ("int", 32), ("long", 64)]))
def test_integers_hold_exactly_what_their_width_holds(number: int, kind: tuple[str, int]) -> None:
    name, bits = kind
    if -(2 ** (bits - 1)) <= number < 2 ** (bits - 1):
        assert parse(key(name), f" {number}\t") == number
    else:
        with pytest.raises(ConfigError, match=f"Not a number of type {name.upper()}"):
            parse(key(name), str(number))


@given(st.floats(allow_nan=False))
def test_doubles_survive_being_written_and_parsed(number: float) -> None:
    assert parse(key("double"), to_text(number) or "") == number


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.5, "0.5"),
        (100.0, "100.0"),
        (1e7, "1.0E7"),
        (9999999.0, "9999999.0"),
        (12345678.9, "1.23456789E7"),
        (0.001, "0.001"),
        (0.0001, "1.0E-4"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (2147483647.0, "2.147483647E9"),
        (1e22, "1.0E22"),
        (-12345678.5, "-1.23456785E7"),
        (0.000123, "1.23E-4"),
        (float("inf"), "Infinity"),
    ],
)
def test_doubles_are_written_as_java_writes_them(number: float, text: str) -> None:
    assert to_text(number) == text


@pytest.mark.parametrize("text", ["yes", "1", "", "on", "truefalse"])
def test_a_boolean_is_true_or_false_and_nothing_else(text: str) -> None:
    with pytest.raises(ConfigError, match="either true or false"):
        parse(key("boolean"), text)
    assert parse(key("boolean"), " True ") is True


@given(st.lists(st.text("abc.:/", min_size=1), max_size=6))
def test_a_list_is_split_at_commas_and_trimmed(items: list[str]) -> None:
    assert parse(key("list"), " " + " ,\t".join(items) + "\n") == tuple(items)


def test_a_set_drops_repeats_and_refuses_empty_and_unknown_items() -> None:
    policy = TOPIC_KEYS["cleanup.policy"]
    assert parse(policy, "compact, delete,compact") == ("compact", "delete")
    assert parse(policy, "") == ()
    for text in ("compact,", "compact,shred", "Compact"):
        with pytest.raises(ConfigError):
            parse(policy, text)
    with pytest.raises(ConfigError, match="must not be empty"):
        parse(BROKER_KEYS["listeners"], " ")


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("retention.ms", ["-1", "0"], ["-2", "x", ""]),
        ("segment.bytes", ["1048576"], ["1048575", "2147483648"]),
        ("min.cleanable.dirty.ratio", ["0", "1", "0.25"], ["1.01", "-0.1", "half"]),
        ("compression.type", ["zstd", "producer"], ["brotli", "ZSTD"]),
        ("compression.gzip.level", ["-1", "1", "9"], ["0", "10", "-2"]),
        ("leader.replication.throttled.replicas", ["*", "0:1,1:2", ""], ["0", "*,0:1", "a:b"]),
    ],
)
def test_values_outside_the_valid_ones_are_refused(name: str, good: list[str], bad: list[str]) -> None:
    for text in good:
        parse(TOPIC_KEYS[name], text)
    for text in bad:
        with pytest.raises(ConfigError) as caught:
            parse(TOPIC_KEYS[name], text)
        assert caught.value.name == name and caught.value.code == 40
        assert caught.value.hint and caught.value.hint.startswith(f"{name} takes ")


def test_an_error_tells_what_where_and_what_instead() -> None:
    with pytest.raises(ConfigError) as caught:
        parse(BROKER_KEYS["num.partitions"], "0")
    assert caught.value.at("server.properties:3").explain() == (
        "server.properties:3: Invalid value 0 for configuration num.partitions: Value must be at least 1\n"
        "  num.partitions takes a whole number, at least 1"
    )


def test_a_password_is_never_printed() -> None:
    secret = parse(BROKER_KEYS["ssl.key.password"], "s3cret")
    assert secret == Password("s3cret") and "s3cret" not in f"{secret} {secret!r}"


def test_a_class_is_a_name_and_is_not_loaded() -> None:
    assert parse(BROKER_KEYS["ssl.engine.factory.class"], "os.system") == "os.system"


def test_text_that_looks_like_a_variable_or_a_path_stays_as_it_is() -> None:
    for text in ("${HOME}", "$HOME", "~/data", "%PATH%", "file:///etc/passwd", "${env:HOME}"):
        assert parse(BROKER_KEYS["broker.rack"], text) == text
        assert parse(BROKER_KEYS["log.dirs"], text) == (text,)


@pytest.mark.parametrize(
    ("text", "length_ms"),
    [("PT1H", 3_600_000), ("P1DT1S", 86_401_000), ("PT1.5S", 1500), ("-PT1S", -1000), ("PT2H-30M", 5_400_000)],
)
def test_durations_are_iso_8601(text: str, length_ms: int) -> None:
    assert duration_ms(text) == length_ms


@pytest.mark.parametrize("text", ["", "P", "PT", "P1DT", "1H", "P1Y", "PT1H1D"])
def test_what_is_no_duration_is_told_apart(text: str) -> None:
    assert duration_ms(text) is None


def test_a_listeners_own_setting_is_parsed_like_its_base() -> None:
    def base(name: str) -> str | None:
        found = broker_key(name)
        return found and found.name

    assert base("listener.name.external.ssl.client.auth") == "ssl.client.auth"
    assert base("listener.name.external.plain.sasl.jaas.config") == "sasl.jaas.config"
    assert base("listener.name.external.scram-sha-256.sasl.jaas.config") == "sasl.jaas.config"
    assert base("listener.name.external.num.partitions") is None
    assert base("listener.name.external") is None
    assert base("listener.name.external.ssl.nonsense") is None
