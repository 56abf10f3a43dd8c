"""What a replay has decided about the dead letters, and what is still to be carried out of it.

A replay changes the table and its dead letters, which takes two commits. The table's is the one that counts:

    1. the change of the dead letters is written down, in a file beside the table
    2. the table is committed, with the number of the replay
    3. the dead letters are changed as written, with the same number
    4. the file is removed

    A crash before 2 leaves a file with a number that the table does not have: the replay never happened. After 2 the
    table has the number and the dead letters do not: whoever takes over next carries out 3. That can be done twice
    without harm, for it names the rows that go and the files that come.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from tidelog.pipeline.offset_ranges import OffsetRange
from tidelog.pipeline.table import storage
from tidelog.pipeline.table.parquet_files import SinkSettings, WrittenFile
from tidelog.pipeline.table.pipeline_table import PipelineTable, TableChange
from tidelog.pipeline.table.rewriting import LETTERS, without

MARK: Final = "replay"


@dataclass(frozen=True, slots=True)
class Intent:
    #: the epoch of the replay
    number: int
    #: dead letters that are to come
    files: Sequence[WrittenFile]
    #: whose dead letters are to go; None for all of them
    ranges: Sequence[OffsetRange] | None


def write(table: PipelineTable, intent: Intent) -> None:
    files = [
        {"path": f.path, "size_bytes": f.size_bytes, "rows": f.rows, "partition_values": {}, "stats": f.stats}
        for f in intent.files
    ]
    ranges = None if intent.ranges is None else [list(r) for r in intent.ranges]
    written = {"number": intent.number, "files": files, "ranges": ranges}
    storage.write(table.path, path_of(table, intent.number), json.dumps(written).encode())


def carry_out(letters: PipelineTable, intent: Intent, epoch: int, settings: SinkSettings) -> None:
    """Changes the dead letters as the intent says."""
    info = {"what": "a replay changes the dead letters"}
    marks = {MARK: intent.number}
    if intent.ranges is None:
        batch = TableChange(files=intent.files, marks=marks, info=info, rebuild=letters.schema)
    else:
        removed, kept = without(letters, LETTERS, intent.ranges, settings)
        batch = TableChange(files=[*kept, *intent.files], removed=removed, marks=marks, info=info)
    letters.commit(epoch, batch)


def finish(table: PipelineTable, letters: PipelineTable, epoch: int, settings: SinkSettings) -> None:
    """Carries out what a replay that did not come to its end had decided, if its table was committed."""
    found = pending(table, letters)
    if found is not None:
        carry_out(letters, found, epoch, settings)
        storage.remove(table.path, path_of(table, found.number))


def pending(table: PipelineTable, letters: PipelineTable) -> Intent | None:
    """What is still to be carried out of a replay whose table was committed."""
    number = table.mark(MARK)
    if number is None or letters.mark(MARK) == number:
        return None
    written = storage.read(table.path, path_of(table, number))
    return None if written is None else _read(json.loads(written), letters)


def _read(written: dict[str, Any], letters: PipelineTable) -> Intent:
    files = [WrittenFile(**file, schema=letters.schema) for file in written["files"]]
    ranges = None if written["ranges"] is None else [OffsetRange(*r) for r in written["ranges"]]
    return Intent(written["number"], files, ranges)


def path_of(table: PipelineTable, number: int) -> str:
    return f"{storage.OWN}/replay-{table.writer}-{number}.json"
