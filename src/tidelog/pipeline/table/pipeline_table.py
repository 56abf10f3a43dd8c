"""A Delta table that knows how far a pipeline has come: rows and offsets in one commit.

Every commit of a pipeline is one entry of the table's log. Beside the files it has transaction entries:

    <name>/runner                   the epoch of the runner that committed
    <name>/<topic>/<partition>      the next offset: everything below it is in the table, each record once
    <name>/<topic>/<partition>/start    the offset that the partition began at, set once
    <name>/<topic>/id               which topic that is: another one may have its name some day
    <name>/deleted                  what was deleted from a table with keys: see `graves.py`
    <name>/version                  the version that the commit makes: see `restoring.py`

What is no number is a property of the table:

    tidelog.<name>.pin              the pinned schema
    tidelog.<name>.topics           every topic that was ever begun, whether or not it is still there, and with how many
                                    partitions: an entry that is missing has got lost
    tidelog.<name>.adopted          that the pipeline was let into a table that others had made

Delta refuses a commit whose snapshot is older than another commit with the same entry. Each of ours has the runner's,
so that of two runners the one that read the table first cannot commit any more once the other has taken over. Delta
accepts a lower version of an entry; this module does not: an offset only grows, unless a replay says otherwise.

A crash before the log entry leaves files that no reader sees; after it, everything is in the table. There is no third
case, and no second place that could disagree. A commit whose answer was lost is looked up: if the table has this
runner's epoch and the batch's offsets, it happened.

Every commit has the entries of all partitions, so that none looks old to whoever cleans a log up.

Reading a topic again from another offset, or two runners at once, therefore never writes a record twice. Adding a
column is a commit of its own just before the batch's: a crash in between leaves a column of nulls.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, takewhile
from typing import Any, Final

import pyarrow as pa
from deltalake import DeltaTable, TableFeatures
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, CommitProperties, Transaction

from tidelog.pipeline.errors import Fenced, Foreign, PipelineError, Restored
from tidelog.pipeline.offsets import TopicPartition
from tidelog.pipeline.spec import OnRestore
from tidelog.pipeline.table import columns, delta_features, restoring, storage
from tidelog.pipeline.table.columns import delta_schema, first_line
from tidelog.pipeline.table.delta_features import Door
from tidelog.pipeline.table.parquet_files import WrittenFile
from tidelog.pipeline.table.table_files import TableFile, files_of, remove_action

#: how often a commit is tried again that others, who are no runners of the pipeline, were faster than
ATTEMPTS: Final = 10
#: what the entry of a commit says of it, for people and for `status`
INFO: Final = "tidelog"
#: Delta's name for what a table needs that has timestamps without a zone
NTZ: Final = "timestampNtz"
#: the entry of the version that a commit makes
VERSION: Final = "version"
#: the entry of what was deleted from a table with keys
GRAVES: Final = "deleted"
_DELETION_VECTOR: Final = re.compile(r"(^|/)deletion_vector_[0-9a-f-]{36}\.bin$")
#: what a commit says, with entries of its own beside the batch's
Committing = Callable[[Mapping[str, int]], CommitProperties]
#: changes the table with one commit; the entries that this has of its own
Change = Callable[[DeltaTable, Committing], Mapping[str, int]]
_ADOPTED: Final = re.compile(rf"{INFO}\.(.+)\.adopted")


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


def _own_marks(batch: Batch) -> dict[str, int]:
    return {offset_mark(at): after for at, (_, after) in batch.offsets.items()} | dict(batch.marks)


class PipelineTable:
    """The table of a pipeline at one version; `refresh` moves on to the newest."""

    def __init__(self, delta: DeltaTable, path: str, name: str, fsync: bool = False) -> None:
        self.path = path
        #: this pipeline in the names of files
        self.writer = storage.writer_of(name)
        self._delta = delta
        self._name = name
        self._fsync = fsync
        #: entries that were looked up, and the version that they are of
        self._marks: dict[str, int | None] = {}
        self._marked = -1
        #: of the runner that this is, once it has taken over
        self._own: int | None = None
        #: set while all rows are about to be replaced: until then it does not matter whether a RESTORE came before
        self.rebuilds = False

    # --- opening ------------------------------------------------------------------------------------

    @classmethod
    def open(cls, path: str, name: str, fsync: bool = False) -> PipelineTable | None:
        """The table as it is now; None where there is none. PipelineError where there is one that cannot be read."""
        try:
            return cls(DeltaTable(path), path, name, fsync)
        except TableNotFoundError:
            return None
        except DeltaError as error:
            if storage.is_local(path) and os.path.isfile(path):
                raise _is_file(path) from None
            raise PipelineError(
                f"{path} cannot be read as a Delta table: {first_line(error)}",
                "see whether its _delta_log is whole, and whether other writers gave it features that this version of "
                "deltalake lacks; or write another path",
            ) from error
        except OSError as error:
            raise storage.explained(path, error) from error

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
        columns.check_names(schema.names)
        try:
            DeltaTable.create(
                path,
                delta_schema(schema),
                partition_by=list(partition_by),
                description=f"written by the Tidelog pipeline {name}",
                configuration=None if pin is None else {f"{INFO}.{name}.pin": pin},
                raise_if_key_not_exists=False,
                # From its first moment on it is this pipeline's.
                commit_properties=CommitProperties(
                    app_transactions=[Transaction(f"{name}/runner", 0), Transaction(f"{name}/version", 0)]
                ),
            )
        except DeltaError as error:
            if not DeltaTable.is_deltatable(path):
                raise PipelineError(
                    f"no table can be made at {path}: {first_line(error)}", "write a path that can be written to"
                ) from error
        except OSError as error:
            raise storage.explained(path, error) from error
        return cls(DeltaTable(path), path, name, fsync)

    def refresh(self) -> None:
        try:
            self._delta.update_incremental()
        except DeltaError as error:
            raise PipelineError(
                f"{self.path} can no longer be read: {first_line(error)}", "see who else writes to the table, and what"
            ) from error

    def require(self, door: Door) -> None:
        """Unsupported where the table has a feature of Delta that is not supported there."""
        delta_features.check(self._delta, self.path, door)

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
            self._marked = self.version
            runner = self._delta.transaction_version(f"{self._name}/runner")
            # As long as this runner is the newest, all others are as it left them.
            self._marks = self._marks if runner is not None and runner == self._own else {}
            self._marks["runner"] = None if runner is None else int(runner)
            self._marks.pop(VERSION, None)
        if what not in self._marks:
            found = self._delta.transaction_version(f"{self._name}/{what}")
            self._marks[what] = None if found is None else int(found)
        return self._marks[what]

    def offset(self, at: TopicPartition) -> int | None:
        """The next offset of a partition; None where the table does not know it."""
        return self.mark(offset_mark(at))

    def start(self, at: TopicPartition) -> int | None:
        return self.mark(start_mark(at))

    @property
    def topics(self) -> dict[str, int]:
        """All that were ever begun, and how many of their partitions at least."""
        known = json.loads(self._property("topics") or "{}")
        # Earlier versions have kept their names only.
        return known if isinstance(known, dict) else dict.fromkeys(known, 0)

    def lost(self) -> list[TopicPartition]:
        """Partitions that were begun, and of which the table no longer knows how far it is."""
        begun = (TopicPartition(topic, n) for topic, known in self.topics.items() for n in range(known))
        return [at for at in begun if self.offset(at) is None]

    def check_offsets(self) -> None:
        """Restored where offsets have got lost."""
        if lost := self.lost():
            raise restoring.forgotten(self.path, self._name, lost)

    def partitions(self) -> list[TopicPartition]:
        """All that were ever begun. Those of a topic are numbered from 0 on, and it never loses one."""
        numbered = ((TopicPartition(topic, n) for n in count()) for topic in sorted(self.topics))
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
        return files_of(self._delta)

    # --- taking over --------------------------------------------------------------------------------

    def take_over(
        self, marks: Mapping[str, int] | None = None, at_least: int = 1, on_restore: OnRestore = "stop"
    ) -> int:
        """Fences every other runner. The new epoch, which nobody else has. `marks` are set where there are none yet."""
        for _ in range(ATTEMPTS):
            self.require(Door.RUN)
            back = self._back(on_restore)
            new = max((self.epoch or 0) + 1, at_least)
            # Looked up each time: another new runner may have begun the same partitions, and gone on from there.
            unset = {what: version for what, version in (marks or {}).items() if self.mark(what) is None}
            version = self.version
            try:
                self._write([], "append", {"runner": new, **unset, **back}, {"what": "a runner takes over"})
                self._own, self._marked, self._marks = new, -1, {}
                return new
            except DeltaError as error:
                # Somebody committed in between, perhaps with this very epoch: the newest runner takes the next one.
                self._was_overtaken(version, error)
        raise PipelineError(f"{self.path}: others commit faster than a runner can take over", "try again")

    def follow(self, epoch: int, on_restore: OnRestore = "stop") -> None:
        """Fences older runners here too, with an epoch that was taken over elsewhere."""
        for _ in range(ATTEMPTS):
            if self.epoch == epoch:
                return
            if (self.epoch or 0) > epoch:
                raise self._fenced(epoch)
            self.require(Door.RUN)
            if on_restore == "stop":
                self.check_restored()
            version = self.version
            try:
                self._write([], "append", {"runner": epoch}, {"what": "a runner takes over"})
                self._own, self._marked, self._marks = epoch, -1, {}
                return
            except DeltaError as error:
                self._was_overtaken(version, error)
        raise PipelineError(f"{self.path}: others commit faster than a runner can take over", "try again")

    def _was_overtaken(self, version: int, error: DeltaError) -> None:
        """After a commit on top of a version that has failed: PipelineError, unless somebody else was faster."""
        self._marks, self._marked = {}, -1
        self.refresh()
        if self.version == version:
            raise PipelineError(
                f"{self.path}: the commit failed: {first_line(error)}",
                "nobody else was faster: see whether the table's _delta_log is whole and can be written to",
            ) from error

    def check_usable(self, on_restore: OnRestore) -> None:
        """Whether a runner could take it over and go on; nothing is written."""
        self.require(Door.RUN)
        self.check_offsets()
        self._back(on_restore)

    def check_restored(self) -> None:
        """Restored where the rows are no longer those that the offsets are of."""
        if not self.rebuilds:
            restoring.check(self._delta, self.path, self.mark(VERSION))

    @property
    def is_restored(self) -> bool:
        try:
            self.check_restored()
        except Restored:
            return True
        return False

    def _back(self, on_restore: OnRestore) -> dict[str, int]:
        """The entries that are to be what they were, because the rows are."""
        found = None if self.rebuilds else restoring.answer(self._delta, self.path, on_restore, self._last_own)
        if found is None:
            return {}
        last, then = (PipelineTable(delta, self.path, self._name) for delta in found)
        # What was begun since has no rows any more, and begins again.
        begun = {offset_mark(at): last.start(at) or 0 for at in last.partitions()}
        kept = {what: version for what in last._standing() if (version := then.mark(what)) is not None}
        if any(kept.get(what, 0) > (last.mark(what) or 0) for what in begun):
            raise restoring.further(self.path)
        return begun | kept

    def _last_own(self, delta: DeltaTable) -> int | None:
        found = delta.transaction_version(f"{self._name}/{VERSION}")
        return None if found is None else int(found)

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
        own = _own_marks(batch)
        actions: list[Any] = [add_action(file) for file in batch.files]
        actions += [remove_action(file) for file in batch.removed]
        self._check(epoch, batch)
        if batch.rebuild is not None:
            self._allow_types(epoch, batch.rebuild)
        for _ in range(ATTEMPTS):
            version = self.version
            try:
                mode = "append" if batch.rebuild is None else "overwrite"
                marks = {"runner": epoch, **self._standing(), **own}
                self._write(actions, mode, marks, batch.info, batch.rebuild)
                return
            except DeltaError as error:
                self._was_overtaken(version, error)
                self.check_epoch(epoch)
                if self.mark(VERSION) == version + 1:
                    # The commit happened; what failed came after it, such as a checkpoint of the log.
                    return
                if batch.removed or batch.rebuild is not None:
                    raise PipelineError(
                        f"{self.path}: the commit failed: {first_line(error)}",
                        "somebody else has written to the table meanwhile; try again",
                    ) from error
                self._check(epoch, batch)
        raise PipelineError(f"{self.path}: others commit faster than a batch can be", "try again")

    def change(self, epoch: int, batch: Batch, change: Change) -> None:
        """As `commit`, where the files are for `change` to find. It commits, and returns the entries of its own."""
        for _ in range(ATTEMPTS):
            self._check(epoch, batch)
            self.require(Door.UPSERT)
            version = self.version
            try:
                self._change_rows(epoch, batch, change)
                return
            except DeltaError as error:
                self._was_overtaken(version, error)
                self.check_epoch(epoch)
                if self.mark(VERSION) == version + 1:
                    return
        raise PipelineError(f"{self.path}: others commit faster than a batch can be", "try again")

    def _change_rows(
        self, epoch: int, batch: Batch, change: Callable[[DeltaTable, Committing], Mapping[str, int]]
    ) -> None:
        version = self.version
        marks = {"runner": epoch, **self._standing(), **_own_marks(batch)}
        marks |= change(self._delta, lambda own: self._properties({**marks, **own}, batch.info))
        self.refresh()
        self.check_epoch(epoch)
        if self.mark(VERSION) == version + 1:
            self._keep(marks)
        else:
            # It was all the same to the table, and nothing was committed.
            self._check(epoch, batch)
            self._write([], "append", marks, batch.info)

    def _standing(self) -> dict[str, int]:
        """The entries of all partitions, as they are."""
        what = [mark for at in self.partitions() for mark in (offset_mark(at), start_mark(at))]
        what += [id_mark(topic) for topic in self.topics] + [GRAVES]
        return {mark: version for mark in what if (version := self.mark(mark)) is not None}

    def _check(self, epoch: int, batch: Batch) -> None:
        """That the table is still one that the batch can be committed to."""
        self.check_epoch(epoch)
        self.check_restored()
        self.require(Door.REPLAY if batch.rebuild is not None else Door.REPLAY_PART if batch.removed else Door.RUN)
        for at, (before, after) in batch.offsets.items():
            there = self.offset(at)
            if there != before or (before is not None and after < before and not batch.goes_back):
                raise PipelineError(
                    f"{self.path} has {at[0]}-{at[1]} up to offset {there}, and a batch from {before} to {after} "
                    "does not continue that",
                    "this must not happen: the table was changed behind the pipeline's back; look at its history",
                )
        if batch.rebuild is None:
            self._check_files(batch.files)

    def _check_files(self, files: Iterable[WrittenFile]) -> None:
        """Others may have changed the columns since the files were written."""
        for schema in {file.schema for file in files}:
            if lacking := self.missing(schema):
                raise PipelineError(
                    f"{self.path} has lost the columns {', '.join(field.name for field in lacking)} "
                    "since the rows were written",
                    "see who else changes the table; start the pipeline again, which adds them anew",
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
            commit_properties=self._properties(marks, info, schema is not None),
        )
        # What is known afterwards is looked up anew: another runner may have taken over right behind this commit, and
        # who took its own entries for the newest would go on from a snapshot that no longer conflicts with that.
        self.refresh()
        self.rebuilds = self.rebuilds and schema is None
        self._keep(marks)

    def _keep(self, marks: Mapping[str, int]) -> None:
        """What a commit has put into the table need not be looked up."""
        if self._marked >= 0 and marks.get("runner") == self._own:
            self._marks.update(marks)
        if self._fsync and storage.is_local(self.path):
            _sync_log(self.path, self.version)

    def _properties(self, marks: Mapping[str, int], info: Mapping[str, Any], rebuilt: bool = False) -> CommitProperties:
        now_ms = int(time.time() * 1000)
        if not self.rebuilds or rebuilt:
            marks = {**marks, VERSION: self.version + 1}
        return CommitProperties(
            app_transactions=[Transaction(f"{self._name}/{what}", v, now_ms) for what, v in marks.items()],
            custom_metadata={INFO: json.dumps({"pipeline": self._name, **info})},
            # Trying again is ours: between two attempts it is checked who else has committed.
            max_commit_retries=0,
        )

    # --- columns ------------------------------------------------------------------------------------

    def missing(self, rows: pa.Schema) -> list[pa.Field]:
        """The columns of these rows that the table lacks, in whole or in part; PipelineError where types differ."""
        return columns.missing(self.schema, rows, self.path)

    def add_columns(self, epoch: int, fields: Iterable[pa.Field]) -> None:
        """Columns that are null in every row so far."""
        new = delta_schema(pa.schema(list(fields))).fields

        def change() -> None:
            properties = self._properties({"runner": epoch}, {"what": "columns are added"})
            self._delta.alter.add_columns(new, commit_properties=properties)

        self._change(epoch, change)

    def _allow_types(self, epoch: int, schema: pa.Schema) -> None:
        """Adds what new types need to the table's protocol. An overwrite does not; nobody can open the table then."""
        if NTZ in (self._delta.protocol().writer_features or ()) or not any(map(columns.has_zoneless, schema.types)):
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

    def remember_topics(self, epoch: int, partitions: Iterable[TopicPartition]) -> None:
        """Those that have begun, before anything of them is read."""
        known = self.topics
        begun = dict(known)
        for topic, partition in partitions:
            begun[topic] = max(begun.get(topic, 0), partition + 1)
        if begun != known:
            value = json.dumps(begun, sort_keys=True)
            self._change(epoch, lambda: self._set_property(epoch, "topics", value, "topics begin"))

    def adopt(self) -> None:
        """Lets this pipeline into a table that others made, for good."""
        for _ in range(ATTEMPTS):
            self.require(Door.RUN)
            version = self.version
            try:
                self._set_property(0, "adopted", "true", "the table is adopted")
                self.refresh()
            except DeltaError as error:
                self._was_overtaken(version, error)
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
            self.check_restored()
            self.require(Door.RUN)
            version = self.version
            try:
                change()
                self.refresh()
                return
            except DeltaError as error:
                self._was_overtaken(version, error)
        raise PipelineError(f"{self.path}: others commit faster than it can be changed", "try again")

    # --- keeping house ------------------------------------------------------------------------------

    def compact(self, target_bytes: int) -> tuple[int, int]:
        """Joins small files: (files added, files removed). Rows and offsets stay as they are."""
        self.require(Door.COMPACT)
        done = self._delta.optimize.compact(target_size=target_bytes)
        self.refresh()
        return int(done["numFilesAdded"]), int(done["numFilesRemoved"])

    def unreferenced(self, older_than_hours: int) -> list[str]:
        """Files that no version needs that is younger than so many hours, and that are themselves older.

        Deletion vectors are not among them: the library does not know which of them are needed.
        """
        self.require(Door.VACUUM)
        found = self._delta.vacuum(
            retention_hours=older_than_hours, dry_run=True, enforce_retention_duration=False, full=True
        )
        return [str(path) for path in found if not _DELETION_VECTOR.search(str(path))]


def offset_mark(at: TopicPartition) -> str:
    return f"{at[0]}/{at[1]}"


def start_mark(at: TopicPartition) -> str:
    return f"{at[0]}/{at[1]}/start"


def id_mark(topic: str) -> str:
    return f"{topic}/id"


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
    if storage.is_local(path) and os.path.isdir(path):
        found = sorted(name for name in os.listdir(path) if name not in (storage.OWN, "_delta_log"))
        if found:
            raise Foreign(
                f"{path} is no Delta table, and holds other files: {', '.join(found[:3])}{' …' if found[3:] else ''}",
                "write another path under [table], or empty the directory",
            )
    elif storage.is_local(path) and os.path.exists(path):
        raise _is_file(path)


def _is_file(path: str) -> Foreign:
    return Foreign(f"{path} is a file", "write the path of a directory under [table]")


def add_action(file: WrittenFile) -> AddAction:
    return AddAction(
        path=file.path,
        size=file.size_bytes,
        partition_values=dict(file.partition_values),
        modification_time=int(time.time() * 1000),
        data_change=True,
        stats=file.stats,
    )


def _sync_log(path: str, version: int) -> None:
    """Forces the newest log entry, and its name, to disk."""
    log = os.path.join(path, "_delta_log")
    for name in (os.path.join(log, f"{version:020d}.json"), log):
        descriptor = os.open(name, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
