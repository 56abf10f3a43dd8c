"""`format("chaos")`: our writer, whose tasks and driver die where a plan says so.

A plan is a directory. Whoever is about to die at a step that has a file there removes the file and dies, so that each
file is one death:

    raise-T, kill-T       the first attempt of task T, after it has written and prepared everything
    before-decision, after-decision, among-commits, before-done, after-done
                          the process that commits for the driver
    driver-…              the same, and the driver's Python and JVM with it, whose pids are in the file
    gather                no death: the first commits wait until so many processes are at one, as the file says, so that
                          Spark has as many, and lets them take turns from then on
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType


def dies(plan: str, step: str) -> bool:
    """Kills this process if it is planned."""
    for name in (step, f"driver-{step}"):
        path = Path(plan) / name
        try:
            pids = [int(pid) for pid in path.read_text().split()]
            path.unlink()
        except FileNotFoundError:
            continue
        for pid in [*pids, os.getpid()]:
            os.kill(pid, signal.SIGKILL)
    return False


def gather(plan: str) -> None:
    """Waits with the first commits of a driver for each other."""
    there = Path(plan) / "gather"
    if there.exists():
        (Path(plan) / f"gathered-{os.getpid()}").touch()
        deadline = time.monotonic() + 60
        while len(list(Path(plan).glob("gathered-*"))) < int(there.read_text()) and time.monotonic() < deadline:
            time.sleep(0.02)


def _after_task(plan: str, message: WriterCommitMessage) -> WriterCommitMessage:
    place = message.place  # type: ignore[attr-defined]
    if place.attempt == 0:
        dies(plan, f"kill-{place.task}")
        path = Path(plan) / f"raise-{place.task}"
        if path.exists():
            path.unlink()
            raise RuntimeError("this task fails by plan, after it has written everything")
    return message


def _arrange_deaths(plan: str) -> None:
    """The steps of a commit, in the process that it happens in."""
    from tidelog.client.transactions import Transactions
    from tidelog.pipeline.write.committing import Committer
    from tidelog.pipeline.write.ledger import Hold

    if hasattr(Committer, "_plan"):
        return
    Committer._plan = plan  # type: ignore[attr-defined]
    check_open, end, write = Committer.check_open, Transactions.end, Hold.write

    def checked(self: Committer, prepared: Any) -> float:
        decide_by = check_open(self, prepared)
        dies(plan, "before-decision")
        return decide_by

    def ended(self: Transactions, prepared: Any, committed: bool) -> Any:
        if not committed:
            return end(self, prepared, committed)
        all_of_them = list(prepared)
        dies(plan, "after-decision")
        if any((Path(plan) / name).exists() for name in ("among-commits", "driver-among-commits")):
            end(self, all_of_them[: len(all_of_them) // 2], committed)
            dies(plan, "among-commits")
        return end(self, all_of_them, committed)

    def wrote(self: Hold, entry: Any, by: float) -> None:
        if entry.done:
            dies(plan, "before-done")
        write(self, entry, by)
        if entry.done:
            dies(plan, "after-done")

    Committer.check_open = checked  # type: ignore[method-assign]
    Transactions.end = ended  # type: ignore[method-assign]
    Hold.write = wrote  # type: ignore[method-assign]


class ChaosWriter(DataSourceArrowWriter):
    def __init__(self, inner: Any, plan: str) -> None:
        self.inner = inner
        self.plan = plan

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return _after_task(self.plan, self.inner.write(iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        _arrange_deaths(self.plan)
        self.inner.commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self.inner.abort(messages)


class ChaosStreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, inner: Any, plan: str) -> None:
        self.inner = inner
        self.plan = plan

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return _after_task(self.plan, self.inner.write(iterator))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        _arrange_deaths(self.plan)
        gather(self.plan)
        self.inner.commit(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self.inner.abort(messages, batchId)


class Chaos(DataSource):
    @classmethod
    def name(cls) -> str:
        return "chaos"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        from tidelog.pipeline.spark.topic_sink import topic_writer

        return ChaosWriter(topic_writer(_without_plan(self.options), schema, overwrite), self.options["plan"])

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        from tidelog.pipeline.spark.topic_sink import topic_stream_writer

        inner = topic_stream_writer(_without_plan(self.options), schema, overwrite)
        return ChaosStreamWriter(inner, self.options["plan"])


def _without_plan(options: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in dict(options).items() if name != "plan"}
