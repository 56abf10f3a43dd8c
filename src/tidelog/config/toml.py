"""TOML with Kafka's names: dotted keys and nested tables are the same name, and a quoted key is a name as it stands.

    [log]
    retention.ms = 86_400_000
    dirs = ["/var/lib/a", "/var/lib/b"]
    "dir.failure.timeout.ms" = 30_000

Arrays are lists, booleans true or false; numbers and strings are taken as text. TOML cannot hold both `log.dir` and
`log.dir.failure.timeout.ms` as dotted keys, because one would be inside the other: quoting the longer one helps.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tidelog.config.errors import ConfigError
from tidelog.config.values import to_text

_HEADER = re.compile(r"\s*\[([^\[\]]+)\]\s*(?:#.*)?")
_ASSIGNMENT = re.compile(r"""\s*((?:[A-Za-z0-9_.\-\s]|"[^"]*"|'[^']*')+?)\s*=""")


def parse_toml(data: bytes, path: str) -> list[tuple[str, str, int]]:
    """(name, text, line) of every value; the line is 0 where it could not be told."""
    import tomllib

    try:
        text = data.decode("utf-8")
        document = tomllib.loads(text)
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        hint = None
        if "overwrite" in str(error):
            hint = 'quote a name that is also the beginning of another: "log.dir.failure.timeout.ms" = 30000'
        raise ConfigError(f"not valid TOML: {error}", where=path, hint=hint) from error
    lines = _lines(text)
    found: dict[str, tuple[str, str, int]] = {}
    for name, value in _flatten(document, ""):
        line = lines.get(name, 0)
        where = f"{path}:{line}" if line else path
        if name in found:
            raise ConfigError(f"{name} is set twice, once dotted and once quoted", where=where)
        found[name] = (name, _text(name, value, where), line)
    return list(found.values())


def _flatten(table: dict[str, object], prefix: str) -> Iterator[tuple[str, object]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _text(name: str, value: object, where: str) -> str:
    if isinstance(value, list):
        return ",".join(_text(name, item, where) for item in value)
    if isinstance(value, (bool, int, float, str)):
        return to_text(value) or ""
    hint = "a value must be a string, a number, a boolean or an array of them"
    raise ConfigError(f"{name} cannot be a {type(value).__name__}", name=name, where=where, hint=hint)


def _lines(text: str) -> dict[str, int]:
    """Where each name is assigned, as far as reading line by line can tell; tomllib keeps no positions."""
    lines: dict[str, int] = {}
    prefix = ""
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.fullmatch(line):
            prefix = _dotted(header[1]) + "."
        elif assignment := _ASSIGNMENT.match(line):
            lines.setdefault(prefix + _dotted(assignment[1]), number)
    return lines


def _dotted(key: str) -> str:
    return ".".join(part.strip().strip("\"'") for part in re.findall(r'"[^"]*"|\'[^\']*\'|[^.]+', key))
