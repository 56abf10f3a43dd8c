"""A runner in a process of its own that ends, as if by a power cut, at a point that is named to it.

    step:<name>:<n>     when the n-th batch has come to the step
    file:<n>            when the n-th file was begun, and not finished
    written:<n>         when the n-th commit to any table was made, and nobody heard of it yet
    commit:<n>          just before the n-th commit to any table
    merge:<n>, merged:<n>   just before the n-th merge into a table with keys, and just after it
    graves:<n>          when the n-th change of what is deleted was written down, before its table is committed
    time:<ms>           after so long, wherever it is

Processes are forked from one that has imported everything and used nothing, so that a kill costs milliseconds.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable
from typing import Any

from tidelog.pipeline.spec import Pipeline

KILLED = 86
FENCED = 87

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(
    ["pipeline_site", "kill_points", "deltalake", "pyarrow.parquet", "tidelog.pipeline.run.runner"]
)


def run_until(pipeline: Pipeline, point: str, clumsy_seed: int | None = None) -> int:
    """The exit code: 0 where the runner came to its end, KILLED where it was killed, FENCED where it was fenced."""
    process = start(pipeline, point, clumsy_seed)
    process.join(60)
    assert process.exitcode is not None, f"the runner hangs ({point})"
    return int(process.exitcode)


def call(function: Any, *arguments: Any) -> int:
    """The exit code of a process that calls a function of a test module."""
    process = _context.Process(target=function, args=arguments, daemon=True)
    process.start()
    process.join(60)
    assert process.exitcode is not None, "it hangs"
    return int(process.exitcode)


def start(pipeline: Pipeline, point: str = "", clumsy_seed: int | None = None) -> Any:
    process = _context.Process(target=_run, args=(pipeline, point, clumsy_seed), daemon=True)
    process.start()
    return process


def _run(pipeline: Pipeline, point: str, clumsy_seed: int | None) -> None:
    from tidelog.pipeline.errors import Superseded
    from tidelog.pipeline.land.executor import Executor, InProcess
    from tidelog.pipeline.land.progress_events import Event, StepReached
    from tidelog.pipeline.run.runner import Runner

    executor: Executor = InProcess()
    if clumsy_seed is not None:
        from clumsy import Clumsy

        executor = Clumsy(clumsy_seed)
    kind, *arguments = point.split(":")
    listeners = []
    if kind == "step":

        def kill_at(event: Event) -> None:
            if isinstance(event, StepReached) and event.step == arguments[0] and event.batch == int(arguments[1]):
                os._exit(KILLED)

        listeners.append(kill_at)
    elif kind:
        _arm(kind, int(arguments[0]))
    try:
        Runner(pipeline, executor, listeners, timeout_s=20).run()
    except Superseded:
        os._exit(FENCED)


def _arm(kind: str, number: int) -> None:
    from tidelog.pipeline.table import storage
    from tidelog.pipeline.table.pipeline_table import PipelineTable

    counted = [0]

    def count() -> None:
        counted[0] += 1
        if counted[0] == number:
            os._exit(KILLED)

    if kind == "time":
        timer = threading.Timer(number / 1000, os._exit, [KILLED])
        timer.daemon = True
        timer.start()
    elif kind == "file":
        create = storage.create

        def begun(root: str, path: str) -> Any:
            file = create(root, path)
            file.write(b"PAR1 and no more")
            file.flush()
            count()
            file.seek(0)
            file.truncate()
            return file

        storage.create = begun
    elif kind in ("merge", "merged", "graves"):
        _arm_merges(kind, count)
    else:
        write = PipelineTable._write

        def wrapped(self: PipelineTable, *arguments: Any) -> None:
            if kind == "commit":
                count()
            write(self, *arguments)
            if kind == "written":
                count()

        PipelineTable._write = wrapped  # type: ignore[method-assign]


def _arm_merges(kind: str, count: Callable[[], None]) -> None:
    from tidelog.pipeline.table import merging
    from tidelog.pipeline.table.graves import Graves

    merge, add = merging.merge, Graves.add

    def merged(*arguments: Any) -> None:
        if kind == "merge":
            count()
        merge(*arguments)
        if kind == "merged":
            count()

    def added(*arguments: Any) -> int:
        version = add(*arguments)
        if kind == "graves":
            count()
        return version

    merging.merge = merged
    Graves.add = added  # type: ignore[method-assign]
