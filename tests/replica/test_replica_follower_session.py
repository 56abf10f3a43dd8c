"""A follower's end of a fetch session, by itself and against the leader's end."""

from __future__ import annotations

from replica_kit import ID

from tidelog.replica.fetch_sessions import FetchSessions
from tidelog.replica.follower_session import FetchPosition, FollowerSession, NextFetch
from tidelog.wire import messages

A, B = (ID, 0), (ID, 1)


def at(offset: int) -> FetchPosition:
    return FetchPosition(offset, 0, 5, 5)


def test_only_the_first_request_of_a_session_names_everything() -> None:
    session = FollowerSession()
    first = session.next([(A, at(0)), (B, at(0))])
    assert (first.session_id, first.session_epoch, len(first.named)) == (0, 0, 2)
    session.answered(first, 77)
    second = session.next([(A, at(3)), (B, at(0))])
    assert second == NextFetch(2, 77, 1, [(A, at(3))], [])
    assert session.next([(A, at(3)), (B, None)]) == NextFetch(3, 77, 2, [], [B])


def test_without_a_session_every_request_names_everything() -> None:
    session = FollowerSession()
    session.answered(session.next([(A, at(0))]), 0)
    again = session.next([(A, at(0))])
    assert again.is_full and again.named == [(A, at(0))]


def test_after_an_error_the_old_session_is_closed_and_everything_is_named() -> None:
    session = FollowerSession()
    session.answered(session.next([(A, at(0))]), 77)
    session.begin_anew()
    again = session.next([(A, at(0))])
    assert (again.session_id, again.session_epoch, again.named) == (77, 0, [(A, at(0))])


def test_an_answer_says_nothing_of_a_partition_that_was_named_anew_behind_it() -> None:
    session = FollowerSession()
    session.answered(session.next([(A, at(0)), (B, at(0))]), 77)
    first = session.next([(A, at(3))])
    second = session.next([(B, at(9))])
    assert session.asked(A, first.number) == at(3)
    assert session.asked(B, first.number) is None
    assert session.asked(B, second.number) == at(9)
    session.next([(A, None)])
    assert session.asked(A, first.number) is None


def test_what_tells_the_leader_nothing_is_no_news() -> None:
    session = FollowerSession()
    session.next([(A, at(0))])
    assert not session.has_news([(A, at(0)), (B, None)])
    assert session.has_news([(A, at(1))])
    assert session.has_news([(B, at(0))])
    assert session.has_news([(A, None)])


def test_both_ends_agree_on_epochs_and_partitions() -> None:
    leader = FetchSessions(10, 1000, lambda: 77)
    session = FollowerSession()

    def fetch(*changes: tuple[tuple[bytes, int], FetchPosition | None]) -> dict[int, int]:
        """Partition -> offset as the leader has it after a request."""
        request = messages.FetchRequest
        wanted = session.next(changes)
        topics = [
            request.FetchTopic(
                topic_id=ID, partitions=[request.FetchPartition(partition=place[1], fetch_offset=position.fetch_offset)]
            )
            for place, position in wanted.named
        ]
        forgotten = [request.ForgottenTopic(topic_id=place[0], partitions=[place[1]]) for place in wanted.forgotten]
        body = request(
            replica_id=2,
            session_id=wanted.session_id,
            session_epoch=wanted.session_epoch,
            topics=topics,
            forgotten_topics_data=forgotten,
        )
        context = leader.begin(body, True, lambda topic_id: "t", 0)
        assert context.error_code == 0
        session.answered(wanted, context.session_id)
        return {partition.index: partition.fetch_offset for partition in context.partitions}

    assert fetch((A, at(0)), (B, at(5))) == {0: 0, 1: 5}
    assert fetch((A, at(2))) == {0: 2, 1: 5}
    assert fetch((B, None)) == {0: 2}
    assert fetch() == {0: 2}
    assert fetch((B, at(6))) == {0: 2, 1: 6}
