"""Which layout a log directory is in, and what to say where that is not the one that it is started with.

    tidelog-commit          the commit log: a directory that has one is in the shared layout
    tidelog-conversion      there while the directory is converted to the other layout (`log.conversion`)

A directory in which nothing is yet takes whatever layout it is started with.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tidelog.log.checkpoints import META_PROPERTIES
from tidelog.log.directories.directory_names import parse_name
from tidelog.log.disk import Disk, read_file, replace_file
from tidelog.log.errors import StorageError
from tidelog.log.shared import COMMIT_DIRECTORY, QUEUE

PARTITIONED: Final = "partitioned"
SHARED: Final = "shared"
LAYOUTS: Final = (PARTITIONED, SHARED)
CONVERSION: Final = "tidelog-conversion"


def other_than(layout: str) -> str:
    return PARTITIONED if layout == SHARED else SHARED


def layout_of(disk: Disk, path: str) -> str | None:
    """The layout of a directory; None where there is nothing in it yet."""
    if disk.exists(f"{path}/{COMMIT_DIRECTORY}"):
        return SHARED
    if disk.exists(f"{path}/{META_PROPERTIES}"):
        return PARTITIONED
    holds_logs = any(entry.is_dir and parse_name(entry.name) for entry in disk.list(path))
    return PARTITIONED if holds_logs else None


def how_to_convert(path: str, layout: str) -> str:
    import shlex

    return f"tidelog storage convert --to {layout} {shlex.quote(path)}"


def check_layout(disk: Disk, path: str, layout: str) -> None:
    """Raises StorageError where a broker must not start on the directory with this layout."""
    conversion = read_conversion(disk, path)
    if conversion is not None:
        why = f"log directory {path} is being converted to the {conversion.to} layout, and that was not finished: "
        what = f"finish it with `{how_to_convert(path, conversion.to)}`"
        if not conversion.is_switching:
            what += f", or undo it with `{how_to_convert(path, other_than(conversion.to))}`"
        raise StorageError(why + what)
    found = layout_of(disk, path)
    if found not in (None, layout):
        if found == PARTITIONED and _has_queues(disk, path):
            raise StorageError(
                f"log directory {path} has queues, and its commit log {path}/{COMMIT_DIRECTORY} is missing: "
                "put it back. Is its disk mounted?"
            )
        raise StorageError(
            f"log directory {path} is in the {found} layout, and the broker is started with log.layout={layout}: "
            f"set log.layout={found}, or convert the directory with `{how_to_convert(path, layout)}`"
        )


def _has_queues(disk: Disk, path: str) -> bool:
    named = [f"{path}/{entry.name}" for entry in disk.list(path) if entry.is_dir and parse_name(entry.name)]
    return any(entry.name.endswith(QUEUE) for each in named for entry in disk.list(each))


class Conversion(NamedTuple):
    """How far a conversion is that was begun. As long as it is not `is_switching`, the old layout is whole."""

    to: str
    #: the names of the partitions' directories that are converted, in this order
    partitions: tuple[str, ...]
    #: everything is there in the new layout, verified and on the device: what is left is to put it in place
    is_switching: bool = False
    #: how many of the partitions are written in the new layout, and on the device
    built: int = 0
    #: to the shared layout: where the commit log ends that they are written to
    commit_end: int = 0

    def format(self) -> bytes:
        phase = "switching" if self.is_switching else "building"
        lines = ["version=0", f"to={self.to}", f"phase={phase}", f"built={self.built}", f"end={self.commit_end}"]
        return "\n".join([*lines, *(f"partition={name}" for name in self.partitions), ""]).encode()

    @classmethod
    def parse(cls, data: bytes) -> Conversion:
        """Raises ValueError, or KeyError."""
        pairs = [line.split("=", 1) for line in data.decode().splitlines() if line]
        fields = {name: value for name, value in pairs if name != "partition"}
        if fields["version"] != "0" or fields["to"] not in LAYOUTS:
            raise ValueError(data)
        partitions = tuple(value for name, value in pairs if name == "partition")
        is_switching = fields["phase"] == "switching"
        return cls(fields["to"], partitions, is_switching, int(fields["built"]), int(fields["end"]))


def read_conversion(disk: Disk, path: str) -> Conversion | None:
    """The conversion that was begun in a directory and not finished; None where there is none."""
    file = f"{path}/{CONVERSION}"
    if not disk.exists(file):
        return None
    try:
        return Conversion.parse(read_file(disk, file))
    except (ValueError, KeyError):
        raise StorageError(f"{file} is damaged: restore the directory from a backup") from None


def write_conversion(disk: Disk, path: str, conversion: Conversion) -> None:
    replace_file(disk, f"{path}/{CONVERSION}", conversion.format())
