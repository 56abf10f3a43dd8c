"""RESTORE: it brings back the files of an older version of a table, and not the offsets that belong to them.

Transaction entries, where a pipeline keeps its offsets, only ever grow newer in Delta's log. After a RESTORE the table
has fewer rows than its offsets say, and a pipeline that went on from these would never read the records in between
again. Every commit of a pipeline therefore says which version it makes. Whatever was committed behind that version was
committed by others, and whether a RESTORE is among it is told by their entries. One that only undoes what others did
since then changes nothing for the pipeline.

What the offsets were at the version that was restored is still in the log. Rows and offsets of that version belong
together, unless it lies behind another RESTORE that no commit of the pipeline has answered; then those of the version
which that one restored do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from tidelog.pipeline.errors import Restored
from tidelog.pipeline.spec import OnRestore
from tidelog.wire.partitions import TopicPartition

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


def restores(delta: DeltaTable, limit: int | None = None) -> list[Restore]:
    """Those among the newest entries, or all that the log has; the newest first."""
    found = []
    for version, entry in _entries(delta, limit):
        if entry.get("operation") in _GOING_BACK:
            said = str((entry.get("operationParameters") or {}).get("version"))
            found.append(Restore(version, int(said) if said.isdigit() else None))
    return found


def _entries(delta: DeltaTable, limit: int | None) -> Iterator[tuple[int, dict[str, Any]]]:
    """The log up to the table's version, the newest first.

    What others have committed since comes with it, in front, and deltalake then numbers all of it too low.
    """
    while True:
        newer = len(delta.history(1)) - 1
        entries = delta.history(limit)
        if len(delta.history(1)) - 1 == newer:
            break
    version = int(delta.version())
    for at, entry in enumerate(entries[newer:]):
        yield version - at, entry


def _last(found: Iterable[Restore], after: int | None, until: int) -> Restore | None:
    """The newest of those between two versions."""
    return None if after is None else next((one for one in found if after < one.version <= until), None)


def _undoing(found: Sequence[Restore], last: int, now: int) -> Restore | None:
    """What took rows out that a pipeline's last commit had; None where only what others did since was undone."""
    newest = _last(found, last, now)
    if newest is None or newest.restored is None or newest.restored < last:
        return newest
    return _undoing(found, last, newest.restored)


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
    found = _undoing(restores(delta, now - last), last, now)
    if found is not None:
        older = "older rows" if found.restored is None else f"the rows of version {found.restored}"
        raise Restored(
            f"{path} was restored (by its version {found.version}): it has {older} and the offsets of version {last}, "
            "so that the records in between would never be read again",
            f'{_REPLAY}; on_restore = "read_again" under [table] goes back to the offsets that belong to the rows, '
            'and "go_on" leaves those records out',
        )


class Answer(NamedTuple):
    #: the version that knows all that was ever begun: a RESTORE brings back the older properties, too
    last: DeltaTable
    #: the version whose entries are to count again
    then: DeltaTable


def answer(delta: DeltaTable, path: str, on_restore: OnRestore, last_own: LastOwn) -> Answer | None:
    """What is to be done about a RESTORE, if anything. Restored where that is to be told."""
    last, now = last_own(delta), int(delta.version())
    found = None if last is None or last >= now else _undoing(restores(delta, now - last), last, now)
    if found is None or on_restore == "stop":
        check(delta, path, last)
        return None
    if on_restore == "go_on":
        return None
    before = None if last is None else _opened(path, last)
    then = None if found.restored is None else _at_version(path, found.restored, restores(delta), last_own)
    if before is None or then is None:
        raise Restored(
            f"{path} was restored (by its version {found.version}), and its log no longer tells the offsets of then",
            f'{_REPLAY}; on_restore = "go_on" under [table] leaves the records out whose rows are gone',
        )
    return Answer(before, then)


def further(path: str) -> Restored:
    """The rows are those of a version that the pipeline had gone back from."""
    return Restored(
        f"{path} was restored to rows that go further than its offsets, and their dead letters are gone", _REPLAY
    )


def forgotten(path: str, pipeline: str, lost: Iterable[TopicPartition]) -> Restored:
    """The table has rows of these, and their entries are gone."""
    return Restored(
        f"{path} no longer knows up to which offset it has {', '.join(f'{topic}-{number}' for topic, number in lost)}: "
        f"the transaction entries of pipeline {pipeline} are gone, as they are in a clone, or after "
        "delta.setTransactionRetentionDuration",
        f"{_REPLAY}; or write another path under [table]",
    )


def _at_version(path: str, version: int, known: Sequence[Restore], last_own: LastOwn) -> DeltaTable | None:
    """The version whose offsets belong to the rows that this one has; None where the log no longer tells."""
    table = _opened(path, version)
    found = None if table is None else _last(known, last_own(table), version)
    if found is None:
        return table
    return None if found.restored is None else _at_version(path, found.restored, known, last_own)


def _opened(path: str, version: int) -> DeltaTable | None:
    try:
        return DeltaTable(path, version=version)
    except DeltaError:
        return None
