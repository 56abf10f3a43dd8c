"""Rows of the table of faults: a wall clock that is wrong."""

from __future__ import annotations

import sys
import uuid
from pathlib import Path

from bench import raw
from tests.faults.cluster_judge import Verdict
from tests.faults.cluster_rows import row
from tests.faults.cluster_rows_life import Member
from tests.faults.clusterkit import Stage, until
from tests.faults.faultkit import batch

from tidelog.client import Client

HOUR_S = 3600
CONFIG = {
    "log.retention.check.interval.ms": "1000",
    "log.initial.task.delay.ms": "1000",
    # Records of clients whose clock is right come from the future of a broker that is behind.
    "log.message.timestamp.after.max.ms": str(3 * HOUR_S * 1000),
}


@row("clock")
def clock() -> Verdict:
    """The wall clock of one broker goes an hour ahead, then one behind: nothing times out, no active segment goes."""
    with Stage(CONFIG) as stage:
        shift = stage.root / "shift"
        shifted = stage.cluster.brokers[1]
        shifted.stop()
        shifted._command = (sys.executable, "-m", "tests.faults.shifted_clock", str(shift), "serve")
        shifted.start()
        oracle = stage.load(transactional=2)
        with Client(stage.cluster.bootstrap) as client:
            client.admin.create_topic("kept", assignments={0: [1, 2, 3]}, configs={"retention.ms": str(120_000)})
        group, committed = f"group-{uuid.uuid4().hex[:6]}", dict[int, int]()
        member = Member(stage.cluster.bootstrap, stage.topic, group, committed)
        member.start()
        until(lambda: len(committed) == oracle.partitions, "first commits", 60)
        epochs = {p: stage.state(partition=p)["leader_epoch"] for p in range(6)}
        expected = 0
        for hours in (1, -1, 0):
            shift.write_text(str(hours * HOUR_S))
            before = dict(committed)
            for _ in range(3):
                expected = _append(stage, expected)
                stage.flow(seconds=2)
            until(lambda before=before: all(committed[p] > before[p] for p in before), "commits go on", 30)  # type: ignore[misc]
            active = list((Path(shifted.data_dir) / "kept-0").glob("*.log"))
            stage.claim(bool(active), "active segment", f"kept-0 has no segment at {hours} h")
        after = {p: stage.state(partition=p)["leader_epoch"] for p in range(6)}
        stage.claim(after == epochs, "sessions", f"leader epochs went from {epochs} to {after}")
        for writer in oracle.transactors:
            stage.claim(not writer.fatal, "transaction timeouts", f"{writer.name}: {writer.fatal}")
        member.stop()
        for error in member.errors:
            stage.broken("committed", error)
        return stage.judge(errors_allowed=False)


def _append(stage: Stage, expected: int) -> int:
    """A record more in the topic of the shifted broker: its offset shows that nothing was forgotten."""
    leader = stage.cluster.brokers[stage.leader("kept")]
    with raw.Connection(leader.host, leader.port) as connection:
        answer = connection.produce(raw.produce_frame("kept", 0, batch(b"kept"), acks=-1))
    stage.claim((answer.error_code, answer.base_offset) == (0, expected), "kept", f"answered {answer}, not {expected}")
    return expected + 1
