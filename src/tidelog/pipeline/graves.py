"""What was deleted from a table of the latest state, and how late that was: so that older changes do not bring it back.

A small Delta table inside the table's own directory, where readers of the table do not look: keys and orders. Which of
its versions counts is an entry of the table's commits. So it changes with the table, at one moment; what somebody wrote
who then did not commit is of a version that nobody reads, and is undone by the next one.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import TableNotFoundError

from tidelog.pipeline import places
from tidelog.pipeline.changes import ORDER

#: instead of a version, where there were some and none counts any more
NO_GRAVES: Final = -1
#: more files than these are written as one
_MOST_FILES: Final = 32


class Graves:
    def __init__(self, table: str, owner: str) -> None:
        self._path = f"{table}/{places.OWN}/deleted/{owner}"

    def read(self, version: int | None) -> pa.Table | None:
        """Keys and orders as of a version; a key may be there more than once."""
        return (
            None
            if version is None or version == NO_GRAVES
            else DeltaTable(self._path, version=version).to_pyarrow_table()
        )

    def add(self, version: int | None, graves: pa.Table) -> int:
        """The version that has these as well as those of the version before."""
        once = CommitProperties(max_commit_retries=0)
        try:
            found = DeltaTable(self._path)
        except TableNotFoundError:
            write_deltalake(self._path, graves, mode="error", commit_properties=once)
            return int(DeltaTable(self._path).version())
        if found.version() == version and len(found.file_uris()) < _MOST_FILES:
            write_deltalake(found, graves, mode="append", commit_properties=once)
        else:
            # Somebody wrote for a batch that was never committed; or it is in many pieces.
            known = self.read(version)
            all_of_them = _latest(graves if known is None else pa.concat_tables([known.cast(graves.schema), graves]))
            write_deltalake(found, all_of_them, mode="overwrite", schema_mode="overwrite", commit_properties=once)
        found.update_incremental()
        return int(found.version())


def _latest(graves: pa.Table) -> pa.Table:
    keys = [name for name in graves.schema.names if name != ORDER]
    found = graves.group_by(keys).aggregate([(ORDER, "max")])
    return found.select([*keys, f"{ORDER}_max"]).rename_columns([*keys, ORDER])
