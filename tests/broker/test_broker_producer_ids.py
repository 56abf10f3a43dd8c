"""Producer ids come from blocks, each asked for once."""

from __future__ import annotations

from collections.abc import Callable

from tidelog.control.controller import ProducerIdBlock
from tidelog.control.errors import ApiError
from tidelog.producer_ids import ProducerIds


def test_ids_are_taken_from_a_block_until_it_is_used_up() -> None:
    asked: list[Callable[[ProducerIdBlock], None]] = []
    ids = ProducerIds(asked.append)
    assert ids.take() is None
    taken: list[int | None] = []
    ids.when_ready(lambda: taken.append(ids.take()))
    ids.when_ready(lambda: taken.append(ids.take()))
    assert (taken, len(asked)) == ([], 1)
    asked[0](ProducerIdBlock(100, 3))
    assert taken == [100, 101]
    assert (ids.take(), ids.take()) == (102, None)
    ids.when_ready(lambda: taken.append(ids.take()))
    asked[1](ProducerIdBlock(1000, 3))
    assert taken == [100, 101, 1000]


def test_whoever_waits_is_called_where_no_block_can_be_had() -> None:
    asked: list[Callable[[ProducerIdBlock], None]] = []
    ids = ProducerIds(asked.append)
    taken: list[int | None] = []
    ids.when_ready(lambda: taken.append(ids.take()))
    asked[0](ProducerIdBlock(error=ApiError(15)))
    assert taken == [None]
