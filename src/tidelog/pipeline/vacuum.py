"""Removing files that no version of a table needs: of tasks that failed or ran twice, of runners that died, of replays.

Delta says which files its log does not need; what lies in `_tidelog` is ours. Nothing is removed that is younger than
the age asked for. Files that the newest runner wrote are kept for a day on top of that, whatever was asked, because
its batch may still be about to commit them; files of older runners can no longer be committed by anybody.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from tidelog.pipeline import intent, places
from tidelog.pipeline.table import PipelineTable
from tidelog.pipeline.tables import Tables

HOUR_MS: Final = 3_600_000
#: no batch takes longer than this from its first file to its commit
LONGEST_BATCH_MS: Final = 24 * HOUR_MS
_INTENT: Final = re.compile(rf"{places.OWN}/replay-(\d+)\.json")


class Orphan(NamedTuple):
    root: str
    path: str
    size_bytes: int


def find(tables: Tables, older_than_ms: int, now_ms: int, newest_runner_too: bool = False) -> list[Orphan]:
    """What can go of both tables."""
    both = [tables.table] if tables.letters is None else [tables.table, tables.letters]
    return [orphan for table in both for orphan in _of(table, tables, older_than_ms, now_ms, newest_runner_too)]


def remove(orphans: Iterable[Orphan]) -> None:
    for orphan in orphans:
        places.remove(orphan.root, orphan.path)


def _of(table: PipelineTable, tables: Tables, older_than_ms: int, now_ms: int, all_of_them: bool) -> Iterator[Orphan]:
    there = {found.path: found for found in places.files_below(table.path, "")}
    # Delta counts in hours; the rest is looked at here.
    unneeded = set(table.unreferenced(-(-older_than_ms // HOUR_MS)))
    unneeded |= {path for path in there if path.startswith(f"{places.STAGING}/")}
    unneeded |= {path for path in there if _is_done_intent(path, tables)}
    for path in sorted(unneeded & there.keys()):
        found = there[path]
        written = places.parse_part(path)
        newest = written is not None and written.epoch >= (table.epoch or 0) and not all_of_them
        age_ms = max(older_than_ms, LONGEST_BATCH_MS) if newest else older_than_ms
        if found.modified_ms <= now_ms - age_ms:
            yield Orphan(table.path, path, found.size_bytes)


def _is_done_intent(path: str, tables: Tables) -> bool:
    """Whether it is what a replay wrote down and nobody has to carry out any more."""
    match = _INTENT.fullmatch(path)
    if match is None:
        return False
    number = int(match[1])
    open_one = tables.letters is not None and tables.letters.mark(intent.MARK) != number
    return tables.table.mark(intent.MARK) != number or not open_one
