"""Java properties files, as `java.util.Properties` reads them.

A natural line ends at \\n, \\r or \\r\\n. Blank lines and lines whose first visible character is # or ! say
nothing. An odd number of backslashes at the end continues the line, and the white space that opens the next one is
dropped; a comment is never continued, and a # that opens a continuation of something is no comment. The key ends at
the first unescaped =, : or white space; white space and one = or : between key and value are dropped. \\t \\n \\r
\\f are control characters, \\uXXXX is a UTF-16 unit, and any other escaped character is itself. White space is
blank, tab and form feed. The last of a repeated key wins.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tidelog.config.errors import ConfigError

_BLANK = " \t\f"
_NATURAL_LINE = re.compile(r"\r\n|\r|\n")
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(text: str, path: str = "properties") -> list[tuple[str, str, int]]:
    """(key, value, number of its first line) in the order of the file, the last of each key only."""
    found: dict[str, tuple[str, str, int]] = {}
    for line, number in _logical_lines(text):
        at = _key_end(line)
        rest = line[at:].lstrip(_BLANK)
        if rest[:1] in ("=", ":"):
            rest = rest[1:].lstrip(_BLANK)
        where = f"{path}:{number}"
        key = _unescape(line[:at], where)
        found.pop(key, None)
        found[key] = (key, _unescape(rest, where), number)
    return list(found.values())


def _logical_lines(text: str) -> Iterator[tuple[str, int]]:
    """Lines with their continuations joined, without comments and blank lines, each with its first line's number."""
    joined = ""
    started = 0
    for number, natural in enumerate(_NATURAL_LINE.split(text), 1):
        line = natural.lstrip(_BLANK)
        if not joined:
            if not line or line[0] in "#!":
                continue
            started = number
        if _continues(line):
            joined += line[:-1]
            continue
        yield joined + line, started
        joined = ""
    if joined:
        yield joined, started


def _continues(line: str) -> bool:
    backslashes = len(line) - len(line.rstrip("\\"))
    return backslashes % 2 == 1


def _key_end(line: str) -> int:
    at = 0
    while at < len(line):
        if line[at] == "\\":
            at += 2
            continue
        if line[at] in "=: \t\f":
            return at
        at += 1
    return len(line)


def _unescape(text: str, where: str) -> str:
    if "\\" not in text:
        return text
    parts: list[str] = []
    at = 0
    while at < len(text):
        if text[at] != "\\":
            end = text.find("\\", at)
            end = len(text) if end < 0 else end
            parts.append(text[at:end])
            at = end
            continue
        escaped = text[at + 1 : at + 2]
        if escaped == "u":
            digits = text[at + 2 : at + 6]
            if not re.fullmatch(r"[0-9a-fA-F]{4}", digits):
                raise ConfigError(
                    "malformed \\uXXXX escape", where=where, hint="\\u takes exactly four hexadecimal digits"
                )
            parts.append(chr(int(digits, 16)))
            at += 6
            continue
        parts.append(_CONTROL.get(escaped, escaped))
        at += 2
    return _paired("".join(parts), where)


def _paired(text: str, where: str) -> str:
    """Two escaped halves of a character become the one that they mean."""
    if not any("\ud800" <= char <= "\udfff" for char in text):
        return text
    try:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        hint = "write a character beyond \\uFFFF as two escapes, \\uD83D\\uDE00"
        raise ConfigError("incomplete UTF-16 surrogate pair", where=where, hint=hint) from None
