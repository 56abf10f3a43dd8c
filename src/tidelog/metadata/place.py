"""Which of the broker's log directories holds the embedded store.

The store is created in the first directory and stays there, even if the order changes later. Each of the others holds a
pointer to it, `tidelog-metadata.place`, with the path of that directory: a broker that starts without that directory
must not conclude that there never was a store.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Final

from tidelog.metadata.embedded import JOURNAL_NAME, SNAPSHOT_NAME
from tidelog.metadata.journal_format import replace_file

PLACE_NAME: Final = "tidelog-metadata.place"


class StoreMisplaced(Exception):
    """The store is not where it was, or there are two; the message says what to do."""


def find_store(directories: Sequence[str]) -> str:
    """The directory that the store is in; the first one where there is none yet."""
    holding = [path for path in directories if any(map(os.path.exists, _files(path)))]
    if len(holding) > 1:
        raise StoreMisplaced(
            f"there is metadata in both {holding[0]} and {holding[1]}: find out which is older (tidelog-metadata.*), "
            "and move it away"
        )
    if holding:
        return holding[0]
    for path in directories:
        place = place_of(path)
        if place is not None:
            raise StoreMisplaced(
                f"the metadata that belongs to log directory {path} was last in {place}, and is in none of log.dirs "
                "now. Check that its disk is mounted and that log.dirs names it"
            )
    return directories[0]


def point_to_store(directory: str, others: Iterable[str]) -> None:
    """Leaves a pointer to the store in `directory` in each of the others."""
    data = os.path.abspath(directory).encode()
    for path in others:
        if path != directory and place_of(path) != data.decode():
            directory_fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                replace_file(path, directory_fd, PLACE_NAME, data)
            finally:
                os.close(directory_fd)


def _files(path: str) -> tuple[str, str]:
    return os.path.join(path, SNAPSHOT_NAME), os.path.join(path, JOURNAL_NAME)


def place_of(path: str) -> str | None:
    """Where the store is, as the pointer in a directory says; None where there is no pointer."""
    try:
        with open(os.path.join(path, PLACE_NAME), encoding="utf-8") as file:
            return file.read()
    except (OSError, ValueError):
        return None
