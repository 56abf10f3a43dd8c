"""The page about configuration agrees with the definitions."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path

from settings_page import OWN_NAMES, with_tables

from tidelog.config.definitions import (
    BROKER_KEYS,
    OWN_DEFAULTS,
    OWN_PREFIX,
    REFUSED,
    TOPIC_KEYS,
    TOPIC_SYNONYMS,
    broker_key,
)
from tidelog.config.sources import environment_name

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "configuration.md").read_text()


def section(title: str) -> str:
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def rows(title: str) -> list[tuple[str, ...]]:
    lines = [line for line in section(title).splitlines() if line.startswith("| `")]
    return [tuple(cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]) for line in lines]


def shown(text: str | None) -> str:
    return "none" if text is None else f"`{text}`" if text else '`""`'


def test_every_topic_setting_stands_on_the_page_as_it_is_defined() -> None:
    expected = [
        (
            f"`{key.name}`",
            shown(key.default),
            f"`{TOPIC_SYNONYMS[key.name][0][0]}`" if key.name in TOPIC_SYNONYMS else "",
            key.documentation,
        )
        for key in TOPIC_KEYS.values()
        if not key.internal
    ]
    assert rows("Topic settings") == expected


def test_our_own_settings_stand_on_the_page_as_they_are_defined() -> None:
    own = [key for key in BROKER_KEYS.values() if key.name.startswith(OWN_PREFIX) or key.name in OWN_NAMES]
    assert rows("Tidelog's own settings") == [(f"`{key.name}`", shown(key.default), key.documentation) for key in own]


def test_every_default_of_our_own_stands_on_the_page_with_its_reason() -> None:
    expected = [
        (f"`{name}`", shown(BROKER_KEYS[name].default), "must be given" if kafkas is None else shown(kafkas), why)
        for name, (kafkas, why) in OWN_DEFAULTS.items()
    ]
    assert rows("Where the defaults differ") == expected


def test_the_tables_of_settings_without_effect_are_current() -> None:
    assert with_tables(PAGE) == PAGE, "run python -m tests.config.settings_page"


def test_what_stops_the_start_stands_on_the_page() -> None:
    cells = [cells[0] for cells in rows("What stops the start")]
    patterns = [name for cell in cells for name in re.findall(r"`([a-z0-9.*]+)`", cell)]
    refused = {name for name, key in BROKER_KEYS.items() if key.effect == REFUSED}
    covered = {name for name in BROKER_KEYS if any(fnmatchcase(name, pattern) for pattern in patterns)}
    assert covered == refused


def test_examples_name_settings_that_exist() -> None:
    for block in re.findall(r"```properties\n(.*?)```", PAGE, re.DOTALL):
        for line in block.splitlines():
            assert broker_key(line.partition("=")[0]) is not None, line
    foreign = {"KAFKA_HEAP_OPTS", "KAFKA_OPTS", "KAFKA_JMX_PORT", "KAFKA_BOOTSTRAP_SERVERS", "KAFKA_SERVICE_HOST"}
    for variable in set(re.findall(r"KAFKA_[A-Z0-9_]+", PAGE)) - {"KAFKA_"}:
        name = environment_name(variable)
        assert (name is None) == (variable in foreign), variable
        assert name is None or broker_key(name) is not None
