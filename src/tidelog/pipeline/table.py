"""A Delta table that knows how far a pipeline has come: rows and offsets in one commit.

Every commit of a pipeline is one entry of the table's log. Beside the files it has transaction entries:

    <name>/runner                   the epoch of the runner that committed
    <name>/<topic>/<partition>      the next offset: everything below it is in the table, each record once
    <name>/<topic>/<partition>/start    the offset that the partition began at, set once
    <name>/<topic>/id               which topic that is: another one may have its name some day

What is no number is a property of the table:

    tidelog.<name>.pin              the pinned schema
    tidelog.<name>.topics           every topic that was ever begun, whether or not it is still there
    tidelog.<name>.adopted          that the pipeline was let into a table that others had made

Delta refuses a commit whose snapshot is older than another commit with the same entry. Each of ours has the runner's,
so that of two runners the one that read the table first cannot commit any more once the other has taken over. Delta
accepts a lower version of an entry; this module does not: an offset only grows, unless a replay says otherwise.

A crash before the log entry leaves files that no reader sees; after it, everything is in the table. There is no third
case, and no second place that could disagree. A commit whose answer was lost is looked up: if the table has this
runner's epoch and the batch's offsets, it happened.

Reading a topic again from another offset, or two runners at once, therefore never writes a record twice. Adding a
column is a commit of its own just before the batch's: a crash in between leaves a column of nulls.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count, takewhile
from typing import Any, Final

import pyarrow as pa
from deltalake import DeltaTable, Schema, TableFeatures
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, CommitProperties, RemoveAction, Transaction

from tidelog.pipeline import places
from tidelog.pipeline.errors import Fenced, Foreign, PipelineError
from tidelog.pipeline.parquet_files import WrittenFile, partition_text
from tidelog.pipeline.plan import TopicPartition

#: how often a commit is tried again that others, who are no runners of the pipeline, were faster than
ATTEMPTS: Final = 10
#: what the entry of a commit says of it, for people and for `status`
INFO: Final = "tidelog"
#: Delta's name for what a table needs that has timestamps without a zone
NTZ: Final = "timestampNtz"
_ADOPTED: Final = re.compile(rf"{INFO}\.(.+)\.adopted")


@dataclass(frozen=True, slots=True)
class TableFile:
    """A file of the current version."""

    path: str
    size_bytes: int
    rows: int
    partition_values: Mapping[str, str | None]
    #: least and greatest value by column, as far as they are known
    least: Mapping[str, Any]
    greatest: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What one commit changes. `offsets` are (before, after) by partition; before is None where there was none."""

    files: Sequence[WrittenFile] = ()
    offsets: Mapping[TopicPartition, tuple[int | None, int]] = field(default_factory=dict)
    removed: Sequence[TableFile] = ()
    #: entries of the table's own, such as the start of a partition
    marks: Mapping[str, int] = field(default_factory=dict)
    #: what the log entry says of it
    info: Mapping[str, Any] = field(default_factory=dict)
    #: whether an offset may be lower than before: rows go out as well
    goes_back: bool = False
    #: set for a rebuild: every other file goes, and the columns become these
    rebuild: pa.Schema | None = None


class PipelineTable:
    """The table of a pipeline at one version; `refresh` moves on to the newest."""

    def __init__(self, delta: DeltaTable, path: str, name: str, fsync: bool = False) -> None:
        self.path = path
        #: this pipeline in the names of files
        self.writer = places.writer_of(name)
        self._delta = delta
        self._name = name
        self._fsync = fsync
        #: entries that were looked up, and the version that they are of
        self._marks: dict[str, int | None] = {}
        self._marked = -1

    # --- opening ------------------------------------------------------------------------------------

    @classmethod
    def open(cls, path: str, name: str, fsync: bool = False) -> PipelineTable | None:
        """The table as it is now; None where there is none. PipelineError where there is one that cannot be read."""
        try:
            return cls(DeltaTable(path), path, name, fsync)
        except TableNotFoundError:
            return None
        except DeltaError as error:
            if places.is_local(path) and os.path.isfile(path):
                raise _is_file(path) from None
            raise PipelineError(
                f"{path} cannot be read as a Delta table: {_first_line(error)}",
                "see whether its _delta_log is whole, and whether other writers gave it features that this version of "
                "deltalake lacks; or write another path",
            ) from error
        except OSError as error:
            raise places.explained(path, error) from error

    @classmethod
    def create(
        cls,
        path: str,
        name: str,
        schema: pa.Schema,
        partition_by: Sequence[str],
        fsync: bool = False,
        pin: str | None = None,
    ) -> PipelineTable:
        """A new, empty table. Where somebody else has just made it, that one."""
        check_empty(path)
        try:
            DeltaTable.create(
                path,
                delta_schema(schema),
                partition_by=list(partition_by),
                description=f"written by the Tidelog pipeline {name}",
                configuration=None if pin is None else {f"{INFO}.{name}.pin": pin},
                raise_if_key_not_exists=False,
                # From its first moment on it is this pipeline's.
                commit_properties=CommitProperties(app_transactions=[Transaction(f"{name}/runner", 0)]),
            )
        except DeltaError as error:
            if not DeltaTable.is_deltatable(path):
                raise PipelineError(
                    f"no table can be made at {path}: {_first_line(error)}", "write a path that can be written to"
                ) from error
        except OSError as error:
            raise places.explained(path, error) from error
        return cls(DeltaTable(path), path, name, fsync)

    def refresh(self) -> None:
        self._delta.update_incremental()

    # --- what the table says ------------------------------------------------------------------------

    @property
    def version(self) -> int:
        return int(self._delta.version())

    @property
    def epoch(self) -> int | None:
        """Of the runner that took over last, 0 before the first; None where the table is not this pipeline's."""
        return self.mark("runner")

    def mark(self, what: str) -> int | None:
        # A change of the table's metadata moves on by itself.
        if self._marked != self.version:
            self._marks, self._marked = {}, self.version
        if what not in self._marks:
            found = self._delta.transaction_version(f"{self._name}/{what}")
            self._marks[what] = None if found is None else int(found)
        return self._marks[what]

    def offset(self, at: TopicPartition) -> int | None:
        """The next offset of a partition; None where the table does not know it."""
        return self.mark(f"{at[0]}/{at[1]}")

    def start(self, at: TopicPartition) -> int | None:
        return self.mark(start_mark(at))

    @property
    def topics(self) -> frozenset[str]:
        """All that were ever begun."""
        return frozenset(json.loads(self._property("topics") or "[]"))

    def partitions(self) -> list[TopicPartition]:
        """All that were ever begun. Those of a topic are numbered from 0 on, and it never loses one."""
        numbered = (((topic, n) for n in count()) for topic in sorted(self.topics))
        return [at for one in numbered for at in takewhile(lambda at: self.offset(at) is not None, one)]

    @property
    def adopters(self) -> list[str]:
        """The pipelines that were let into a table that others had made."""
        found = (_ADOPTED.fullmatch(key) for key in self._delta.metadata().configuration)
        return sorted(match[1] for match in found if match is not None)

    def _property(self, what: str) -> str | None:
        kept = self._delta.metadata().configuration.get(f"{INFO}.{self._name}.{what}")
        return None if kept is None else str(kept)

    @property
    def schema(self) -> pa.Schema:
        return pa.schema(self._delta.schema().to_arrow())

    @property
    def partition_by(self) -> tuple[str, ...]:
        return tuple(self._delta.metadata().partition_columns)

    def last_commit(self) -> dict[str, Any]:
        """The newest log entry: `timestamp`, `operation`, and under `tidelog` what a batch says of itself."""
        entries = self._delta.history(1)
        found: dict[str, Any] = dict(entries[0]) if entries else {}
        if INFO in found:
            found[INFO] = json.loads(found[INFO])
        return found

    def files(self) -> list[TableFile]:
        rows = pa.table(self._delta.get_add_actions(flatten=True)).to_pylist()
        return [
            TableFile(
                row["path"],
                row["size_bytes"],
                row.get("num_records") or 0,
                {name: partition_text(row.get(f"partition.{name}")) for name in self.partition_by},
                _values(row, "min."),
                _values(row, "max."),
            )
            for row in rows
        ]

    # --- taking over --------------------------------------------------------------------------------

    def take_over(self, marks: Mapping[str, int] | None = None, at_least: int = 1) -> int:
        """Fences every other runner. The new epoch, which nobody else has. `marks` are set where there are none yet."""
        for _ in range(ATTEMPTS):
            new = max((self.epoch or 0) + 1, at_least)
            # Looked up each time: another new runner may have begun the same partitions, and gone on from there.
            unset = {what: version for what, version in (marks or {}).items() if self.mark(what) is None}
            try:
                self._write([], "append", {"runner": new, **unset}, {"what": "a runner takes over"})
                return new
            except DeltaError:
                # Somebody committed in between, perhaps with this very epoch: the newest runner takes the next one.
                self.refresh()
        raise PipelineError(f"{self.path}: others commit faster than a runner can take over", "try again")

    def follow(self, epoch: int) -> None:
        """Fences older runners here too, with an epoch that was taken over elsewhere."""
        for _ in range(ATTEMPTS):
            if self.epoch == epoch:
                return
            if (self.epoch or 0) > epoch:
                raise self._fenced(epoch)
            try:
                self._write([], "append", {"runner": epoch}, {"what": "a runner takes over"})
                return
            except DeltaError:
                self.refresh()
        raise PipelineError(f"{self.path}: others commit faster than a runner can take over", "try again")

    def check_epoch(self, epoch: int) -> None:
        if self.epoch != epoch:
            raise self._fenced(epoch)

    def _fenced(self, epoch: int) -> Fenced:
        return Fenced(
            f"another runner of pipeline {self._name} has taken over {self.path} (its epoch is {self.epoch}, "
            f"this one's {epoch}); this one has stopped and committed nothing more",
            "keep one runner per pipeline; a second pipeline needs a name and a table of its own",
        )

    # --- committing ---------------------------------------------------------------------------------

    def commit(self, epoch: int, batch: Batch) -> None:
        """Files and offsets, all or nothing. Fenced where another runner has taken over."""
        marks = {f"{t}/{p}": after for (t, p), (_, after) in batch.offsets.items()} | dict(batch.marks)
        actions: list[Any] = [add_action(file) for file in batch.files]
        actions += [_remove(file) for file in batch.removed]
        self._check(epoch, batch)
        if batch.rebuild is not None:
            self._allow_types(epoch, batch.rebuild)
        for attempt in range(ATTEMPTS):
            try:
                mode = "append" if batch.rebuild is None else "overwrite"
                self._write(actions, mode, {"runner": epoch, **marks}, batch.info, batch.rebuild)
                return
            except DeltaError as error:
                self.refresh()
                self.check_epoch(epoch)
                if self._has(marks):
                    # The commit happened; what failed came after it, such as a checkpoint of the log.
                    return
                if attempt + 1 == ATTEMPTS or batch.removed or batch.rebuild is not None:
                    raise PipelineError(
                        f"{self.path}: the commit failed: {error}", "see whether somebody else writes to the table"
                    ) from error
                self._check(epoch, batch)

    def _has(self, marks: Mapping[str, int]) -> bool:
        return all(self.mark(what) == version for what, version in marks.items())

    def _check(self, epoch: int, batch: Batch) -> None:
        self.check_epoch(epoch)
        for at, (before, after) in batch.offsets.items():
            there = self.offset(at)
            if there != before or (before is not None and after < before and not batch.goes_back):
                raise PipelineError(
                    f"{self.path} has {at[0]}-{at[1]} up to offset {there}, and a batch from {before} to {after} "
                    "does not continue that",
                    "this must not happen: the table was changed behind the pipeline's back; look at its history",
                )

    def _write(
        self,
        actions: list[Any],
        mode: str,
        marks: Mapping[str, int],
        info: Mapping[str, Any],
        schema: pa.Schema | None = None,
    ) -> None:
        self._delta.create_write_transaction(
            actions,
            mode,
            self._delta.schema() if schema is None else delta_schema(schema),
            list(self.partition_by),
            commit_properties=self._properties(marks, info),
        )
        # What is known afterwards is looked up anew: another runner may have taken over right behind this commit, and
        # who took its own entries for the newest would go on from a snapshot that no longer conflicts with that.
        self.refresh()
        if self._fsync and places.is_local(self.path):
            _sync_log(self.path, self.version)

    def _properties(self, marks: Mapping[str, int], info: Mapping[str, Any]) -> CommitProperties:
        now_ms = int(time.time() * 1000)
        return CommitProperties(
            app_transactions=[Transaction(f"{self._name}/{what}", v, now_ms) for what, v in marks.items()],
            custom_metadata={INFO: json.dumps({"pipeline": self._name, **info})},
            # Trying again is ours: between two attempts it is checked who else has committed.
            max_commit_retries=0,
        )

    # --- columns ------------------------------------------------------------------------------------

    def missing(self, rows: pa.Schema) -> list[pa.Field]:
        """The columns of these rows that the table lacks, in whole or in part; PipelineError where types differ."""
        known = {column.name: column.type for column in self.schema}
        return [
            column
            for column in rows
            if column.name not in known or not _fits(column.type, known[column.name], self.path, column.name)
        ]

    def add_columns(self, epoch: int, fields: Iterable[pa.Field]) -> None:
        """Columns that are null in every row so far."""
        columns = delta_schema(pa.schema(list(fields))).fields

        def change() -> None:
            properties = self._properties({"runner": epoch}, {"what": "columns are added"})
            self._delta.alter.add_columns(columns, commit_properties=properties)

        self._change(epoch, change)

    def _allow_types(self, epoch: int, schema: pa.Schema) -> None:
        """Adds what new types need to the table's protocol. An overwrite does not; nobody can open the table then."""
        if NTZ in (self._delta.protocol().writer_features or ()) or not any(map(_has_zoneless, schema.types)):
            return

        def change() -> None:
            self._delta.alter.add_feature(
                TableFeatures.TimestampWithoutTimezone,
                allow_protocol_versions_increase=True,
                commit_properties=self._properties({"runner": epoch}, {"what": "times without a zone are allowed"}),
            )

        self._change(epoch, change)

    # --- what this pipeline keeps with the table, whole and fenced like a commit --------------------

    @property
    def pin(self) -> str | None:
        """Its pinned schema."""
        return self._property("pin")

    def set_pin(self, epoch: int, pin: str) -> None:
        self._change(epoch, lambda: self._set_property(epoch, "pin", pin, "the schema is pinned"))

    def remember_topics(self, epoch: int, topics: Collection[str]) -> None:
        """Before anything of them is read."""
        known = self.topics
        if not known.issuperset(topics):
            value = json.dumps(sorted(known.union(topics)))
            self._change(epoch, lambda: self._set_property(epoch, "topics", value, "topics begin"))

    def adopt(self) -> None:
        """Lets this pipeline into a table that others made, for good."""
        for _ in range(ATTEMPTS):
            with suppress(CommitFailedError):
                self._set_property(0, "adopted", "true", "the table is adopted")
            self.refresh()
            if self.epoch is not None:
                return
        raise PipelineError(f"{self.path}: others commit faster than it can be adopted", "try again")

    def _set_property(self, epoch: int, what: str, value: str, why: str) -> None:
        self._delta.alter.set_table_properties(
            {f"{INFO}.{self._name}.{what}": value},
            raise_if_not_exists=False,
            commit_properties=self._properties({"runner": epoch}, {"what": why}),
        )

    def _change(self, epoch: int, change: Callable[[], None]) -> None:
        """A change of the table's metadata, which may be done twice without harm."""
        for _ in range(ATTEMPTS):
            self.check_epoch(epoch)
            try:
                change()
                self.refresh()
                return
            except CommitFailedError:
                self.refresh()
        raise PipelineError(f"{self.path}: others commit faster than it can be changed", "try again")

    # --- keeping house ------------------------------------------------------------------------------

    def compact(self, target_bytes: int) -> tuple[int, int]:
        """Joins small files: (files added, files removed). Rows and offsets stay as they are."""
        done = self._delta.optimize.compact(target_size=target_bytes)
        self.refresh()
        return int(done["numFilesAdded"]), int(done["numFilesRemoved"])

    def unreferenced(self, older_than_hours: int) -> list[str]:
        """Files that no version needs that is younger than so many hours, and that are themselves older."""
        found = self._delta.vacuum(
            retention_hours=older_than_hours, dry_run=True, enforce_retention_duration=False, full=True
        )
        return [str(path) for path in found]


def start_mark(at: TopicPartition) -> str:
    return f"{at[0]}/{at[1]}/start"


def id_mark(topic: str) -> str:
    return f"{topic}/id"


def delta_schema(schema: pa.Schema) -> Schema:
    """Every column of a table may be null: later files may lack it."""
    return Schema.from_arrow(pa.schema([field.with_nullable(True).remove_metadata() for field in schema]))


def foreign(table: PipelineTable, name: str, section: str = "table") -> Foreign:
    """The table exists, and nothing in it is this pipeline's."""
    written = (table.last_commit().get(INFO) or {}).get("pipeline")
    whose = f"pipeline {written} wrote it" if written else "somebody else wrote it"
    hints = [f"write another path under [{section}]"]
    if section == "table":
        hints.append("write adopt = true there, to add this pipeline's rows to that table")
    if written:
        hints.append(f'if the pipeline was renamed, call it "{written}" again')
    return Foreign(
        f"{table.path} is a Delta table that pipeline {name} never wrote to: {whose} (version {table.version})",
        "; or ".join(hints),
    )


def check_empty(path: str) -> None:
    """Foreign where something else is in the way of a new table."""
    if places.is_local(path) and os.path.isdir(path):
        found = sorted(name for name in os.listdir(path) if name not in (places.OWN, "_delta_log"))
        if found:
            raise Foreign(
                f"{path} is no Delta table, and holds other files: {', '.join(found[:3])}{' …' if found[3:] else ''}",
                "write another path under [table], or empty the directory",
            )
    elif places.is_local(path) and os.path.exists(path):
        raise _is_file(path)


def _is_file(path: str) -> Foreign:
    return Foreign(f"{path} is a file", "write the path of a directory under [table]")


def _first_line(error: DeltaError) -> str:
    """A trace of the library's own may follow it."""
    return str(error).partition("\n")[0]


def add_action(file: WrittenFile) -> AddAction:
    return AddAction(
        path=file.path,
        size=file.size_bytes,
        partition_values=dict(file.partition_values),
        modification_time=int(time.time() * 1000),
        data_change=True,
        stats=file.stats,
    )


def _remove(file: TableFile) -> RemoveAction:
    return RemoveAction(file.path, True, int(time.time() * 1000), file.size_bytes, dict(file.partition_values))


def _values(row: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {name.removeprefix(prefix): value for name, value in row.items() if name.startswith(prefix)}


def _fits(rows: pa.DataType, table: pa.DataType, path: str, name: str) -> bool:
    """Whether the table's type has all of the rows' type; False where fields are missing inside a struct."""
    if pa.types.is_struct(rows) and pa.types.is_struct(table):
        known = {field.name: field.type for field in table}
        return all(f.name in known and _fits(f.type, known[f.name], path, f"{name}.{f.name}") for f in rows)
    if pa.types.is_map(rows) and pa.types.is_map(table):
        keys = _fits(rows.key_type, table.key_type, path, f"{name}.key")
        return _fits(rows.item_type, table.item_type, path, f"{name}.value") and keys
    if pa.types.is_list(rows) and pa.types.is_list(table) and not pa.types.is_map(rows):
        return _fits(rows.value_type, table.value_type, path, f"{name}[]")
    if not rows.equals(table):
        raise PipelineError(
            f"column {name} of {path} is {table}, and the rows have it as {rows}",
            "give the rows the table's type, or the column another name; "
            "`tidelog pipeline replay` rebuilds the table with new types",
        )
    return True


def _has_zoneless(kind: pa.DataType) -> bool:
    """Whether a timestamp without a zone is in the type, at any depth."""
    if pa.types.is_timestamp(kind):
        return kind.tz is None
    return any(_has_zoneless(kind.field(index).type) for index in range(kind.num_fields))


def _sync_log(path: str, version: int) -> None:
    """Forces the newest log entry, and its name, to disk."""
    log = os.path.join(path, "_delta_log")
    for name in (os.path.join(log, f"{version:020d}.json"), log):
        descriptor = os.open(name, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
