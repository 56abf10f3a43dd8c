"""RESTORE: it brings back the files of an older version of a table, and not the offsets that belong to them.

Transaction entries, where a pipeline keeps its offsets, only ever grow newer in Delta's log. After a RESTORE the table
has fewer rows than its offsets say, and a pipeline that went on from these would never read the records in between
again. Every commit of a pipeline therefore says which version it makes. Whatever was committed behind that version was
committed by others, and whether a RESTORE is among it is told by their entries.

What the offsets were at the version that was restored is still in the log. Rows and offsets of that version belong
together, unless it lies behind another RESTORE that no commit of the pipeline has answered; then those of the version
which that one restored do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from tidelog.pipeline.errors import Restored
from tidelog.pipeline.plan import TopicPartition
from tidelog.pipeline.spec import OnRestore

#: what puts other files into a table than those that its entries are of
_GOING_BACK: Final = ("RESTORE", "CLONE")
_REPLAY: Final = "`tidelog pipeline replay` builds the table again from the log"
#: the version of a pipeline's last commit, as a version of the table knows it
LastOwn = Callable[[DeltaTable], int | None]


class Restore(NamedTuple):
    #: of the entry
    version: int
    #: whose files the table has since; None where the entry does not say
    restored: int | None


def newest(delta: DeltaTable, after: int) -> Restore | None:
    """The last RESTORE behind a version, as far as the log goes back."""
    version = int(delta.version())
    entries = delta.history(version - after) if version > after else []
    for entry in entries:
        if entry.get("operation") in _GOING_BACK and int(entry["version"]) > after:
            said = (entry.get("operationParameters") or {}).get("version")
            known = said is not None and str(said).isdigit()
            return Restore(int(entry["version"]), int(str(said)) if known else None)
    return None


def check(delta: DeltaTable, path: str, last: int | None) -> None:
    """Restored where a pipeline whose last commit made that version can no longer go on from it."""
    now = int(delta.version())
    if last is None or last == now:
        return
    if last > now:
        raise Restored(
            f"{path} is at version {now}, and its transaction entries are of version {last}: it is a clone",
            f"{_REPLAY}; or write another path under [table]",
        )
    found = newest(delta, last)
    if found is not None:
        older = "older rows" if found.restored is None else f"the rows of version {found.restored}"
        raise Restored(
            f"{path} was restored (by its version {found.version}): it has {older} and the offsets of version {last}, "
            "so that the records in between would never be read again",
            f'{_REPLAY}; on_restore = "read_again" under [table] goes back to the offsets that belong to the rows, '
            'and "go_on" leaves those records out',
        )


def answer(delta: DeltaTable, path: str, on_restore: OnRestore, last_own: LastOwn) -> DeltaTable | None:
    """The version of the table whose offsets are to count again; None where they stay. Restored where that is told."""
    last = last_own(delta)
    found = None if last is None else newest(delta, last)
    if found is None or on_restore == "stop":
        check(delta, path, last)
        return None
    if on_restore == "go_on":
        return None
    then = None if found.restored is None else _at_version(path, found.restored, last_own)
    if then is None:
        raise Restored(
            f"{path} was restored (by its version {found.version}), and its log no longer tells the offsets of then",
            f'{_REPLAY}; on_restore = "go_on" under [table] leaves the records out whose rows are gone',
        )
    return then


def forgotten(path: str, pipeline: str, lost: Iterable[TopicPartition]) -> Restored:
    """The table has rows of these, and their entries are gone."""
    return Restored(
        f"{path} no longer knows up to which offset it has {', '.join(f'{topic}-{number}' for topic, number in lost)}: "
        f"the transaction entries of pipeline {pipeline} are gone, as they are in a clone, or after "
        "delta.setTransactionRetentionDuration",
        f"{_REPLAY}; or write another path under [table]",
    )


def _at_version(path: str, version: int, last_own: LastOwn) -> DeltaTable | None:
    """The version whose offsets belong to the rows that this one has; None where the log no longer tells."""
    try:
        table = DeltaTable(path, version=version)
    except DeltaError:
        return None
    own = last_own(table)
    found = None if own is None else newest(table, own)
    if found is None:
        return table
    return None if found.restored is None else _at_version(path, found.restored, last_own)
