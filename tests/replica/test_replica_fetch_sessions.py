"""Fetch sessions as scripts: a request per line, the outcome beside it."""

from __future__ import annotations

from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from tidelog.replica.fetch_sessions import MAX_EPOCH, FetchContext, FetchSessions
from tidelog.wire.errors import ErrorCode

IDS = {"a": b"a" * 16, "b": b"b" * 16}
NAMES = {topic_id: name for name, topic_id in IDS.items()}


def fetch(
    *partitions: tuple[str, int, int],
    session: int = 0,
    epoch: int = 0,
    forget: tuple[tuple[str, int], ...] = (),
    replica: int = -1,
) -> Any:
    def topic(name: str, entries: list[Any]) -> Any:
        return SimpleNamespace(topic=name, topic_id=IDS.get(name, b"?" * 16), partitions=entries)

    wanted = [
        topic(
            name,
            [
                SimpleNamespace(
                    partition=index,
                    fetch_offset=offset,
                    partition_max_bytes=1000,
                    current_leader_epoch=-1,
                    last_fetched_epoch=-1,
                    log_start_offset=-1,
                    high_watermark=2**63 - 1,
                )
            ],
        )
        for name, index, offset in partitions
    ]
    return SimpleNamespace(
        session_id=session,
        session_epoch=epoch,
        topics=wanted,
        forgotten_topics_data=[topic(name, [index]) for name, index in forget],
        replica_id=replica,
    )


def sessions(slots: int = 10, eviction_ms: int = 100) -> FetchSessions:
    ids = count(1)
    return FetchSessions(slots, eviction_ms, lambda: next(ids))


def begin(where: FetchSessions, request: Any, now_ms: int = 0, by_id: bool = False) -> FetchContext:
    return where.begin(request, by_id, lambda topic_id: NAMES.get(topic_id, ""), now_ms)


def places(context: FetchContext) -> list[tuple[str, int, int]]:
    return [(p.topic, p.index, p.fetch_offset) for p in context.partitions]


def test_a_full_fetch_opens_a_session_and_an_incremental_one_repeats_its_partitions() -> None:
    cache = sessions()
    first = begin(cache, fetch(("a", 0, 5), ("a", 1, 7)))
    assert (first.session_id, first.incremental) == (1, False)
    second = begin(cache, fetch(session=1, epoch=1))
    assert (second.session_id, second.incremental, second.error_code) == (1, True, 0)
    assert places(second) == [("a", 0, 5), ("a", 1, 7)]


def test_an_incremental_fetch_updates_adds_and_forgets() -> None:
    cache = sessions()
    begin(cache, fetch(("a", 0, 5), ("a", 1, 7)))
    context = begin(cache, fetch(("a", 1, 9), ("b", 0, 1), session=1, epoch=1, forget=(("a", 0),)))
    assert places(context) == [("a", 1, 9), ("b", 0, 1)]


@pytest.mark.parametrize(
    ("session", "epoch", "by_id", "code"),
    [
        (9, 1, False, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (1, 2, False, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (1, 1, True, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
    ],
)
def test_a_request_that_does_not_fit_its_session_is_refused(session: int, epoch: int, by_id: bool, code: int) -> None:
    cache = sessions()
    begin(cache, fetch(("a", 0, 5)))
    assert begin(cache, fetch(session=session, epoch=epoch), by_id=by_id).error_code == code


def test_a_repeated_epoch_is_refused_so_that_a_lost_answer_is_noticed() -> None:
    cache = sessions()
    begin(cache, fetch(("a", 0, 5)))
    assert begin(cache, fetch(session=1, epoch=1)).error_code == 0
    assert begin(cache, fetch(session=1, epoch=1)).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_epochs_wrap_to_one() -> None:
    cache = sessions()
    session = begin(cache, fetch(("a", 0, 5))).session
    assert session is not None
    session.epoch = MAX_EPOCH
    assert begin(cache, fetch(session=1, epoch=MAX_EPOCH)).error_code == 0
    assert session.epoch == 1


def test_a_final_epoch_closes_the_session_and_still_fetches() -> None:
    cache = sessions()
    begin(cache, fetch(("a", 0, 5)))
    context = begin(cache, fetch(("a", 0, 6), session=1, epoch=-1))
    assert (context.session_id, places(context)) == (0, [("a", 0, 6)])
    assert len(cache) == 0


def test_forgetting_every_partition_ends_the_session() -> None:
    cache = sessions()
    begin(cache, fetch(("a", 0, 5)))
    context = begin(cache, fetch(session=1, epoch=1, forget=(("a", 0),)))
    assert (context.session_id, context.partitions, len(cache)) == (0, [], 0)


def test_a_topic_that_appears_later_is_found_by_its_id() -> None:
    cache = sessions()
    known: dict[bytes, str] = {}
    request = fetch(("a", 0, 5))
    first = cache.begin(request, True, lambda topic_id: known.get(topic_id, ""), 0)
    assert first.partitions[0].topic == ""
    known[IDS["a"]] = "a"
    second = cache.begin(fetch(session=1, epoch=1), True, lambda topic_id: known.get(topic_id, ""), 0)
    assert second.partitions[0].topic == "a"


def test_a_full_cache_grants_no_session_until_one_is_stale() -> None:
    cache = sessions(slots=1)
    assert begin(cache, fetch(("a", 0, 5)), now_ms=0).session_id == 1
    assert begin(cache, fetch(("b", 0, 5)), now_ms=100).session_id == 0
    assert begin(cache, fetch(("b", 0, 5)), now_ms=101).session_id == 2


def test_a_larger_session_replaces_a_smaller_one_that_has_had_its_time() -> None:
    cache = sessions(slots=1)
    begin(cache, fetch(("a", 0, 5)), now_ms=0)
    begin(cache, fetch(session=1, epoch=1), now_ms=90)
    assert begin(cache, fetch(("b", 0, 5), ("b", 1, 5)), now_ms=101).session_id == 2


def test_a_follower_evicts_a_consumer_and_never_the_reverse() -> None:
    cache = sessions(slots=1)
    begin(cache, fetch(("a", 0, 5), ("a", 1, 5)), now_ms=0)
    assert begin(cache, fetch(("a", 0, 5), replica=2), now_ms=1).session_id == 2
    assert begin(cache, fetch(("a", 0, 5), ("a", 1, 5)), now_ms=2).session_id == 0


def test_a_partition_is_told_again_only_when_something_changed() -> None:
    partition = begin(sessions(), fetch(("a", 0, 5))).partitions[0]
    assert partition.must_tell(10, 0, has_news=False)
    assert not partition.must_tell(10, 0, has_news=False)
    assert partition.must_tell(11, 0, has_news=False)
    assert partition.must_tell(11, 3, has_news=False)
    assert partition.must_tell(11, 3, has_news=True)


def test_a_partition_that_gave_records_goes_behind_the_others() -> None:
    cache = sessions()
    session = begin(cache, fetch(("a", 0, 5), ("a", 1, 7))).session
    assert session is not None
    session.move_to_end(("a", 0))
    assert places(begin(cache, fetch(session=1, epoch=1))) == [("a", 1, 7), ("a", 0, 5)]
