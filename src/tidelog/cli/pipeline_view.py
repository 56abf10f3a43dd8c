"""A running pipeline on a terminal, and as JSON lines for programs.

On a terminal: a table that is redrawn a few times a second, with notices above it. Elsewhere: one line of JSON per
event, `batch` for each commit with the position of every partition, `notice`, and `end`.
"""

from __future__ import annotations

import signal
import sys
import time
from contextlib import suppress
from dataclasses import asdict
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

import click

from tidelog.cli.output import json_line, tell, warn
from tidelog.cli.places import iso
from tidelog.pipeline.land.progress_events import BatchCommitted, Event, Notice, RunProgress
from tidelog.pipeline.run.runner import Outcome

if TYPE_CHECKING:
    from rich.live import Live


class View(Protocol):
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def __call__(self, event: Event) -> None: ...
    def end(self, outcome: Outcome) -> None: ...


def view_for(output: str) -> View:
    chosen = output if output != "auto" else "live" if sys.stdout.isatty() else "json"
    return {"live": LiveTable, "json": JsonLines, "quiet": Quiet}[chosen]()


class Quiet:
    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def __call__(self, event: Event) -> None:
        if isinstance(event, Notice):
            tell_notice(event)

    def end(self, outcome: Outcome) -> None:
        pass


class JsonLines(Quiet):
    def __init__(self) -> None:
        self._batch: BatchCommitted | None = None

    def __call__(self, event: Event) -> None:
        if isinstance(event, Notice):
            _print("notice", {"message": event.message, "hint": event.hint})
        elif isinstance(event, BatchCommitted):
            self._batch = event
        elif isinstance(event, RunProgress) and self._batch is not None:
            # The progress after a commit has the offsets that it brought.
            _print("batch", {**asdict(self._batch), "pipeline": event.pipeline, **_standing(event)})
            self._batch = None

    def end(self, outcome: Outcome) -> None:
        _print("end", asdict(outcome))


def _print(event: str, fields: dict[str, Any]) -> None:
    click.echo(json_line({"event": event, "time": iso(int(time.time() * 1000)), **fields}))


def _standing(progress: RunProgress) -> dict[str, Any]:
    whole = progress.as_dict()
    return {name: whole[name] for name in ("rows_per_s", "lag", "eta_s", "partitions")}


class LiveTable(Quiet):
    """A table that is drawn over itself.

    When the terminal gets another size it breaks the lines of the last drawing anew, so that nobody knows any more how
    many there are: then the screen is cleared, and the table begins again at its top.
    """

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(highlight=False)
        self._live = self._begin()
        self._size = self._console.size
        self._drawn: Any = None
        self._is_drawing = self._is_stale = False
        self._before: Any = None

    def _begin(self) -> Live:
        from rich.live import Live

        return Live(console=self._console, auto_refresh=False, transient=False)

    def __enter__(self) -> Self:
        self._live.__enter__()
        with suppress(ValueError):
            # Only the main thread hears of signals; elsewhere the next event finds the new size.
            self._before = signal.signal(signal.SIGWINCH, self._resized)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is not None:
            signal.signal(signal.SIGWINCH, self._before)
        self._live.__exit__(kind, error, trace)

    def _resized(self, number: int, frame: FrameType | None) -> None:
        self._is_stale = True
        if not self._is_drawing and self._drawn is not None:
            self._draw(self._drawn)

    def _draw(self, drawn: Any) -> None:
        self._drawn = drawn
        self._is_stale = True
        # Once more where the size has changed meanwhile, be it at the very end of the drawing.
        while self._is_stale:
            self._is_drawing = True
            try:
                self._is_stale = False
                if self._console.size != self._size:
                    self._size = self._console.size
                    self._live.stop()
                    self._console.clear()
                    self._live = self._begin()
                    self._live.start()
                self._live.update(self._drawn, refresh=True)
            finally:
                self._is_drawing = False

    def _print(self, notice: Notice) -> None:
        """A resize that comes meanwhile is drawn afterwards: its signal must not write into what is being written."""
        self._is_drawing = True
        try:
            self._console.print(f"[yellow]{_escaped(notice.message)}[/yellow]")
            if notice.hint:
                self._console.print(f"  {_escaped(notice.hint)}")
        finally:
            self._is_drawing = False
        if self._is_stale and self._drawn is not None:
            self._draw(self._drawn)

    def __call__(self, event: Event) -> None:
        if isinstance(event, Notice):
            self._print(event)
        elif isinstance(event, RunProgress):
            self._draw(drawn(event))

    def end(self, outcome: Outcome) -> None:
        tell(f"{outcome.rows:,} rows in {outcome.batches:,} batches, {outcome.dead_letters:,} dead letters")


def drawn(progress: RunProgress) -> Any:
    """What stands on the terminal: one line of sums, and a line per partition."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("TOPIC")
    for title in ("PARTITION", "COMMITTED", "READ", "END", "LAG"):
        table.add_column(title, justify="right")
    for p in progress.partitions:
        table.add_row(p.topic, str(p.partition), *(f"{n:,}" for n in (p.committed, p.read, p.end, p.lag)))
    return Group(Text(summary(progress), style="bold"), table)


def summary(progress: RunProgress) -> str:
    parts = [
        f"{progress.pipeline}: {progress.state}",
        f"batch {progress.batch:,}",
        f"{progress.rows:,} rows",
        f"{progress.rows_per_s:,.0f} rows/s",
        f"{progress.files:,} files",
        f"lag {progress.lag:,}",
    ]
    if progress.dead_letters:
        parts.append(f"{progress.dead_letters:,} dead letters")
    if progress.last_commit_ms is not None:
        parts.append(f"committed {(iso(progress.last_commit_ms) or '')[11:19]}")
    if progress.eta_s is not None and progress.lag:
        parts.append(f"{duration(progress.eta_s)} left")
    return ", ".join(parts)


def duration(seconds: float) -> str:
    """About how long, for people: 4 s, 12 min, 3.5 h."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def tell_notice(notice: Notice) -> None:
    warn(notice.message)
    if notice.hint:
        tell(f"  {notice.hint}")


def _escaped(text: str) -> str:
    from rich.markup import escape

    return escape(text)
