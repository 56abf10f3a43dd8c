"""What a pipeline's table says: how far it is, whose it is, whether its rows and its offsets still belong together."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from itertools import count, takewhile
from typing import Any, Final, Self

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.transaction import CommitProperties, Transaction

from tidelog.pipeline.errors import Foreign, PipelineError, Restored, Superseded
from tidelog.pipeline.spec import OnRestore
from tidelog.pipeline.table import columns, delta_features, restoring, storage
from tidelog.pipeline.table.columns import delta_schema, first_line
from tidelog.pipeline.table.delta_features import Door
from tidelog.pipeline.table.marks import GRAVES, RUNNER, VERSION, id_mark, offset_mark, start_mark
from tidelog.pipeline.table.table_files import TableFile, files_of
from tidelog.wire.partitions import TopicPartition

#: what the entry of a commit says of it, for people and for `status`
INFO: Final = "tidelog"
_ADOPTED: Final = re.compile(rf"{INFO}\.(.+)\.adopted")


class TableView:
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
    def open(cls, path: str, name: str, fsync: bool = False) -> Self | None:
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
    ) -> Self:
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
        return self.mark(RUNNER)

    def mark(self, what: str) -> int | None:
        # A change of the table's metadata moves on by itself.
        if self._marked != self.version:
            self._marked = self.version
            runner = self._delta.transaction_version(f"{self._name}/{RUNNER}")
            # As long as this runner is the newest, all others are as it left them.
            self._marks = self._marks if runner is not None and runner == self._own else {}
            self._marks[RUNNER] = None if runner is None else int(runner)
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

    @property
    def pin(self) -> str | None:
        """Its pinned schema."""
        return self._property("pin")

    def missing(self, rows: pa.Schema) -> list[pa.Field]:
        """The columns of these rows that the table lacks, in whole or in part; PipelineError where types differ."""
        return columns.missing(self.schema, rows, self.path)

    def _standing(self) -> dict[str, int]:
        """The entries of all partitions, as they are."""
        what = [mark for at in self.partitions() for mark in (offset_mark(at), start_mark(at))]
        what += [id_mark(topic) for topic in self.topics] + [GRAVES]
        return {mark: version for mark in what if (version := self.mark(mark)) is not None}

    # --- whether it can be gone on with -------------------------------------------------------------

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
        last, then = (TableView(delta, self.path, self._name) for delta in found)
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

    def _fenced(self, epoch: int) -> Superseded:
        return Superseded(
            f"another runner of pipeline {self._name} has taken over {self.path} (its epoch is {self.epoch}, "
            f"this one's {epoch}); this one has stopped and committed nothing more",
            "keep one runner per pipeline; a second pipeline needs a name and a table of its own",
        )


def foreign(table: TableView, name: str, section: str = "table") -> Foreign:
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
