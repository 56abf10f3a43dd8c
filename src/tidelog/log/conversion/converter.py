"""Converts a log directory, so that a crash at any step leaves the old layout whole, or the new one.

    tidelog-conversion      what is converted, and how far that is (`directories.layout.Conversion`)
    tidelog-converting/     the new files, as long as the old ones are in use

    1. building     partition by partition the new files are written, and now and then synced and counted
    2. comparing    every batch of every partition, old and new
    3. switching    the new files take the place of the old ones, which are then removed
    4. the file `tidelog-conversion` is removed

Up to 2 nothing of the old layout has changed, and the conversion can be taken back. From 3 on it can only be ended: all
that is left to do is written down, and can be done again. A broker starts before 1 and after 4, and not in between.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tidelog.log.checkpoints import CLEAN_SHUTDOWN, LOCK, META_PROPERTIES, MetaProperties
from tidelog.log.config import LogConfig
from tidelog.log.conversion.building import BUILDING, Builder, Tell, remove_all
from tidelog.log.conversion.planning import ANY_SIZE, CannotConvert, ConversionPlan, plan_conversion
from tidelog.log.conversion.switching import switch
from tidelog.log.directories.directory_names import parse_name
from tidelog.log.directories.layout import (
    CONVERSION,
    SHARED,
    Conversion,
    how_to_convert,
    layout_of,
    other_than,
    read_conversion,
    write_conversion,
)
from tidelog.log.directories.log_dirs import LogDirs
from tidelog.log.disk import NO_ROOM, Disk, Lock, read_file
from tidelog.log.errors import LogDirInUse
from tidelog.log.shared.commit_log import CommitLog


class ConversionOutcome(NamedTuple):
    #: "converted", "resumed", "finished", "undone", or "unchanged"
    done: str
    #: how many partitions were converted, and how many bytes of batches they have
    partitions: int = 0
    size_bytes: int = 0
    #: what recovering the directory found, where its broker had not stopped cleanly
    notices: tuple[str, ...] = ()


def preview(disk: Disk, path: str, to: str, is_kept: Callable[[str], bool]) -> ConversionPlan | Conversion | None:
    """What a conversion would do, or go on with; None where the directory is in that layout already."""
    conversion = read_conversion(disk, path)
    if conversion is not None:
        return conversion
    return None if layout_of(disk, path) == to else plan_conversion(disk, path, to, is_kept)


def convert(
    disk: Disk, path: str, to: str, is_kept: Callable[[str], bool], commit_bytes: int, now_ms: int, tell: Tell
) -> ConversionOutcome:
    """Converts a directory, or goes on with that where it was interrupted; `is_kept` as in `plan_conversion`.

    Where it was begun in the other direction, that is taken back, or ended first if it is too late for that. Raises
    LogDirInUse, CannotConvert and others that say what is wrong; may raise OSError.
    """
    notices: tuple[str, ...] = ()
    if read_conversion(disk, path) is None and layout_of(disk, path) == other_than(to):
        # Recovering takes the lock itself.
        _lock(disk, path).release()
        notices = _recover(disk, path, now_ms)
    lock = _lock(disk, path)
    try:
        return _convert(disk, path, to, is_kept, commit_bytes, tell)._replace(notices=notices)
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        again, back = how_to_convert(path, to), how_to_convert(path, other_than(to))
        raise CannotConvert(
            f"there is no space left for {error.filename or path}: free some and run `{again}` again, "
            f"or undo the conversion with `{back}`"
        ) from error
    finally:
        lock.release()


def _lock(disk: Disk, path: str) -> Lock:
    lock = disk.lock(f"{path}/{LOCK}")
    if lock is None:
        raise LogDirInUse(f"{path} is in use by a broker: stop it before you convert the directory")
    return lock


def _recover(disk: Disk, path: str, now_ms: int) -> tuple[str, ...]:
    """Where the broker has not stopped cleanly: does what its next start would, and stops cleanly."""
    if disk.exists(f"{path}/{CLEAN_SHUTDOWN}") or not disk.exists(f"{path}/{META_PROPERTIES}"):
        return ()
    meta = MetaProperties.parse(read_file(disk, f"{path}/{META_PROPERTIES}"), path)
    commit_bytes = ANY_SIZE if layout_of(disk, path) == SHARED else None
    if commit_bytes is not None and (gaps := CommitLog(disk, path, commit_bytes).gaps()):
        raise CannotConvert(
            f"the commit log of {path} has nothing from {gaps[0][0]} to {gaps[0][1]}: a file is short or missing. "
            "Put it back; or start a broker on the directory, which says what is lost, and stop it before you convert"
        )
    logs = LogDirs([path], disk, lambda topic: LogConfig(), commit_bytes=commit_bytes)
    logs.open(meta.node_id, meta.cluster_id, now_ms, is_judged_later=True)
    unopened = dict(logs.dirs[0].unopened)
    logs.close()
    for (topic, partition), why in unopened.items():
        raise CannotConvert(f"partition {partition} of topic {topic} cannot be opened: {why}")
    if logs.dirs[0].no_room is not None and not disk.exists(f"{path}/{CLEAN_SHUTDOWN}"):
        raise CannotConvert(
            f"{path} was not shut down cleanly, and there is no space left to do what its next start would: "
            "free some, and run the command again"
        )
    return tuple(logs.take_notices())


def _convert(
    disk: Disk, path: str, to: str, is_kept: Callable[[str], bool], commit_bytes: int, tell: Tell
) -> ConversionOutcome:
    conversion = read_conversion(disk, path)
    if conversion is not None and conversion.is_switching:
        switch(disk, path, conversion)
        if conversion.to == to:
            return ConversionOutcome("finished", len(conversion.partitions))
        conversion = None
    if conversion is not None and conversion.to != to:
        remove_all(disk, f"{path}/{BUILDING}")
        disk.remove(f"{path}/{CONVERSION}")
        disk.sync_dir(path)
        return ConversionOutcome("undone")
    if conversion is None and layout_of(disk, path) == to:
        return ConversionOutcome("unchanged")
    done = "converted" if conversion is None else "resumed"
    if conversion is None:
        conversion = _begin(disk, path, plan_conversion(disk, path, to, is_kept))
    else:
        _check_kept(path, conversion, is_kept)
    builder = Builder(disk, path, conversion, commit_bytes, tell)
    builder.build()
    builder.compare()
    conversion = builder.conversion._replace(is_switching=True)
    write_conversion(disk, path, conversion)
    switch(disk, path, conversion)
    return ConversionOutcome(done, len(conversion.partitions), builder.size_bytes)


def _begin(disk: Disk, path: str, plan: ConversionPlan) -> Conversion:
    if not disk.exists(f"{path}/{CLEAN_SHUTDOWN}"):
        raise CannotConvert(f"{path} was not shut down cleanly: start a broker on it, and stop it")
    if not plan.fits:
        raise CannotConvert(
            f"{plan.path} needs {plan.needed_bytes:,} bytes more until the conversion is done, and "
            f"{plan.usage.usable_bytes:,} are free: free some space, or move partitions to another log directory"
        )
    conversion = Conversion(plan.to, tuple(each.name for each in plan.converted))
    write_conversion(disk, path, conversion)
    return conversion


def _check_kept(path: str, conversion: Conversion, is_kept: Callable[[str], bool]) -> None:
    for name in conversion.partitions:
        named = parse_name(name)
        if conversion.to == SHARED and named is not None and is_kept(named[0].topic):
            undo = how_to_convert(path, other_than(conversion.to))
            raise CannotConvert(f"{name} is part of the conversion that was begun: undo it first with `{undo}`")
