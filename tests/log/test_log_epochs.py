"""Leader epochs: Kafka's file, and its answer to "where did this epoch end?"."""

from __future__ import annotations

import pytest

from tidelog.log.checkpoints import MalformedCheckpoint
from tidelog.log.leader_epochs import LeaderEpochs


def epochs(*entries: tuple[int, int]) -> LeaderEpochs:
    made = LeaderEpochs()
    for epoch, start in entries:
        made.assign(epoch, start)
    return made


def test_the_file_is_kafkas() -> None:
    made = epochs((0, 0), (3, 17), (5, 40))
    assert made.format() == b"0\n3\n0 0\n3 17\n5 40\n"
    again = LeaderEpochs.parse(made.format(), "path")
    assert again.entries() == [(0, 0), (3, 17), (5, 40)] and not again.dirty


@pytest.mark.parametrize("data", [b"1\n0\n", b"0\n2\n0 0\n", b"0\n1\n0 x\n", b"0\n1\n0\n", b"\xff\xfe"])
def test_a_torn_file_is_told(data: bytes) -> None:
    with pytest.raises((MalformedCheckpoint, ValueError)):
        LeaderEpochs.parse(data, "path")


def test_an_empty_file_has_no_epochs() -> None:
    assert LeaderEpochs.parse(b"", "path").entries() == []


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (-1, None),
        (0, (0, 20)),  # older than all: ends where the oldest known begins
        (2, (2, 30)),
        (3, (2, 30)),  # never led here: the largest one below it
        (4, (4, 50)),
        (6, (6, 99)),  # the newest ends at the log's end
        (7, None),
    ],
)
def test_the_end_of_an_epoch_is_that_of_the_largest_not_past_it(asked: int, answer: tuple[int, int] | None) -> None:
    assert epochs((2, 20), (4, 30), (6, 50)).end_offset_for(asked, 99) == answer


def test_an_epoch_in_which_nothing_was_written_gives_way() -> None:
    made = epochs((1, 0), (2, 10))
    made.assign(3, 10)
    assert made.entries() == [(1, 0), (3, 10)]
    made.assign(4, 5)
    assert made.entries() == [(1, 0), (4, 5)]


def test_an_epoch_keeps_its_first_start() -> None:
    made = epochs((1, 5))
    made.assign(1, 9)
    assert made.entries() == [(1, 5)]
    made.assign(1, 3)
    assert made.entries() == [(1, 3)]


def test_cutting_the_end_forgets_epochs_that_began_there() -> None:
    made = epochs((1, 0), (2, 10), (3, 20))
    made.truncate_from_end(10)
    assert made.entries() == [(1, 0)] and made.latest == 1
    made.truncate_from_end(0)
    assert made.entries() == [] and made.latest == -1


def test_cutting_the_start_moves_the_epoch_that_holds_it() -> None:
    made = epochs((1, 0), (2, 10), (3, 20))
    made.truncate_from_start(15)
    assert made.entries() == [(2, 15), (3, 20)]
    assert made.earliest_epoch_at(15) == 2 and made.earliest_epoch_at(14) == -1
    made.truncate_from_start(15)
    assert made.entries() == [(2, 15), (3, 20)]


def test_nonsense_is_not_taken_down() -> None:
    with pytest.raises(ValueError, match="-1"):
        epochs((-1, 0))
