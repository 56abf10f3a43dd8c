"""Formats and places, without a broker."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import click
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tidelog.cli import progress
from tidelog.cli.formats import TableFormat, cut, from_json, json_format, to_json, unescaped
from tidelog.cli.output import Coloured, Column, printable, show, show_fields, size, width
from tidelog.cli.places import Place, iso, parse_place
from tidelog.cli.progress import Progress
from tidelog.cli.yaml import to_yaml
from tidelog.config.units import duration_ms
from tidelog.wire.records import Record

NOW = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
NOW_MS = 1_769_860_800_000

scalars = st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False, allow_infinity=False)
plain_data = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4), max_leaves=15
)


@given(plain_data)
def test_yaml_is_read_back_as_the_same_data(data: Any) -> None:
    assert yaml.safe_load(to_yaml(data)) == data


@pytest.mark.parametrize(
    "text",
    [
        "yes",
        "No",
        "null",
        "~",
        "1",
        "1.5",
        "1e3",
        "0x1",
        "2026-01-31",
        "12:30",
        "- a",
        "a: b",
        "a #b",
        "",
        " a",
        "=",
        "<<",
    ],
)
def test_text_that_yaml_would_take_for_something_else_is_quoted(text: str) -> None:
    assert yaml.safe_load(to_yaml({"k": text})) == {"k": text}


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("earliest", Place(word="earliest")),
        ("Beginning", Place(word="earliest")),
        ("end", Place(word="latest")),
        ("0", Place(offset=0)),
        ("1200", Place(offset=1200)),
        ("-100", Place(last=100)),
        ("-1h", Place(time_ms=NOW_MS - 3_600_000)),
        ("-1h30m", Place(time_ms=NOW_MS - 5_400_000)),
        ("-0.5s", Place(time_ms=NOW_MS - 500)),
        ("-2d", Place(time_ms=NOW_MS - 172_800_000)),
        ("@17", Place(time_ms=17)),
        ("now", Place(time_ms=NOW_MS)),
        ("2026-01-31T12:00Z", Place(time_ms=NOW_MS)),
        ("2026-01-31 14:00:00.25+02:00", Place(time_ms=NOW_MS + 250)),
        ("-100000w", Place(time_ms=0)),
    ],
)
def test_a_place_is_read_as_people_write_it(text: str, place: Place) -> None:
    assert parse_place(text, NOW) == place


@pytest.mark.parametrize("text", ["", "-", "-h", "-1y", "1h", "soon", "2026-13-01", "25:00", "@x", "--1", "١٢"])
def test_what_is_no_place_is_refused_with_examples(text: str) -> None:
    with pytest.raises(ValueError, match="for example earliest"):
        parse_place(text, NOW)


def test_a_time_of_day_is_today_and_local() -> None:
    here = NOW.astimezone(timezone(timedelta(hours=5)))
    at = parse_place("9:30", here).time_ms
    assert at is not None
    moment = datetime.fromtimestamp(at / 1000).astimezone()
    assert (moment.hour, moment.minute, moment.second) == (9, 30, 0)


@pytest.mark.parametrize(("text", "ms"), [("90s", 90_000), ("1h30m", 5_400_000), ("250ms", 250), ("1w", 604_800_000)])
def test_a_duration_has_units(text: str, ms: int) -> None:
    assert duration_ms(text) == ms
    with pytest.raises(ValueError, match="not a duration"):
        duration_ms(text + "x")


@given(st.integers(-(2**63), 2**63 - 1))
def test_any_timestamp_is_shown_or_left_out(timestamp: int) -> None:
    text = iso(timestamp)
    assert text is None or datetime.fromisoformat(text).timestamp() == pytest.approx(timestamp / 1000)


records = st.builds(
    Record,
    offset=st.integers(0, 2**63 - 1),
    timestamp=st.integers(-1, 2**63 - 1),
    key=st.none() | st.binary(),
    value=st.none() | st.binary(),
    headers=st.lists(st.tuples(st.text(), st.none() | st.binary()), max_size=3).map(tuple),
)


@given(records)
def test_any_record_goes_through_json_unchanged(record: Record) -> None:
    line = json_format("t", 3, record)
    assert line.count(b"\n") == 1
    message, partition = from_json(json.loads(line))
    assert partition == 3
    assert (message.value, message.key, tuple(message.headers or ())) == (record.value, record.key, record.headers)
    assert to_json("t", 3, record)["timestamp"] == record.timestamp


@given(records, st.integers(30, 200))
def test_a_row_of_a_table_is_one_line_that_fits_the_terminal(record: Record, columns: int) -> None:
    row = TableFormat(1, 1, True, columns, "<null>")("t", 0, record).decode()
    assert row.endswith("\n") and row[:-1].isprintable()
    assert width(row[:-1]) <= columns


@given(st.text(), st.integers(1, 20))
def test_cutting_keeps_to_the_room(text: str, room: int) -> None:
    assert width(cut(text, room)) <= room
    assert cut(text, width(text)) == text


def test_wide_characters_count_twice_and_control_characters_are_shown() -> None:
    assert (width("日本"), width("e\u0301")) == (4, 1)
    assert printable("a\x1b[2Jb\n") == r"a\x1b[2Jb\n"


def test_escapes_mean_bytes() -> None:
    assert unescaped(r"a\tb\x00\\\n") == b"a\tb\0\\\n"


def test_a_table_is_aligned_and_marks_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    columns = [Column("NAME", "name"), Column("COUNT", "count", right=True), Column("MORE", "more", wide=True)]
    rows = [{"name": "日本", "count": 5, "more": True}, {"name": "b", "count": None, "more": [1, 2]}]
    show(rows, columns, "table")
    assert capsys.readouterr().out == "NAME  COUNT\n日本      5\nb         -\n"
    show(rows, columns, "wide")
    assert capsys.readouterr().out.splitlines()[1:] == ["日本      5  yes", "b         -  1,2"]


def test_a_field_has_the_colour_that_it_is_given_and_none_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    fields = [("Down", Coloured("broker 2", "red")), ("Name", "a\x1b[31mb")]
    with click.Context(click.Command("tidelog"), color=True):
        show_fields(fields)
    assert "\x1b[31mbroker 2\x1b[0m" in (shown := capsys.readouterr().out) and "a\\x1b[31mb" in shown
    show_fields(fields)
    assert capsys.readouterr().out == "Down  broker 2\nName  a\\x1b[31mb\n"


def test_progress_elsewhere_than_on_a_terminal_is_a_line_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Progress("moved", 6) as unhurried:
        unhurried.update(3)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(progress, "LINE_EVERY_S", 0.0)
    with Progress("moved", 6) as known, Progress("scanned", None) as unknown:
        for of in (known, unknown):
            of.update(0)
    assert capsys.readouterr().err == "moved 0 of 6 (0%), 0/s\n"


@pytest.mark.parametrize(("rate", "text"), [(0, "0"), (0.54, "0.5"), (1.4, "1.4"), (9.96, "10"), (12345.6, "12,346")])
def test_a_slow_rate_is_told_with_a_decimal(rate: float, text: str) -> None:
    assert progress.rate_text(rate) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (5 * 1024**3, "5.0 GiB"), (-1, None), (None, None)],
)
def test_sizes_are_for_people(count: int | None, text: str | None) -> None:
    assert size(count) == text
