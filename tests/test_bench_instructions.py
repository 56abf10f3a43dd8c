"""`python -m bench.instructions` says what it needs, and does not take a refusal for an answer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from bench.instructions import MISSING_VALGRIND, error_codes, table

from tidelog.wire import messages
from tidelog.wire.errors import ErrorCode

REPOSITORY = Path(__file__).parent.parent


def test_without_valgrind_it_says_how_to_get_it(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench.instructions"],
        cwd=REPOSITORY,
        env={**os.environ, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr.strip()) == (1, MISSING_VALGRIND)


def test_an_error_is_found_however_deep_it_stands() -> None:
    of = messages.OffsetCommitResponse
    codes = (ErrorCode.NONE, ErrorCode.NOT_COORDINATOR)
    partitions = [of.OffsetCommitResponsePartition(error_code=code) for code in codes]
    answer = of(topics=[of.OffsetCommitResponseTopic(partitions=partitions)])
    assert list(error_codes(answer)) == [ErrorCode.NOT_COORDINATOR]
    assert list(error_codes(messages.HeartbeatResponse(error_code=3))) == [3]


def test_the_table_sets_both_checkouts_side_by_side() -> None:
    first, second = table({"Produce": 90_000}, {"Produce": 100_000}).splitlines()
    assert first.split() == ["before", "now", "ratio"]
    assert second.split() == ["Produce", "100,000", "90,000", "0.90"]
