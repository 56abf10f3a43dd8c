"""The pipeline file: a small TOML document, read into frozen dataclasses that can travel to executors.

    name = "orders"

    [source]
    bootstrap = "localhost:9092"
    topics = ["orders"]

    [decode]
    format = "json"
    schema = "id BIGINT, amount DOUBLE, at TIMESTAMP"

    [table]
    path = "lake/orders"

`load` gives a `Pipeline`, or raises `SpecError` with every problem that the file has: where, what, and what to write.
Paths are relative to the file.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from tidelog.pipeline.spec.sections import (
    DEFAULT_BOOTSTRAP,
    DELETED,
    MAX_KEYED_RECORDS,
    SECTIONS,
    DeadLetters,
    Decode,
    Pipeline,
    Source,
    Table,
    Top,
    Transform,
)
from tidelog.pipeline.spec.toml_keys import Document, Problem, read_keys, read_section

_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,200}")


class SpecError(Exception):
    """Everything that is wrong with a pipeline file."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("\n".join(problem.explain() for problem in problems))
        self.problems = problems


def load(file: str, *, bootstrap: str | None = None, fallback: str = DEFAULT_BOOTSTRAP) -> Pipeline:
    """The pipeline of a file. `bootstrap` is used instead of the file's, `fallback` where the file has none."""
    try:
        with open(file, "rb") as stream:
            written = stream.read().decode("utf-8-sig")
    except FileNotFoundError:
        raise SpecError([Problem(file, "there is no such file", "give the path of a pipeline file (TOML)")]) from None
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(
            [Problem(file, f"cannot be read: {error}", "give the path of a pipeline file (TOML)")]
        ) from None
    return parse(written, file, bootstrap=bootstrap, fallback=fallback)


def parse(
    written: str, file: str = "pipeline.toml", *, bootstrap: str | None = None, fallback: str = DEFAULT_BOOTSTRAP
) -> Pipeline:
    try:
        tables = tomllib.loads(written)
    except tomllib.TOMLDecodeError as error:
        raise SpecError([Problem(file, f"is not valid TOML: {error}", "see https://toml.io")]) from None
    document = Document(tables, written, file)
    found = _read(document)
    _check(document, found)
    if document.problems:
        raise SpecError(document.problems)
    source: Source = found["source"]
    if bootstrap is not None or "bootstrap" not in tables.get("source", {}):
        found["source"] = replace(source, bootstrap=bootstrap or fallback)
    table: Table = found["table"]
    found["decode"] = replace(found["decode"], metadata=table.metadata)
    if table.keys:
        _change_state(found, tables)
    found["dead_letters"] = DeadLetters(path=found["dead_letters"].path or f"{table.path}_dead_letters")
    found["group"] = replace(found["group"], id=found["group"].id or found["name"])
    return Pipeline(**found, file=os.path.abspath(file))


def _change_state(found: dict[str, Any], tables: Mapping[str, Any]) -> None:
    """What differs where the table has keys."""
    decode, keys = found["decode"], found["table"].keys
    if decode.format != "raw":
        # A transform makes keys of its own, and must be given what tells deletions.
        keys = keys if found["transform"] is None else ()
        found["decode"] = replace(decode, metadata=(*decode.metadata, ("deleted", DELETED)), keys=keys)
    if "max_records_per_batch" not in tables.get("limits", {}):
        found["limits"] = replace(found["limits"], max_records_per_batch=MAX_KEYED_RECORDS)


def _read(document: Document) -> dict[str, Any]:
    tables = document.tables
    sections = {name for name, value in tables.items() if isinstance(value, dict)}
    document.unknown("", sorted(sections - SECTIONS.keys()), SECTIONS, "section")
    top = {name: value for name, value in tables.items() if name not in sections and name not in SECTIONS}
    named = read_keys(document, "", top, Top)
    found: dict[str, Any] = {"name": named.name if named else None}
    for section, kind in SECTIONS.items():
        given = {"directory": document.directory} if kind is Transform else None
        absent = kind is Transform and section not in tables
        found[section] = None if absent else read_section(document, section, kind, given)
    return found


# --- what must fit together ---------------------------------------------------------------------------


def _check(document: Document, found: Mapping[str, Any]) -> None:
    name = found["name"]
    if name is not None and not _NAME.fullmatch(name):
        document.wrong("", "name", f"{name!r} is no name for a pipeline", "use letters, digits, '.', '_' and '-'")
    source, decode, transform = found["source"], found["decode"], found["transform"]
    if source is not None and bool(source.topics) == (source.topic_pattern is not None):
        message = "both topics and topic_pattern are given" if source.topics else "no topics are given"
        document.wrong("source", "topics", message, 'write topics = ["orders"] or topic_pattern = "orders-.*"')
    if decode is not None:
        _check_decode(document, decode)
    if transform is not None:
        given = [k for k in ("sql", "sql_file", "python") if getattr(transform, k) is not None]
        if len(given) != 1:
            message = f"{' and '.join(given)} are given" if given else "it says nothing"
            document.wrong("transform", "", message, "write one of sql, sql_file and python")
        elif transform.python is not None and not re.fullmatch(r"[\w.]+:\w+", transform.python):
            hint = 'write module:function, such as "shop.clean:orders"'
            document.wrong("transform", "python", f"{transform.python!r} names no function", hint)
    trigger = document.tables.get("trigger", {})
    if isinstance(trigger, dict) and trigger.get("once") is True and "interval" in trigger:
        document.wrong("trigger", "once", "both once and interval are given", "keep one of the two")
    table, dead = found["table"], found["dead_letters"]
    if table is not None:
        _check_keys(document, table)
    if table is not None and dead is not None and dead.path:
        hint = "give the dead letters a directory of their own"
        if dead.path == table.path:
            document.wrong("dead_letters", "path", "is the table's own path", hint)
        elif dead.path.startswith(f"{table.path}/") or table.path.startswith(f"{dead.path}/"):
            # Each would take the other's files for leftovers of its own.
            document.wrong("dead_letters", "path", f"and the table's path, {table.path}, lie one in the other", hint)


def _check_keys(document: Document, table: Table) -> None:
    for name in ("order_by", "deletes"):
        if getattr(table, name) is not None and not table.keys:
            document.wrong("table", name, "goes with keys", 'write keys = ["_key"] as well, or leave it out')
    if table.keys and table.fsync:
        hint = "leave fsync out: a file that a loss of power took is noticed, and the table built again by a replay"
        document.wrong(
            "table", "fsync", "cannot be had with keys: rows are merged into files that are not forced", hint
        )


def _check_decode(document: Document, decode: Decode) -> None:
    given = [k for k in ("schema", "schema_file") if getattr(decode, k) is not None]
    given += ["infer"] if decode.infer else []
    hints = {
        "json": 'write schema = "id BIGINT, amount DOUBLE", schema_file = "…" or infer = true',
        "avro": 'write schema = \'{"type": "record", …}\' or schema_file = "order.avsc"',
        "protobuf": 'write schema_file = "order.proto" and message = "shop.Order"',
    }
    hint = hints.get(decode.format)
    if hint is None and given:
        message = f"{given[0]} does not go with {decode.format}, which has fixed columns"
        document.wrong("decode", given[0], message, "leave it out")
    elif hint is not None and len(given) != 1:
        message = f"both {given[0]} and {given[1]} are given" if given else f"{decode.format} needs a schema"
        document.wrong("decode", given[0] if given else "format", message, hint)
    elif decode.infer and decode.format != "json":
        document.wrong("decode", "infer", f"the columns of {decode.format} cannot be inferred", hint)
    if (decode.message is not None) != (decode.format == "protobuf"):
        message = "is missing" if decode.message is None else f"does not go with {decode.format}"
        document.wrong("decode", "message", message, hints["protobuf"] if decode.message is None else "leave it out")
    if decode.schema_file is not None and not os.path.exists(decode.schema_file):
        document.wrong(
            "decode", "schema_file", f"there is no file {decode.schema_file}", "paths are relative to the file"
        )
