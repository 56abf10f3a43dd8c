"""Plain data as YAML: mappings, lists, text, numbers, booleans and null, in block style.

Text is quoted wherever a reader of YAML 1.1 or 1.2 could take it for something else.
"""

from __future__ import annotations

import json
import re
from typing import Any

#: begins with a letter, goes on without anything that YAML reads as syntax
_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_./@+-]*( [A-Za-z0-9_./@+(-][A-Za-z0-9_./@+()-]*)*")
_WORDS = frozenset(("true", "false", "null", "yes", "no", "on", "off", "y", "n"))


def to_yaml(data: Any) -> str:
    return "\n".join(_lines(data)) + "\n"


def _lines(data: Any) -> list[str]:
    if isinstance(data, dict) and data:
        lines = []
        for key, value in data.items():
            lines += _entry(f"{_scalar(str(key))}:", value, indent="  ")
        return lines
    if isinstance(data, (list, tuple)) and data:
        lines = []
        for item in data:
            lines += _item(item)
        return lines
    return [_scalar(data)]


def _entry(head: str, value: Any, indent: str) -> list[str]:
    if isinstance(value, (dict, list, tuple)) and value:
        # The items of a list need no indentation below their key.
        inner = indent if isinstance(value, dict) else ""
        return [head, *(inner + line for line in _lines(value))]
    return [f"{head} {_scalar(value)}"]


def _item(item: Any) -> list[str]:
    first, *rest = _lines(item)
    return [f"- {first}", *(f"  {line}" for line in rest)]


def _scalar(value: Any) -> str:
    if isinstance(value, str):
        plain = _PLAIN.fullmatch(value) and value.lower() not in _WORDS
        return value if plain else f'"{"".join(map(_quoted, value))}"'
    if isinstance(value, float):
        # YAML 1.1 knows an exponent only behind a point.
        text = repr(value)
        return text if "." in text or "e" not in text else text.replace("e", ".0e")
    if isinstance(value, (dict, list, tuple)):
        return "{}" if isinstance(value, dict) else "[]"
    return json.dumps(value)


def _quoted(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    if character.isprintable():
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
