"""Removing files that no version of a table needs: of tasks that failed or ran twice, of runners that died, of replays.

Delta says which files its log does not need; what lies in `_tidelog` is ours. Nothing is removed that is younger than
the age asked for. On top of that, files are kept for a day, whatever was asked, that somebody may be about to commit:

    of the newest runner or replay      unless the caller says that none runs
    of other pipelines in this table    their epochs are not ours to judge by
    of a name that is not ours          the output of a compaction, or of whoever else writes here

Files of older runners can no longer be committed by anybody. What a replay has still to bring to the dead letters stays
however old it is, and so does everything of a table that lies inside this one's directory.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from tidelog.pipeline.errors import Foreign
from tidelog.pipeline.table import intent, storage
from tidelog.pipeline.table.pipeline_table import PipelineTable
from tidelog.pipeline.table.tables import Tables

HOUR_MS: Final = 3_600_000
#: no batch takes longer than this from its first file to its commit
LONGEST_BATCH_MS: Final = 24 * HOUR_MS
_INTENT: Final = re.compile(rf"{storage.OWN}/replay-([0-9a-f]{{8}})-(\d+)\.json")
_LOG: Final = "/_delta_log/"


class Orphan(NamedTuple):
    root: str
    path: str
    size_bytes: int


def find(tables: Tables, older_than_ms: int, now_ms: int, newest_runner_too: bool = False) -> list[Orphan]:
    """What can go of both tables. Foreign where the pipeline never wrote to its table."""
    if tables.table.epoch is None:
        raise Foreign(
            f"this pipeline never wrote to {tables.table.path}, and nothing there is its own to remove",
            "vacuum it with the file of the pipeline that writes it, or with another Delta tool",
        )
    own = [table for table in (tables.table, tables.letters) if table is not None and table.epoch is not None]
    return [orphan for table in own for orphan in _of(table, tables, older_than_ms, now_ms, newest_runner_too)]


def remove(orphans: Iterable[Orphan]) -> None:
    for orphan in orphans:
        storage.remove(orphan.root, orphan.path)


def _of(table: PipelineTable, tables: Tables, older_than_ms: int, now_ms: int, none_runs: bool) -> Iterator[Orphan]:
    there = {found.path: found for found in storage.files_below(table.path, "")}
    # Delta counts in hours; the rest is looked at here.
    unneeded = set(table.unreferenced(-(-older_than_ms // HOUR_MS)))
    unneeded |= {path for path in there if path.startswith(f"{storage.STAGING}/")}
    unneeded |= {path for path in there if _is_done_intent(path, tables)}
    unneeded -= _to_come(tables)
    inner = tuple({f"{path.partition(_LOG)[0]}/" for path in there if _LOG in path})
    for path in sorted(unneeded & there.keys()):
        found = there[path]
        age_ms = max(older_than_ms, LONGEST_BATCH_MS) if _may_be_committed(path, table, none_runs) else older_than_ms
        if found.modified_ms <= now_ms - age_ms and not path.startswith(inner):
            yield Orphan(table.path, path, found.size_bytes)


def _may_be_committed(path: str, table: PipelineTable, none_runs: bool) -> bool:
    """Whether somebody may still be about to: then only time tells that nobody will."""
    epoch = table.epoch or 0
    if replay := _INTENT.fullmatch(path):
        return int(replay[2]) >= epoch and not none_runs
    written = storage.parse_part(path)
    if written is None or written.writer != table.writer:
        return True
    return written.epoch >= epoch and not none_runs


def _is_done_intent(path: str, tables: Tables) -> bool:
    """Whether it is what a replay of this pipeline wrote down, and is not still to be carried out."""
    match = _INTENT.fullmatch(path)
    if match is None or match[1] != tables.table.writer:
        return False
    number = int(match[2])
    open_one = tables.letters is not None and tables.letters.mark(intent.MARK) != number
    return tables.table.mark(intent.MARK) != number or not open_one


def _to_come(tables: Tables) -> set[str]:
    """The files that an open intent names: they are in no table yet."""
    found = None if tables.letters is None else intent.pending(tables.table, tables.letters)
    return set() if found is None else {file.path for file in found.files}
