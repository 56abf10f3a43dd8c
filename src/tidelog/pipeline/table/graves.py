"""What was deleted from a table of the latest state, and how late that was: so that older changes do not bring it back.

A small Delta table inside the table's own directory, where readers of the table do not look: keys, orders, and when
each was put there. Which of its versions counts is an entry of the table's commits. So it changes with the table, at
one moment; what somebody wrote who then did not commit is of a version that nobody reads, and the next one undoes it.

What was put there longer ago than is asked for no longer counts, and goes when the rest is next written as one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import TableNotFoundError

from tidelog.pipeline.table import storage
from tidelog.pipeline.table.changes import ORDER

#: instead of a version, where there were some and none counts any more
NO_GRAVES: Final = -1
#: more files than these are written as one
_MOST_FILES: Final = 32
_BURIED: Final = "buried_ms"
_HOUR_MS: Final = 3_600_000
#: no file of an older version is removed sooner than this: a RESTORE may want it
_LEAST_HOURS: Final = 168


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


class Graves:
    def __init__(self, table: str, owner: str, keep_ms: int, now_ms: Callable[[], int] = _wall_ms) -> None:
        self._path = f"{table}/{storage.OWN}/deleted/{owner}"
        self._keep_ms = keep_ms
        self._now_ms = now_ms

    def read(self, version: int | None) -> pa.Table | None:
        """Keys and orders as of a version, as far as they still count; a key may be there more than once."""
        found = self._read(version)
        return None if found is None else self._young(found).drop_columns([_BURIED])

    def add(self, version: int | None, graves: pa.Table) -> int:
        """The version that has these as well as those of the version before."""
        once = CommitProperties(max_commit_retries=0)
        new = graves.append_column(_BURIED, pa.array([self._now_ms()] * len(graves), pa.int64()))
        try:
            found = DeltaTable(self._path)
        except TableNotFoundError:
            write_deltalake(self._path, new, mode="error", commit_properties=once)
            return int(DeltaTable(self._path).version())
        known = self._read(version)
        young = None if known is None else self._young(known)
        grown_old = known is not None and young is not None and 2 * len(young) < len(known)
        if found.version() == version and len(found.file_uris()) < _MOST_FILES and not grown_old:
            write_deltalake(found, new, mode="append", schema_mode="merge", commit_properties=once)
        else:
            # Somebody wrote for a batch that was never committed; or it is in many pieces, or mostly of no use.
            all_of_them = _latest(new if young is None else pa.concat_tables([young.cast(new.schema), new]))
            write_deltalake(found, all_of_them, mode="overwrite", schema_mode="overwrite", commit_properties=once)
            found.vacuum(max(_LEAST_HOURS, -(-self._keep_ms // _HOUR_MS)), dry_run=False)
        found.update_incremental()
        return int(found.version())

    def _read(self, version: int | None) -> pa.Table | None:
        if version is None or version == NO_GRAVES:
            return None
        try:
            found = DeltaTable(self._path, version=version).to_pyarrow_table()
        except FileNotFoundError:
            # Of a version that a RESTORE went back to. Its files went when all that was in them no longer counted.
            return None
        if _BURIED not in found.schema.names:
            found = found.append_column(_BURIED, pa.nulls(len(found), pa.int64()))
        # Those of earlier versions of this program do not say when; they are as good as new.
        at = found.schema.get_field_index(_BURIED)
        return found.set_column(at, _BURIED, pc.fill_null(found[_BURIED], self._now_ms()))

    def _young(self, graves: pa.Table) -> pa.Table:
        return graves.filter(pc.greater(graves[_BURIED], self._now_ms() - self._keep_ms))


def _latest(graves: pa.Table) -> pa.Table:
    keys = [name for name in graves.schema.names if name not in (ORDER, _BURIED)]
    found = graves.group_by(keys).aggregate([(ORDER, "max"), (_BURIED, "max")])
    return found.select([*keys, f"{ORDER}_max", f"{_BURIED}_max"]).rename_columns([*keys, ORDER, _BURIED])
