"""Workers that are killed at random: a short run of `python -m tests.workers.kill_soak`, and its oracle."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.systems.judged import JUDGED
from kill_oracle import Event, repeats, violations
from kill_soak import run

from tidelog.workers.offset_map import encode


@pytest.mark.slow
@pytest.mark.parametrize(("protocol", "exactly_once"), [("classic", False), ("consumer", True)])
def test_whatever_is_killed_every_record_is_handled_in_order_and_only_what_was_in_hand_again(
    request: pytest.FixtureRequest, tmp_path: Path, protocol: str, exactly_once: bool
) -> None:
    system = JUDGED[request.config.getoption("--broker")]
    arena, found = run(system, tmp_path, 3, 16, protocol, exactly_once)
    assert found == []
    assert arena.faults["kill"] == 3


def history(*lines: str) -> list[Event]:
    """`1 a start 0` : at, process, kind, number of the record of key k, whose offset is the same."""
    events = []
    for line in lines:
        at, process, kind, number, *rest = line.split()
        events.append(Event(int(at), process, kind, (0, int(number)), "k", int(number), rest[0] if rest else ""))
    return events


GOOD = ("1 a start 0", "2 a done 0", "3 a start 1", "4 a done 1", "5 a start 2", "6 a done 2")


def test_the_oracle_finds_nothing_wrong_with_a_good_history() -> None:
    assert violations(history(*GOOD), {"k": 3}, {}) == [] and repeats(history(*GOOD)) == 0
    # Killed with 1 and 2 in hand, and only 0 committed: both are repeated.
    again = ("7 b start 1", "8 b done 1", "9 b start 2", "10 b done 2")
    assert violations(history(*GOOD, *again), {"k": 3}, {"a": 6}) == [] and repeats(history(*GOOD, *again)) == 2


@pytest.mark.parametrize(
    ("lines", "killed", "said"),
    [
        (GOOD[:4], {}, "never handled: [2]"),
        (("1 a start 1", "2 a done 1", "3 a start 0", "4 a done 0", *GOOD[4:]), {}, "was repeated after"),
        (("1 a start 0", "2 a start 1", "3 a done 0", "4 a done 1", *GOOD[4:]), {}, "began before"),
        ((*GOOD, "7 b start 1", "8 b done 1"), {"a": 6}, "1 was repeated after 2"),
        ((*GOOD, "7 b start 2", "8 b done 2"), {}, "was not killed"),
        ((*GOOD, "7 b start 2", "8 b done 2"), {"a": 9}, "was not killed"),
        ((*GOOD, "7 a commit 3", "8 b start 2", "9 b done 2"), {"a": 7}, "had committed it"),
        ((*GOOD, f"7 a commit 1 {encode(1, [1], 3)[0]}", "8 b start 2", "9 b done 2"), {"a": 7}, "had committed it"),
    ],
)
def test_the_oracle_notices(lines: tuple[str, ...], killed: dict[str, int], said: str) -> None:
    assert any(said in violation for violation in violations(history(*lines), {"k": 3}, killed))
