"""Printing: tables for people, JSON, YAML and names for programs.

A table has columns of text two spaces apart, without lines, so that `awk` and `grep` can use it. A missing value is
shown as a dash. Colour is used only on a terminal, and not if NO_COLOR is set.
"""

from __future__ import annotations

import json
import sys
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

import click

from tidelog.cli.options import speaks_json
from tidelog.cli.yaml import to_yaml

MISSING: Final = "-"
Row = dict[str, Any]


class Column(NamedTuple):
    title: str
    #: a key of the row, or what makes a value of the row
    value: str | Callable[[Row], Any]
    wide: bool = False
    right: bool = False


def show(rows: Iterable[Row], columns: Sequence[Column], output: str, name: str = "name") -> None:
    """Prints a list of things in the format asked for."""
    rows = list(rows)
    if output == "json":
        show_json(rows)
    elif output == "yaml":
        click.echo(to_yaml(rows), nl=False)
    elif output == "name":
        for row in rows:
            click.echo(row[name])
    else:
        show_table(rows, [column for column in columns if output == "wide" or not column.wide])


def show_one(thing: Row, output: str, people: Callable[[], None], name: str = "name") -> None:
    """Prints one thing: `people` prints it for people."""
    if output == "json":
        show_json(thing)
    elif output == "yaml":
        click.echo(to_yaml(thing), nl=False)
    elif output == "name":
        click.echo(thing[name])
    else:
        people()


def show_json(data: Any) -> None:
    click.echo(json.dumps(data, indent=2, ensure_ascii=False))


#: one line of JSON
json_line: Final = json.JSONEncoder(ensure_ascii=False).encode


def show_table(rows: Sequence[Row], columns: Sequence[Column]) -> None:
    for line in table_lines(rows, columns):
        click.echo(line)


def table_lines(rows: Sequence[Row], columns: Sequence[Column]) -> list[str]:
    cells = [[_text(value_of(row, column)) for column in columns] for row in rows]
    titles = [column.title for column in columns]
    widths = [max(map(width, texts)) for texts in zip(titles, *cells, strict=True)]
    title = click.style(_line(titles, widths, columns), bold=True)
    return [title, *(_line(texts, widths, columns) for texts in cells)]


class Coloured(NamedTuple):
    """A value of `show_fields` in a colour. Text that has its colour already would be shown with its escapes."""

    text: str
    colour: str


def show_fields(fields: Iterable[tuple[str, Any]]) -> None:
    """Names and values below one another."""
    shown = [(name, _coloured(value) if isinstance(value, Coloured) else _text(value)) for name, value in fields]
    widest = max(width(name) for name, _ in shown)
    for name, text in shown:
        click.echo(f"{click.style(name, bold=True)}{' ' * (widest - width(name))}  {text}")


def value_of(row: Row, column: Column) -> Any:
    return row[column.value] if isinstance(column.value, str) else column.value(row)


def _line(texts: Sequence[str], widths: Sequence[int], columns: Sequence[Column]) -> str:
    parts = []
    for text, room, column in zip(texts, widths, columns, strict=True):
        space = " " * (room - width(text))
        parts.append(space + text if column.right else text + space)
    return "  ".join(parts).rstrip()


def _text(value: Any) -> str:
    if value is None or value == "" or value == []:
        return MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    return printable(str(value))


def _coloured(value: Coloured) -> str:
    return click.style(_text(value.text), fg=value.colour)


def printable(text: str) -> str:
    """The text without what would move a terminal's cursor or change its colours."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "replace").decode() for c in text)


def width(text: str) -> int:
    """Columns that the text takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def size(count: int | None) -> str | None:
    """Bytes for people: 17 B, 4.2 KiB, 1.3 GiB."""
    if count is None or count < 0:
        return None
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError


def show_done(done: Row, output: str, message: str) -> None:
    """Tells people what was done, and programs as data."""
    show_one(done, output, lambda: tell(message))


def tell(message: str) -> None:
    """Talk: what happened, for people, beside the data."""
    click.echo(json_line({"note": message}) if speaks_json() else message, err=True)


def warn(message: str) -> None:
    if speaks_json():
        click.echo(json_line({"warning": message}), err=True)
        return
    click.echo(f"{click.style('warning:', fg='yellow', bold=True)} {message}", err=True)


def plural(count: int, one: str, many: str | None = None) -> str:
    return f"{count} {one if count == 1 else many or one + 's'}"


def on_terminal() -> bool:
    return sys.stdout.isatty()
