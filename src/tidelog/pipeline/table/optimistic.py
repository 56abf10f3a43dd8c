"""Commits on top of what a table is, tried again where somebody else was faster.

Delta refuses a commit that conflicts with one which came in between. Trying again is ours and not the library's:
between two attempts it is looked at who else has committed, and whether the commit is not there after all. An error may
come after the log entry, from a checkpoint of the log for example.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from deltalake.exceptions import DeltaError

from tidelog.pipeline.errors import PipelineError

ATTEMPTS: Final = 10


class Contested(Protocol):
    """A table that others commit to as well."""

    path: str

    @property
    def version(self) -> int: ...

    def look_again(self) -> None:
        """Moves on to the newest version; nothing that was known before is believed."""

    def check_overtaken(self, version: int, error: DeltaError) -> None:
        """PipelineError, unless the commit on top of this version failed because somebody else was faster."""


#: whether the commit on top of a version is there though it failed; raises where it must not be tried again
Settled = Callable[[int, DeltaError], bool]


def optimistically(
    table: Contested, attempt: Callable[[], None], too_busy: str, settled: Settled = lambda _, __: False
) -> None:
    """Attempts until it is done. `too_busy` is what others are faster than, for the error after the last attempt."""
    for _ in range(ATTEMPTS):
        version = table.version
        try:
            attempt()
            return
        except DeltaError as error:
            table.look_again()
            if settled(version, error):
                return
            table.check_overtaken(version, error)
    raise PipelineError(f"{table.path}: others commit faster than {too_busy}", "try again")
