"""Reading a TOML document into frozen dataclasses, and saying everything that is wrong with it at once.

A section is a dataclass whose fields were made by `key(...)`: each field knows how to read its value and what to say of
it in the reference. `read_section` fills one from a table of the document; whatever cannot be used becomes a `Problem`
with its place (`orders.toml:7 [source] topics`), what is wrong with it and what to write instead. Reading goes on after
a problem, so that a person sees all of them; a section with a problem comes out as None.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, field, fields
from typing import Any, Final, NamedTuple, TypeVar

T = TypeVar("T")

_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(B|KB|KiB|MB|MiB|GB|GiB|TB|TiB)?", re.IGNORECASE)
_POWERS: Final = {"": 0, "b": 0, "kb": 1, "kib": 1, "mb": 2, "mib": 2, "gb": 3, "gib": 3, "tb": 4, "tib": 4}
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")
_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_ADDRESS: Final = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]+):/{1,2}([^/]*)(.*)")
_PLAIN: Final = re.compile(r"[A-Za-z0-9_.=+~@/-]*")
#: where a table can be beside a directory -> an example
STORES: Final = {
    "s3": "s3://bucket/lake/orders",
    "s3a": "s3://bucket/lake/orders",
    "gs": "gs://bucket/lake/orders",
    "az": "az://container/lake/orders",
    "abfs": "abfs://container@account.dfs.core.windows.net/lake/orders",
    "abfss": "abfss://container@account.dfs.core.windows.net/lake/orders",
    "hdfs": "hdfs://namenode:8020/lake/orders",
}
_HEADER: Final = re.compile(r"\s*\[([^\[\]]+)\]\s*(?:#.*)?")
_ASSIGNMENT: Final = re.compile(r"""\s*["']?([A-Za-z0-9_\-]+)["']?\s*(?:\.[^=]*)?=""")


class Problem(NamedTuple):
    """`where` is a place in a file, or a thing; `hint` is what to do about it."""

    where: str
    message: str
    hint: str | None = None

    def explain(self) -> str:
        text = f"{self.where}: {self.message}"
        return f"{text}\n  {self.hint}" if self.hint else text


class Wrong(Exception):
    """A value that cannot be used; raised by what reads it."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


Read = Callable[[Any, str], Any]


def key(
    read: Read,
    says: str,
    *,
    default: Any = MISSING,
    factory: Any = MISSING,
    shown: str | None = None,
    named: str | None = None,
) -> Any:
    """A field that is a key of the file; the key is `named` otherwise where the field's name ends in a unit.

    `shown` is the default in words, where the value alone would not tell.
    """
    about = {"read": read, "says": says, "shown": shown, "named": named}
    if factory is not MISSING:
        return field(default_factory=factory, metadata=about)
    return field(metadata=about) if default is MISSING else field(default=default, metadata=about)


def keys_of(kind: type) -> dict[str, Field[Any]]:
    """The keys of a section as they stand in the file."""
    return {f.metadata["named"] or f.name: f for f in fields(kind) if "read" in f.metadata}


class Document:
    """A parsed file: its tables, where its keys stand, and the problems found so far."""

    def __init__(self, tables: Mapping[str, Any], text: str, path: str) -> None:
        self.tables = dict(tables)
        self.path = path
        self.directory = os.path.dirname(os.path.abspath(path))
        self.problems: list[Problem] = []
        self._lines = _lines(text)

    def where(self, section: str, name: str = "") -> str:
        line = self._lines.get((section, name))
        place = f"{self.path}:{line}" if line else self.path
        return " ".join(filter(None, (place, f"[{section}]" if section else "", name)))

    def wrong(self, section: str, name: str, message: str, hint: str | None = None) -> None:
        self.problems.append(Problem(self.where(section, name), message, hint))

    def unknown(self, section: str, names: Iterable[str], known: Iterable[str], what: str = "key") -> None:
        known = list(known)
        for name in names:
            close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
            hint = f"did you mean {close[0]}?" if close else f"there are: {', '.join(known)}"
            shown = f"[{name}]" if what == "section" else name
            if what == "section":
                self.problems.append(Problem(self.where(name), f"there is no section {shown}", hint))
            else:
                self.wrong(section, name, f"there is no {what} {shown}", hint)


def read_section(document: Document, section: str, kind: type[T], given: Mapping[str, Any] | None = None) -> T | None:
    """The section as its dataclass; None where something in it is wrong. `given` are fields that are no keys."""
    table = document.tables.get(section, {})
    if not isinstance(table, dict):
        document.wrong("", section, f"[{section}] is a section", f"write [{section}] in a line of its own")
        return None
    return read_keys(document, section, table, kind, given)


def read_keys(
    document: Document, section: str, table: Mapping[str, Any], kind: type[T], given: Mapping[str, Any] | None = None
) -> T | None:
    before = len(document.problems)
    known = keys_of(kind)
    document.unknown(section, (name for name in table if name not in known), known)
    values: dict[str, Any] = dict(given or {})
    for name, f in known.items():
        if name in table:
            try:
                values[f.name] = f.metadata["read"](table[name], document.directory)
            except Wrong as error:
                document.wrong(section, name, error.message, error.hint)
        elif f.default is MISSING and f.default_factory is MISSING:
            document.wrong(section, name, "is missing", f.metadata["says"])
    return kind(**values) if len(document.problems) == before else None


# --- values -----------------------------------------------------------------------------------------


def text(value: Any, _: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise Wrong(f"{value!r} is not a text", 'write it in quotes: "…"')
    return value


def flag(value: Any, _: str) -> bool:
    if not isinstance(value, bool):
        raise Wrong(f"{value!r} is neither true nor false", "write true or false, without quotes")
    return value


class choice:
    """One of these words."""

    def __init__(self, *allowed: str) -> None:
        self.allowed = allowed

    def __call__(self, value: Any, _: str) -> str:
        if value not in self.allowed:
            close = difflib.get_close_matches(str(value), self.allowed, n=1)
            meant = f"did you mean {close[0]}? " if close else ""
            raise Wrong(f"{value!r} is not one of its values", f"{meant}write one of: {', '.join(self.allowed)}")
        return str(value)


def count(least: int) -> Read:
    def read(value: Any, _: str) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise Wrong(f"{value!r} is not a whole number from {least} on", f"write a number, such as {max(least, 4)}")
        return value

    return read


def size_bytes(value: Any, _: str) -> int:
    """`"128MB"`, `"1.5 GiB"` or a number of bytes; the units are powers of 1024, as in Spark's settings."""
    match = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is not None:
        found = int(float(match[1]) * 1024 ** _POWERS[(match[2] or "").lower()])
    elif isinstance(value, int) and not isinstance(value, bool):
        found = value
    else:
        found = 0
    if found <= 0:
        raise Wrong(f"{value!r} is not a size", 'write for example "128MB"')
    return found


def duration_ms(value: Any, _: str) -> int:
    match = _DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise Wrong(f"{value!r} is not a duration", 'write for example "500ms", "5s" or "1m"')
    return int(float(match[1]) * _UNITS_MS[match[2]])


def names(value: Any, _: str) -> tuple[str, ...]:
    found = [value] if isinstance(value, str) else value
    if not isinstance(found, list) or not found or not all(isinstance(name, str) and name for name in found):
        raise Wrong(f"{value!r} is not a list of names", 'write for example ["orders", "returns"]')
    twice = {name for name in found if found.count(name) > 1}
    if twice:
        raise Wrong(f"{', '.join(sorted(twice))} is named twice", "name each once")
    return tuple(found)


def path(value: Any, directory: str) -> str:
    """Relative to the file's own directory."""
    written = text(value, directory)
    if written.startswith("file://"):
        written = written.removeprefix("file://")
    return os.path.normpath(os.path.join(directory, os.path.expanduser(written)))


def table_path(value: Any, directory: str) -> str:
    """A directory, relative to the file's own, or an address of object storage."""
    written = text(value, directory)
    address = _ADDRESS.match(written)
    if address is None or address[1] == "file":
        return path(written, directory)
    scheme = address[1].lower()
    if scheme not in STORES:
        hint = f"write a directory, or an address that begins with {', '.join(f'{name}://' for name in STORES)}"
        raise Wrong(f"{written!r}: there is no storage called {scheme}", hint)
    # The name node of an HDFS may be named in Hadoop's own files alone.
    named = bool(address[2]) or scheme == "hdfs"
    if not written[len(scheme) :].startswith("://") or not named or not address[3].strip("/"):
        raise Wrong(f"{written!r} is no whole address", f'write for example "{STORES[scheme]}"')
    if not _PLAIN.fullmatch(address[3]):
        # Written with them as one path, read as another: a table would be made that nobody finds.
        raise Wrong(f"{written!r} has characters that addresses have no place for", "use letters, digits and -_.=+~@/")
    # Hadoop calls the same place s3a; a table has one name.
    return f"{'s3' if scheme == 's3a' else scheme}://{address[2]}{address[3].rstrip('/')}"


def settings(value: Any, _: str) -> dict[str, str]:
    """A table of texts; nested tables are dotted names, so that quotes around a dotted key may be left out."""
    if not isinstance(value, dict):
        raise Wrong(f"{value!r} is not a table of settings", '"spark.sql.shuffle.partitions" = 4')
    found: dict[str, str] = {}
    for name, inner in value.items():
        if isinstance(inner, dict):
            found.update({f"{name}.{rest}": text_of for rest, text_of in settings(inner, "").items()})
        elif isinstance(inner, bool):
            found[name] = "true" if inner else "false"
        elif isinstance(inner, (str, int, float)):
            found[name] = str(inner)
        else:
            raise Wrong(f"{name} = {inner!r} is not a setting", "write a text, a number, true or false")
    return found


def _lines(source: str) -> dict[tuple[str, str], int]:
    """(section, key) -> line, as far as reading line by line can tell; tomllib keeps no positions."""
    found: dict[tuple[str, str], int] = {}
    section = ""
    for number, line in enumerate(source.splitlines(), 1):
        if header := _HEADER.fullmatch(line):
            section, _, inner = header[1].strip().partition(".")
            found.setdefault((section, ""), number)
            if inner:
                found.setdefault((section, inner.partition(".")[0].strip("\"' ")), number)
        elif assignment := _ASSIGNMENT.match(line):
            found.setdefault((section, assignment[1]), number)
    return found
