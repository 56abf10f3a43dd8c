"""A Delta table that knows how far a pipeline has come: rows and offsets in one commit.

Every commit of a pipeline is one entry of the table's log. Beside the files it has transaction entries, with the next
offset of each partition and what else is a number (`marks.py`). What is no number is a property of the table:

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
from typing import Any, Final

import pyarrow as pa
from deltalake import DeltaTable, TableFeatures
from deltalake.exceptions import DeltaError
from deltalake.transaction import CommitProperties, Transaction

from tidelog.pipeline.errors import PipelineError
from tidelog.pipeline.spec import OnRestore
from tidelog.pipeline.table import columns, storage
from tidelog.pipeline.table.columns import delta_schema, first_line
from tidelog.pipeline.table.delta_features import Door
from tidelog.pipeline.table.marks import RUNNER, VERSION, offset_mark
from tidelog.pipeline.table.optimistic import optimistically
from tidelog.pipeline.table.parquet_files import WrittenFile
from tidelog.pipeline.table.table_files import TableFile, add_action, remove_action
from tidelog.pipeline.table.table_view import INFO, TableView
from tidelog.wire.partitions import TopicPartition

#: Delta's name for what a table needs that has timestamps without a zone
NTZ: Final = "timestampNtz"
_DELETION_VECTOR: Final = re.compile(r"(^|/)deletion_vector_[0-9a-f-]{36}\.bin$")
#: what a commit says, with entries of its own beside the batch's
Committing = Callable[[Mapping[str, int]], CommitProperties]
#: changes the table with one commit; the entries that this has of its own
Change = Callable[[DeltaTable, Committing], Mapping[str, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableChange:
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


def _own_marks(batch: TableChange) -> dict[str, int]:
    return {offset_mark(at): after for at, (_, after) in batch.offsets.items()} | dict(batch.marks)


class PipelineTable(TableView):
    """The table as a runner has it: to take over, and to commit to."""

    # --- taking over --------------------------------------------------------------------------------

    def take_over(
        self, marks: Mapping[str, int] | None = None, at_least: int = 1, on_restore: OnRestore = "stop"
    ) -> int:
        """Fences every other runner. The new epoch, which nobody else has. `marks` are set where there are none yet."""
        epoch = at_least

        def attempt() -> None:
            nonlocal epoch
            self.require(Door.RUN)
            back = self._back(on_restore)
            # Somebody may have committed with this very epoch: the newest runner takes the next one.
            epoch = max((self.epoch or 0) + 1, at_least)
            # Looked up each time: another new runner may have begun the same partitions, and gone on from there.
            unset = {what: version for what, version in (marks or {}).items() if self.mark(what) is None}
            self._begin({RUNNER: epoch, **unset, **back})

        optimistically(self, attempt, "a runner can take over")
        return epoch

    def follow(self, epoch: int, on_restore: OnRestore = "stop") -> None:
        """Fences older runners here too, with an epoch that was taken over elsewhere."""

        def attempt() -> None:
            if self.epoch == epoch:
                return
            if (self.epoch or 0) > epoch:
                raise self._fenced(epoch)
            self.require(Door.RUN)
            if on_restore == "stop":
                self.check_restored()
            self._begin({RUNNER: epoch})

        optimistically(self, attempt, "a runner can take over")

    def _begin(self, marks: Mapping[str, int]) -> None:
        self._write([], "append", marks, {"what": "a runner takes over"})
        self._own, self._marked, self._marks = marks[RUNNER], -1, {}

    def look_again(self) -> None:
        self._marks, self._marked = {}, -1
        self.refresh()

    def check_overtaken(self, version: int, error: DeltaError) -> None:
        if self.version == version:
            raise PipelineError(
                f"{self.path}: the commit failed: {first_line(error)}",
                "nobody else was faster: see whether the table's _delta_log is whole and can be written to",
            ) from error

    # --- committing ---------------------------------------------------------------------------------

    def commit(self, epoch: int, batch: TableChange) -> None:
        """Files and offsets, all or nothing. Superseded where another runner has taken over."""
        own = _own_marks(batch)
        actions: list[Any] = [add_action(file) for file in batch.files]
        actions += [remove_action(file) for file in batch.removed]
        if batch.rebuild is not None:
            self._check(epoch, batch)
            self._allow_types(epoch, batch.rebuild)

        def attempt() -> None:
            self._check(epoch, batch)
            mode = "append" if batch.rebuild is None else "overwrite"
            marks = {RUNNER: epoch, **self._standing(), **own}
            self._write(actions, mode, marks, batch.info, batch.rebuild)

        def settled(version: int, error: DeltaError) -> bool:
            done = self._is_done(epoch, version)
            if not done and self.version != version and (batch.removed or batch.rebuild is not None):
                raise PipelineError(
                    f"{self.path}: the commit failed: {first_line(error)}",
                    "somebody else has written to the table meanwhile; try again",
                ) from error
            return done

        optimistically(self, attempt, "a batch can be", settled)

    def change(self, epoch: int, batch: TableChange, change: Change) -> None:
        """As `commit`, where the files are for `change` to find. It commits, and returns the entries of its own."""

        def attempt() -> None:
            self._check(epoch, batch)
            self.require(Door.UPSERT)
            self._change_rows(epoch, batch, change)

        optimistically(self, attempt, "a batch can be", lambda version, _: self._is_done(epoch, version))

    def _is_done(self, epoch: int, version: int) -> bool:
        """Whether the commit on top of a version is in the table. Superseded where another runner has taken over."""
        self.check_epoch(epoch)
        return self.mark(VERSION) == version + 1

    def _change_rows(self, epoch: int, batch: TableChange, change: Change) -> None:
        version = self.version
        marks = {RUNNER: epoch, **self._standing(), **_own_marks(batch)}
        marks |= change(self._delta, lambda own: self._properties({**marks, **own}, batch.info))
        self.refresh()
        if self._is_done(epoch, version):
            self._keep(marks)
        else:
            # It was all the same to the table, and nothing was committed.
            self._check(epoch, batch)
            self._write([], "append", marks, batch.info)

    def _check(self, epoch: int, batch: TableChange) -> None:
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
        if self._marked >= 0 and marks.get(RUNNER) == self._own:
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

    def add_columns(self, epoch: int, fields: Iterable[pa.Field]) -> None:
        """Columns that are null in every row so far."""
        new = delta_schema(pa.schema(list(fields))).fields

        def change() -> None:
            properties = self._properties({RUNNER: epoch}, {"what": "columns are added"})
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
                commit_properties=self._properties({RUNNER: epoch}, {"what": "times without a zone are allowed"}),
            )

        self._change(epoch, change)

    # --- what this pipeline keeps with the table, whole and fenced like a commit --------------------

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

        def attempt() -> None:
            self.require(Door.RUN)
            self._set_property(0, "adopted", "true", "the table is adopted")
            self.refresh()

        optimistically(self, attempt, "it can be adopted", lambda _, __: self.epoch is not None)

    def _set_property(self, epoch: int, what: str, value: str, why: str) -> None:
        self._delta.alter.set_table_properties(
            {f"{INFO}.{self._name}.{what}": value},
            raise_if_not_exists=False,
            commit_properties=self._properties({RUNNER: epoch}, {"what": why}),
        )

    def _change(self, epoch: int, change: Callable[[], None]) -> None:
        """A change of the table's metadata, which may be done twice without harm."""

        def attempt() -> None:
            self.check_epoch(epoch)
            self.check_restored()
            self.require(Door.RUN)
            change()
            self.refresh()

        optimistically(self, attempt, "it can be changed")

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


def _sync_log(path: str, version: int) -> None:
    """Forces the newest log entry, and its name, to disk."""
    log = os.path.join(path, "_delta_log")
    for name in (os.path.join(log, f"{version:020d}.json"), log):
        descriptor = os.open(name, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
