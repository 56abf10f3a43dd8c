"""What a clean shutdown records for the next start to compare: the size of every file of every segment.

    tidelog-clean-stop      in each log directory, lines in the form of the other checkpoints:
        checkpoint <CRC-32C of recovery-point-offset-checkpoint> 0 0 0 0
        <partition's directory> <base offset> <bytes of .log, .index, .timeindex, .txnindex>

After a clean shutdown nothing is scanned, so damage done in the meantime (a truncated or lost file, extra bytes after
the last batch) shows only in these sizes. The first line ties the file to one shutdown: if another broker has used the
directory since, it has written other recovery points, and this file is ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from fastcrc import crc32

from tidelog.log.checkpoints import RECOVERY_POINTS, MalformedCheckpoint, format_lines, parse_lines
from tidelog.log.disk import Disk, read_file, replace_file
from tidelog.log.segment import Sizes

if TYPE_CHECKING:
    from tidelog.log.log import Log

CLEAN_STOP: Final = "tidelog-clean-stop"
_CHECKPOINT: Final = "checkpoint"


#: segments of a log by their base offsets
Stopped = Mapping[int, Sizes]


def write_clean_stop(disk: Disk, directory: str, logs: Iterable[Log]) -> None:
    """After the recovery points are written; durable with the next sync of the directory."""
    sizes = {
        log.path.rpartition("/")[2]: {segment.base_offset: segment.file_sizes() for segment in log.segments}
        for log in logs
    }
    write_sizes(disk, directory, sizes)


def write_sizes(disk: Disk, directory: str, stopped: Mapping[str, Stopped]) -> None:
    """Of the segments by the names of their partitions' directories."""
    lines = [f"{_CHECKPOINT} {_checkpoint_crc(disk, directory)} 0 0 0 0"]
    for name, segments in stopped.items():
        for base_offset, sizes in segments.items():
            lines.append(f"{name} {base_offset} {' '.join(map(str, sizes))}")
    replace_file(disk, f"{directory}/{CLEAN_STOP}", format_lines(lines))


def read_clean_stop(disk: Disk, directory: str) -> dict[str, dict[int, Sizes]]:
    """The segments by the names of their partitions' directories; empty where nothing is known of the last stop."""
    path = f"{directory}/{CLEAN_STOP}"
    found: dict[str, dict[int, Sizes]] = {}
    try:
        lines = parse_lines(read_file(disk, path), path, 6)
        if not lines or lines[0][:2] != [_CHECKPOINT, str(_checkpoint_crc(disk, directory))]:
            return {}
        for name, base_offset, *sizes in lines[1:]:
            found.setdefault(name, {})[int(base_offset)] = Sizes(*map(int, sizes))
    except (FileNotFoundError, MalformedCheckpoint, ValueError):
        return {}
    return found


def _checkpoint_crc(disk: Disk, directory: str) -> int:
    return int(crc32.iscsi(read_file(disk, f"{directory}/{RECOVERY_POINTS}")))
