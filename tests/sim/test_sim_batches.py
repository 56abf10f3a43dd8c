"""Many runs: what is told of them, also where they are stopped early."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidelog.sim.batch_of_runs import Tally, run_all
from tidelog.sim.simulation import RunOutcome
from tidelog.sim.terms import Terms

#: as little as a run can be
SHORT = Terms(length_ms=200, most_faults=0, partitions=1, producers=1)


@pytest.mark.parametrize("workers", [1, 2])
def test_runs_that_were_begun_when_they_are_stopped_are_ended_and_counted(workers: int) -> None:
    begun: list[int] = []

    def seeds() -> Iterator[int]:
        for seed in itertools.count():
            begun.append(seed)
            yield seed

    seen: list[int] = []
    tally = run_all(
        seeds(),
        workers=workers,
        terms=SHORT,
        on_progress=lambda so_far: seen.append(so_far.runs),
        is_stopped=lambda: bool(seen),
    )
    # The last one was looked at and not begun.
    assert tally.runs == len(begun) - 1 == seen[-1]
    assert not tally.failed


def test_a_tally_adds_up_faults_operations_and_simulated_time() -> None:
    tally = Tally(took_s=2.0)
    for seed in range(2):
        operations = Counter({"produce: NONE": 6, "produce: timed out": 1, "fetch: NONE": 3})
        witnessed = Counter({"transaction aborted": 5})
        tally.add(RunOutcome(seed, None, [], 30_000, 9, Counter(kill=4), Counter(), operations, witnessed))
    assert tally.injected == {"kill": 8}
    assert tally.by_operation() == {"fetch": (6, 6), "produce": (14, 12)}
    assert tally.success == 0.9
    assert tally.speed == 30.0


def wait_for_children(pid: int) -> None:
    children = Path(f"/proc/{pid}/task/{pid}/children")
    while not children.read_text():
        time.sleep(0.01)


def test_ctrl_c_ends_the_runs_in_hand_and_tells_what_came_of_all_and_where_to_go_on() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "tidelog.cli.main", "sim", "--first", "7", "--seeds", "1000", "--workers", "2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # As at a terminal: the signal reaches the workers too.
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        assert process.stderr is not None
        assert process.stderr.readline() == "running seeds 7 and up on 2 processes\n"
        wait_for_children(process.pid)
        os.killpg(process.pid, signal.SIGINT)
        _, told = process.communicate(timeout=120)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130, told
    lines = told.splitlines()
    runs = int(next(line for line in lines if " simulated seconds a second, " in line).split()[0])
    assert runs > 0
    assert lines[-1] == f"to go on: tidelog sim --first {7 + runs} --seeds {1000 - runs}"
    assert "faults:" in lines and "operations, and how many of them succeeded at once:" in lines
    assert "Traceback" not in told
