"""In the shared layout: what a turn of the loop appends to a commit log is written at its end, with one write.

Until then nobody hears of it: answers wait (`when_written`), and so do those who wait for records (`tell_later`).
Whoever cannot wait has it written at once (`write_out`), as anybody does who reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable

from tidelog.log.directories.log_dirs import LogDirs
from tidelog.log.log_dir import LogDir
from tidelog.timer.host import Host

#: told of the directories that have failed
Done = Callable[[Collection[LogDir]], None]


class Writing:
    __slots__ = ("_host", "_later", "_logs", "_tell", "_waiting", "is_due")

    def __init__(self, logs: LogDirs, host: Host, tell: Callable[[Hashable], object]) -> None:
        """`tell` is called with each of what is to be told later."""
        self._logs = logs
        self._host = host
        self._tell = tell
        self._waiting: list[Done] = []
        self._later: dict[Hashable, None] = {}
        #: something was put off, and is written at the end of this turn
        self.is_due = False

    def begin(self) -> None:
        """The logs are open: from here on appends to commit logs are put off."""
        for directory in self._logs.dirs:
            if directory.commit is not None:
                directory.commit.on_put_off = self._put_off

    def when_written(self, done: Done) -> None:
        """Calls `done` when all that was appended so far is written, or cannot be."""
        if self.is_due:
            self._waiting.append(done)
        else:
            done(())

    def tell_later(self, key: Hashable) -> None:
        self._later[key] = None

    def write_out(self) -> Collection[LogDir]:
        """At once. A directory in which that is not possible fails: they are returned."""
        failed = []
        for directory in self._logs.dirs:
            commit = directory.commit
            if commit is not None and commit.has_put_off:
                try:
                    if directory.failure is None:
                        commit.write_out()
                except OSError as error:
                    # Even of a full disk: there was room for it. Offsets were given away for what is not there.
                    directory.fail(error)
                if directory.failure is not None:
                    failed.append(directory)
        return failed

    def _put_off(self) -> None:
        if not self.is_due:
            self.is_due = True
            self._host.workers.call_soon(self._write)

    def _write(self) -> None:
        self.is_due = False
        failed = self.write_out()
        waiting, self._waiting = self._waiting, []
        later, self._later = self._later, {}
        for done in waiting:
            done(failed)
        for key in later:
            self._tell(key)
