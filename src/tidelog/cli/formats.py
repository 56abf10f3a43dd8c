"""Records as text: what `consume` prints and `produce` reads.

As JSON, a record is one line:

    {"topic": …, "partition": …, "offset": …, "timestamp": ms, "time": …, "key": …, "value": …, "headers": […]}

Key and value are text; bytes that are not valid UTF-8 appear under `key_base64` and `value_base64` instead. null is
null and "" is empty. Headers are {"name": …, "value": …}, in order. `produce --input json` reads the same format, so
you can produce again what you consumed.

A template works like printf, with the letters of kcat: %t topic, %p partition, %o offset, %T timestamp in milliseconds,
%k key, %s value, %K and %S their lengths (-1 for null), %h headers, %% a percent sign. %D, the readable time, is
specific to Tidelog. \\n, \\t, \\r, \\0, \\\\ and \\xHH mean the same as in C. Nothing is added after a record.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

import click

from tidelog.cli.output import json_line, printable, width
from tidelog.cli.places import iso

if TYPE_CHECKING:
    from tidelog.client.producer import Message
    from tidelog.wire.records import Record

NULL: Final = "<null>"
KEY_WIDTH: Final = 20
TIME_WIDTH: Final = 23
HEADERS_WIDTH: Final = 20
_NO_SURROGATES: Final = "backslashreplace"


class Format(Protocol):
    def __call__(self, topic: str, partition: int, record: Record) -> bytes: ...


def to_json(topic: str, partition: int, record: Record) -> dict[str, Any]:
    line: dict[str, Any] = {
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "time": iso(record.timestamp),
    }
    _put(line, "key", record.key)
    _put(line, "value", record.value)
    headers = []
    for name, value in record.headers:
        header: dict[str, Any] = {"name": name.encode("utf-8", "surrogateescape").decode("utf-8", _NO_SURROGATES)}
        _put(header, "value", value)
        headers.append(header)
    line["headers"] = headers
    return line


def _put(line: dict[str, Any], name: str, content: bytes | None) -> None:
    try:
        line[name] = None if content is None else content.decode()
    except UnicodeDecodeError:
        assert content is not None
        line[f"{name}_base64"] = b64encode(content).decode()


def from_json(line: Any) -> tuple[Message, int | None]:
    """The record that a JSON line stands for, and its partition; ValueError where it is not one."""
    from tidelog.client.producer import Message

    if not isinstance(line, dict):
        raise ValueError("a record must be a JSON object")
    known = {
        "key",
        "value",
        "key_base64",
        "value_base64",
        "headers",
        "timestamp",
        "partition",
        "topic",
        "offset",
        "time",
    }
    if unknown := set(line) - known:
        raise ValueError(f"unknown fields in a record: {', '.join(sorted(unknown))}")
    stamp, partition = line.get("timestamp"), line.get("partition")
    for name, number in (("timestamp", stamp), ("partition", partition)):
        if number is not None and (not isinstance(number, int) or isinstance(number, bool)):
            raise ValueError(f"{name} must be a whole number")
    message = Message(_take(line, "value"), _take(line, "key"), _headers(line.get("headers")), stamp)
    return message, partition


def _take(line: dict[str, Any], name: str) -> bytes | None:
    coded = line.get(f"{name}_base64")
    if coded is not None:
        if not isinstance(coded, str):
            raise ValueError(f"{name}_base64 must be text")
        return b64decode(coded, validate=True)
    value = line.get(name)
    if value is None or isinstance(value, str):
        return None if value is None else value.encode("utf-8", "surrogatepass")
    import json

    # Anything else is a JSON value of its own.
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _headers(given: Any) -> list[tuple[str | bytes, bytes | None]]:
    if isinstance(given, dict):
        given = [{"name": name, "value": value} for name, value in given.items()]
    if given is None:
        return []
    if not isinstance(given, list) or not all(isinstance(h, dict) and isinstance(h.get("name"), str) for h in given):
        raise ValueError('headers are {"name": "value"}, or a list of {"name": …, "value": …}')
    return [(header["name"], _take(header, "value")) for header in given]


# --- formats ----------------------------------------------------------------------------------------


def json_format(topic: str, partition: int, record: Record) -> bytes:
    return json_line(to_json(topic, partition, record)).encode("utf-8", "backslashreplace") + b"\n"


def value_format(null: str, delimiter: bytes = b"\n") -> Format:
    marker = null.encode() + delimiter

    def line(topic: str, partition: int, record: Record) -> bytes:
        return marker if record.value is None else record.value + delimiter

    return line


def raw_format(delimiter: bytes = b"") -> Format:
    def piece(topic: str, partition: int, record: Record) -> bytes:
        return (record.value or b"") + delimiter

    return piece


class TableFormat:
    """A line a record, cut to the width of the terminal where there is one."""

    def __init__(
        self,
        partition_width: int,
        offset_width: int,
        wide: bool,
        columns: int | None,
        null: str,
        topic_width: int | None = None,
    ) -> None:
        #: None where there is one topic only
        self._topic_width = None if topic_width is None else max(topic_width, len("TOPIC"))
        self._partition_width = max(partition_width, len("PARTITION"))
        self._offset_width = max(offset_width, len("OFFSET"))
        self._wide = wide
        self._columns = columns
        self._null = null

    def header(self) -> str:
        texts = [] if self._topic_width is None else [f"{'TOPIC':{self._topic_width}}"]
        texts += [f"{'PARTITION':>{self._partition_width}}", f"{'OFFSET':>{self._offset_width}}"]
        texts += [f"{'TIME':{TIME_WIDTH}}", f"{'KEY':{KEY_WIDTH}}"]
        texts += [f"{'HEADERS':{HEADERS_WIDTH}}", "VALUE"] if self._wide else ["VALUE"]
        return "  ".join(texts)

    def __call__(self, topic: str, partition: int, record: Record) -> bytes:
        key = self._shown(record.key)
        if self._columns is not None:
            key = cut(key, KEY_WIDTH)
        texts = [] if self._topic_width is None else [f"{topic:{self._topic_width}}"]
        texts += [f"{partition:>{self._partition_width}}", f"{record.offset:>{self._offset_width}}"]
        texts += [f"{_local(record.timestamp):{TIME_WIDTH}}", key + " " * (KEY_WIDTH - width(key))]
        if self._wide:
            headers = ",".join(f"{printable(name)}={self._shown(value)}" for name, value in record.headers) or "-"
            texts.append(headers + " " * (HEADERS_WIDTH - width(headers)))
        texts.append(self._shown(record.value))
        line = "  ".join(texts)
        if self._columns is not None:
            line = cut(line, self._columns)
        return line.encode("utf-8", _NO_SURROGATES) + b"\n"

    def _shown(self, content: bytes | None) -> str:
        if content is None:
            return self._null
        return printable(content.decode("utf-8", _NO_SURROGATES)) if content else '""'


def cut(text: str, columns: int) -> str:
    """At most so many columns, the last an ellipsis where something is missing."""
    if width(text) <= columns:
        return text
    room, kept = columns - 1, []
    for character in text:
        room -= width(character)
        if room < 0:
            break
        kept.append(character)
    return "".join(kept) + "…"


def _local(timestamp_ms: int) -> str:
    text = iso(timestamp_ms)
    return "-" if text is None else text[:TIME_WIDTH].replace("T", " ")


# --- templates --------------------------------------------------------------------------------------

_Field = Callable[[str, int, "Record"], bytes]
_FIELD: Final = re.compile(r"%(.?)", re.DOTALL)
_ESCAPE: Final = re.compile(rb"\\(x[0-9a-fA-F]{2}|.?)", re.DOTALL)
_ESCAPES: Final = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}


def unescaped(text: str) -> bytes:
    """The bytes that the text means, with its escapes."""

    def replaced(escape: re.Match[bytes]) -> bytes:
        code = escape[1].decode()
        if code.startswith("x") and len(code) == 3:
            return bytes([int(code[1:], 16)])
        if code not in _ESCAPES:
            raise click.BadParameter(rf"\{code} is not an escape; use \n \t \r \0 \\ and \xHH.")
        return _ESCAPES[code]

    return _ESCAPE.sub(replaced, text.encode("utf-8", "surrogateescape"))


def template_format(template: str, null: str) -> Format:
    """The format that a template describes; BadParameter where it is not one."""
    marker = null.encode()
    fields: dict[str, _Field] = {
        "t": lambda topic, partition, record: topic.encode(),
        "p": lambda topic, partition, record: b"%d" % partition,
        "o": lambda topic, partition, record: b"%d" % record.offset,
        "T": lambda topic, partition, record: b"%d" % record.timestamp,
        "D": lambda topic, partition, record: (iso(record.timestamp) or "-").encode(),
        "k": lambda topic, partition, record: marker if record.key is None else record.key,
        "s": lambda topic, partition, record: marker if record.value is None else record.value,
        "K": lambda topic, partition, record: b"%d" % (-1 if record.key is None else len(record.key)),
        "S": lambda topic, partition, record: b"%d" % (-1 if record.value is None else len(record.value)),
        "h": lambda topic, partition, record: _header_text(record, marker),
    }
    parts: list[bytes | _Field] = []
    at = 0
    for token in _FIELD.finditer(template):
        parts.append(unescaped(template[at : token.start()]))
        at = token.end()
        if token[1] == "%":
            parts.append(b"%")
        elif token[1] in fields:
            parts.append(fields[token[1]])
        else:
            raise click.BadParameter(f"%{token[1]} is not a field; use {' '.join('%' + f for f in fields)} and %%.")
    parts.append(unescaped(template[at:]))

    def line(topic: str, partition: int, record: Record) -> bytes:
        return b"".join(part if isinstance(part, bytes) else part(topic, partition, record) for part in parts)

    return line


def _header_text(record: Record, null: bytes) -> bytes:
    return b",".join(
        name.encode("utf-8", "surrogateescape") + b"=" + (null if value is None else value)
        for name, value in record.headers
    )
