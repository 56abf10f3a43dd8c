"""Producer ids come from blocks, each asked for once."""

from __future__ import annotations

from collections.abc import Callable

from tidelog.control.controller import ProducerIdBlock
from tidelog.control.errors import ApiError
from tidelog.coordinator.producer_ids import ProducerIds


def test_whoever_takes_the_last_id_of_a_block_has_the_next_one_asked_for() -> None:
    asked: list[Callable[[ProducerIdBlock], None]] = []
    ids = ProducerIds(asked.append)
    taken: list[int | None] = []
    ids.when_ready(lambda: taken.append(ids.take()))
    ids.when_ready(lambda: taken.append(ids.take()))
    assert (taken, len(asked)) == ([], 1)
    asked[0](ProducerIdBlock(100, 3))
    assert (taken, len(asked)) == ([100, 101], 1)
    assert (ids.take(), len(asked)) == (102, 2)
    assert (ids.take(), len(asked)) == (None, 2)
    ids.when_ready(lambda: taken.append(ids.take()))
    asked[1](ProducerIdBlock(1000, 3))
    assert taken == [100, 101, 1000]


def test_who_finds_no_id_has_a_block_asked_for_and_after_a_failure_once_more() -> None:
    asked: list[Callable[[ProducerIdBlock], None]] = []
    ids = ProducerIds(asked.append)
    assert (ids.take(), ids.take(), len(asked)) == (None, None, 1)
    asked[0](ProducerIdBlock(error=ApiError(15)))
    assert (ids.take(), len(asked)) == (None, 2)
    asked[1](ProducerIdBlock(0, 2))
    assert ids.take() == 0


def test_whoever_waits_is_called_where_no_block_can_be_had() -> None:
    asked: list[Callable[[ProducerIdBlock], None]] = []
    ids = ProducerIds(asked.append)
    taken: list[int | None] = []
    ids.when_ready(lambda: taken.append(ids.take()))
    asked[0](ProducerIdBlock(error=ApiError(15)))
    assert taken == [None]
