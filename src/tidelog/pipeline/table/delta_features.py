"""Which features of Delta a table may have, for each thing that is done with it here.

A table that others write to may get features that ask something of every writer: to check constraints, to store
columns under other names, to keep rows out of sight that are still in the files. Who does not know such a feature and
writes all the same damages the table. So its protocol, its properties and its columns are looked at whenever it is
opened and before every commit, and what is not supported is refused by name, before anything is written.

A feature that a table may use and does not is no reason to refuse it: a protocol that allows constraints has none yet.
A feature that is not in this list is refused wherever it could matter: a reader's everywhere, a writer's for all but
reading.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any, Final

import pyarrow as pa
from deltalake import DeltaTable

from tidelog.pipeline.errors import Unsupported


class Door(StrEnum):
    """What is done with a table; the value is how it is said."""

    RUN = "run"
    REPLAY = "replay"
    REPLAY_PART = "replay of a part"
    VACUUM = "vacuum"
    COMPACT = "compaction"
    LOAD = "load"
    APPEND = "sink, append"
    COMPLETE = "sink, complete"
    UPSERT = "sink, upsert"


READING: Final = frozenset({Door.LOAD, Door.VACUUM})
WRITING: Final = frozenset(Door) - READING
#: all that gives the table rows; compaction leaves them as they are
ADDING: Final = WRITING - {Door.COMPACT}
_REMOVING: Final = frozenset({Door.REPLAY, Door.REPLAY_PART, Door.COMPLETE, Door.UPSERT})
#: the newest versions of Delta's protocol that say what a table needs by the names of features
_READER, _WRITER = 3, 7


class Look:
    """What a version of a table says of itself."""

    def __init__(self, delta: DeltaTable) -> None:
        protocol = delta.protocol()
        self._delta = delta
        self.versions = (int(protocol.min_reader_version), int(protocol.min_writer_version))
        self.reader = frozenset(protocol.reader_features or ())
        self.writer = frozenset(protocol.writer_features or ())
        self.properties: Mapping[str, str] = delta.metadata().configuration

    @cached_property
    def columns(self) -> list[Mapping[str, Any]]:
        """The table's columns, and all that is inside them."""
        return list(_fields(json.loads(self._delta.schema().to_json())))

    @property
    def requires_values(self) -> bool:
        return any(not field.nullable for field in self._delta.schema().fields)

    @property
    def names(self) -> frozenset[str]:
        return self.reader | self.writer

    def says(self, name: str) -> bool:
        return self.properties.get(name, "").lower() == "true"

    def described(self, prefix: str) -> bool:
        """Whether a column has such a word in its description."""
        return any(key.startswith(prefix) for column in self.columns for key in column.get("metadata") or {})

    @property
    def hides_rows(self) -> bool:
        return "deletionVectors" in self.names and any(
            batch.num_rows for batch in pa.RecordBatchReader.from_stream(self._delta.deletion_vectors())
        )


def _fields(kind: Any) -> Iterator[Mapping[str, Any]]:
    if not isinstance(kind, dict):
        return
    for field in kind.get("fields", ()):
        yield field
        yield from _fields(field["type"])
    for inner in ("elementType", "keyType", "valueType"):
        yield from _fields(kind.get(inner))


@dataclass(frozen=True, slots=True)
class Feature:
    #: for people; names of the protocol follow in brackets
    title: str
    refused: frozenset[Door]
    in_use: Callable[[Look], bool]
    #: what to do about it
    hint: str
    #: its names in a protocol
    names: tuple[str, ...] = ()


def _listed(*names: str) -> Callable[[Look], bool]:
    return lambda look: not look.names.isdisjoint(names)


def _needs_protocol(title: str, refused: frozenset[Door], *names: str) -> Feature:
    """One that asks something of every writer as soon as the protocol has it."""
    hint = f"drop it (ALTER TABLE … DROP FEATURE {names[0]}), or use a table without it"
    return Feature(f"{title} ({names[0]})", refused, _listed(*names), hint, names)


_RULES: Final = "drop them, or write to another table; rows are not checked against them here"

FEATURES: Final = (
    Feature(
        "deletion vectors (deletionVectors)",
        frozenset({Door.REPLAY_PART}),
        lambda look: look.hides_rows,
        "rewrite the files that have them (REORG TABLE … APPLY (PURGE)), or replay the whole table",
        ("deletionVectors",),
    ),
    Feature(
        "column mapping (columnMapping)",
        WRITING | {Door.LOAD},
        lambda look: look.properties.get("delta.columnMapping.mode", "none").lower() != "none",
        "rewrite the table without it (ALTER TABLE … DROP FEATURE columnMapping), or use another one",
        ("columnMapping",),
    ),
    # A runner goes by the schema of its rows: see `columns.py`.
    Feature(
        "NOT NULL columns",
        frozenset({Door.REPLAY, Door.APPEND, Door.COMPLETE, Door.UPSERT}),
        lambda look: look.requires_values,
        "let them be null (ALTER TABLE … ALTER COLUMN … DROP NOT NULL); a replay of a part keeps them",
    ),
    Feature(
        "CHECK constraints (checkConstraints)",
        ADDING,
        lambda look: any(name.startswith("delta.constraints.") for name in look.properties),
        _RULES,
        ("checkConstraints",),
    ),
    Feature(
        "column invariants (invariants)",
        ADDING,
        lambda look: look.described("delta.invariants"),
        _RULES,
        ("invariants",),
    ),
    Feature(
        "generated columns (generatedColumns)",
        ADDING,
        lambda look: look.described("delta.generationExpression"),
        "write to a table without them: their values are not computed here",
        ("generatedColumns",),
    ),
    Feature(
        "identity columns (identityColumns)",
        WRITING,
        lambda look: "identityColumns" in look.names or look.described("delta.identity."),
        "write to a table without them: their values are not assigned here",
        ("identityColumns",),
    ),
    Feature(
        "append only (delta.appendOnly)",
        _REMOVING,
        lambda look: look.says("delta.appendOnly"),
        "set delta.appendOnly to false while rows are replaced",
        ("appendOnly",),
    ),
    Feature(
        "change data feed (delta.enableChangeDataFeed)",
        frozenset({Door.REPLAY_PART}),
        lambda look: look.says("delta.enableChangeDataFeed"),
        "replay the whole table, or set delta.enableChangeDataFeed to false: "
        "rows that stay would be told as deleted and inserted",
        ("changeDataFeed",),
    ),
    _needs_protocol("row tracking", WRITING, "rowTracking"),
    _needs_protocol("in-commit timestamps", WRITING, "inCommitTimestamp", "inCommitTimestamp-preview"),
    _needs_protocol("liquid clustering", WRITING, "clustering"),
    _needs_protocol("domain metadata", WRITING, "domainMetadata"),
    _needs_protocol("column defaults", WRITING, "allowColumnDefaults"),
    _needs_protocol("type widening", WRITING | {Door.LOAD}, "typeWidening", "typeWidening-preview"),
    _needs_protocol("vacuum protocol check", WRITING, "vacuumProtocolCheck"),
    # What makes an Iceberg table of it lies beside the rows, and no entry of the log names it.
    _needs_protocol(
        "Iceberg compatibility", WRITING | {Door.VACUUM}, "icebergCompatV1", "icebergCompatV2", "icebergCompatV3"
    ),
    Feature(
        "variant columns (variantType)",
        WRITING | {Door.LOAD},
        lambda look: any(column["type"] == "variant" for column in look.columns),
        "use a table without them",
        ("variantType", "variantType-preview"),
    ),
    Feature(
        "checkpoints of the second form (v2Checkpoint)",
        frozenset(),
        _listed("v2Checkpoint"),
        "",
        ("v2Checkpoint",),
    ),
    Feature("timestamps without a zone (timestampNtz)", frozenset(), _listed("timestampNtz"), "", ("timestampNtz",)),
    Feature(
        "an end to transaction entries (delta.setTransactionRetentionDuration)",
        ADDING,
        lambda look: "delta.setTransactionRetentionDuration" in look.properties,
        "unset it (ALTER TABLE … UNSET TBLPROPERTIES): with it the table forgets how far it is with what was quiet for "
        "a while, and that would be written a second time",
    ),
)
_KNOWN: Final = frozenset(name for feature in FEATURES for name in feature.names)


def refused_at(look: Look, door: Door) -> list[tuple[str, str]]:
    """What the table uses that is not supported there: its name, and what to do about it."""
    found = [(each.title, each.hint) for each in FEATURES if door in each.refused and each.in_use(look)]
    strange = (look.reader if door is Door.LOAD else look.names) - _KNOWN
    found += [(name, "use a table without it: this version of Tidelog does not know it") for name in sorted(strange)]
    reader, writer = look.versions
    if reader > _READER or (writer > _WRITER and door is not Door.LOAD):
        found.append((f"version {reader}, {writer} of Delta's protocol", "use a newer version of Tidelog"))
    return found


def check(delta: DeltaTable, path: str, door: Door) -> None:
    """Unsupported where the table, at this version, has a feature that is not supported there."""
    found = refused_at(Look(delta), door)
    if found:
        titles = ", ".join(title for title, _ in found)
        raise Unsupported(
            f"{path} has a feature of Delta that is not supported ({door}): {titles}",
            "; ".join(hint for _, hint in found),
        )
