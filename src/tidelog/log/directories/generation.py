"""How often a log directory was counted, at starts and once a minute: `tidelog-generation`, one number.

The same number is kept where the cluster's metadata is, and counted up there only after it was counted here. So a
directory whose number is the smaller one is an old copy: the disk was restored from a backup, or it is a mirror that
was not kept up. What was written since the copy was made is missing from it.
"""

from __future__ import annotations

from typing import Final

from tidelog.log.disk import Disk, read_file, replace_file

GENERATION: Final = "tidelog-generation"


def read_generation(disk: Disk, path: str) -> int:
    """0 where there is none. May raise OSError."""
    try:
        return int(read_file(disk, f"{path}/{GENERATION}"))
    except (FileNotFoundError, ValueError):
        return 0


def write_generation(disk: Disk, path: str, generation: int) -> None:
    """It is on the device when this returns. May raise OSError."""
    replace_file(disk, f"{path}/{GENERATION}", b"%d\n" % generation)
