"""What a link promises, over sockets and over the network in memory alike."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from net_peers import TIMEOUT_MS, TIMES, MemoryPeers, Peers, SocketPeers

from tidelog.api.api_versions import served
from tidelog.peers import Answered, Failure, FailureKind
from tidelog.wire import messages
from tidelog.wire.apis import APIS, ApiKey
from tidelog.wire.errors import ErrorCode

NEWEST_FETCH = APIS[ApiKey.FETCH].max_version


@pytest.fixture(params=[SocketPeers, MemoryPeers], ids=["sockets", "memory"])
def peers(request: pytest.FixtureRequest) -> Iterator[Peers]:
    made: Peers = request.param()
    yield made
    made.close()
    assert made.reports == []


def without(api_key: int) -> messages.ApiVersionsResponse:
    answer = served()
    answer.api_keys = [each for each in answer.api_keys if each.api_key != api_key]
    return answer


def up_to(api_key: int, version: int) -> messages.ApiVersionsResponse:
    answer = served()
    for each in answer.api_keys:
        if each.api_key == api_key:
            each.max_version = version
    return answer


# -- asking -----------------------------------------------------------------------------------------------------


def test_a_request_is_answered_in_the_newest_common_version(peers: Peers) -> None:
    outcome = peers.ask(peers.link(), 7)
    assert outcome == Answered(messages.FetchResponse(session_id=7), NEWEST_FETCH)
    assert peers.received[0].header.client_id == "broker-1-test"


def test_a_peer_of_an_older_release_is_asked_in_its_version(peers: Peers) -> None:
    peers.versions = lambda: up_to(ApiKey.FETCH, 12)
    assert peers.ask(peers.link(), 7).version == 12


def test_a_caller_may_ask_for_an_older_version(peers: Peers) -> None:
    assert peers.ask(peers.link(), 7, at_most=11).version == 11


def test_a_request_can_be_made_for_the_version_that_was_found(peers: Peers) -> None:
    peers.versions = lambda: up_to(ApiKey.FETCH, 12)
    link = peers.link()
    made_for: list[int] = []

    def make(version: int) -> messages.FetchRequest:
        made_for.append(version)
        return messages.FetchRequest(session_id=3)

    link.send(ApiKey.FETCH, make, peers.outcomes.append, TIMEOUT_MS)
    peers.until(lambda: peers.outcomes)
    assert made_for == [12]
    assert peers.numbers == [3]


def test_a_peer_that_does_not_know_our_api_versions_is_asked_again(peers: Peers) -> None:
    answers = [messages.ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION), served()]
    peers.versions = lambda: answers.pop(0)
    assert peers.ask(peers.link(), 7).message.session_id == 7


def test_a_peer_that_knows_no_api_versions_at_all_is_given_up(peers: Peers) -> None:
    peers.versions = lambda: messages.ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    outcome = peers.ask(peers.link())
    assert (outcome.kind, outcome.maybe_done, peers.connected) == (FailureKind.MALFORMED, False, 2)


def test_an_api_that_the_peer_does_not_serve_fails_unsent(peers: Peers) -> None:
    peers.versions = lambda: without(ApiKey.FETCH)
    outcome = peers.ask(peers.link())
    assert (outcome.kind, outcome.maybe_done) == (FailureKind.UNSUPPORTED_VERSION, False)
    assert "Fetch" in outcome.why and "broker 2" in outcome.why
    assert peers.received == []


def test_a_field_that_the_common_version_lacks_is_not_dropped(peers: Peers) -> None:
    peers.versions = lambda: up_to(ApiKey.ADD_PARTITIONS_TO_TXN, 3)
    request = messages.AddPartitionsToTxnRequest
    asked = request(transactions=[request.AddPartitionsToTxnTransaction(transactional_id="t")])
    peers.link().send(ApiKey.ADD_PARTITIONS_TO_TXN, asked, peers.outcomes.append, TIMEOUT_MS)
    peers.until(lambda: peers.outcomes)
    assert peers.failures[0].kind is FailureKind.UNSUPPORTED_VERSION
    assert "transactions" in peers.failures[0].why


def test_many_requests_are_under_way_at_once_and_answered_in_their_order(peers: Peers) -> None:
    peers.answers_at_once = False
    link = peers.link()
    for number in range(500):
        peers.send(link, number)
    peers.until(lambda: len(peers.received) == 500)
    assert (peers.outcomes, link.unanswered) == ([], 500)
    for received in reversed(peers.received):
        received.answer()
    peers.until(lambda: len(peers.outcomes) == 500)
    assert peers.numbers == list(range(500))
    assert (peers.connected, link.unanswered) == (1, 0)


def test_a_peer_takes_one_request_after_the_other_where_it_wants_to(peers: Peers) -> None:
    peers.answers_at_once = peers.allows_next = False
    link = peers.link()
    for number in range(3):
        peers.send(link, number)
    for number in range(3):
        peers.until(lambda number=number: len(peers.received) > number)
        peers.settle()
        assert len(peers.received) == number + 1
        peers.received[number].answer()
    peers.until(lambda: len(peers.outcomes) == 3)
    assert peers.numbers == [0, 1, 2]


def test_links_do_not_wait_for_each_other(peers: Peers) -> None:
    peers.answers_at_once = False
    slow, quick = peers.link(), peers.link()
    peers.send(slow, 1)
    peers.until(lambda: len(peers.received) == 1)
    peers.send(quick, 2)
    peers.until(lambda: len(peers.received) == 2)
    peers.received[1].answer()
    peers.until(lambda: peers.outcomes)
    assert (peers.numbers, peers.connected) == ([2], 2)


def test_a_connection_serves_all_requests_of_its_link(peers: Peers) -> None:
    link = peers.link()
    for number in range(20):
        peers.ask(link, number)
    assert (peers.numbers, peers.connected) == (list(range(20)), 1)


def test_an_answer_can_be_followed_by_the_next_request_at_once(peers: Peers) -> None:
    link = peers.link()
    numbers: list[int] = []

    def go_on(outcome: Answered[messages.FetchResponse] | Failure) -> None:
        assert isinstance(outcome, Answered)
        numbers.append(outcome.message.session_id)
        if len(numbers) < 50:
            link.send(ApiKey.FETCH, messages.FetchRequest(session_id=len(numbers)), go_on, TIMEOUT_MS)

    link.send(ApiKey.FETCH, messages.FetchRequest(session_id=0), go_on, TIMEOUT_MS)
    peers.until(lambda: len(numbers) == 50)
    assert numbers == list(range(50))


def test_large_records_arrive_in_place_of_one_buffer(peers: Peers) -> None:
    records = [bytes([number]) * (12 << 20) for number in range(2)]
    peers.answers_at_once = False
    link = peers.link()
    seen: list[bool] = []

    def compare(outcome: Any) -> None:
        found = outcome.message.responses[0].partitions[0].records
        seen.append(isinstance(found, memoryview) and found == records[len(seen)])

    response = messages.FetchResponse
    for each in records:
        link.send(ApiKey.FETCH, messages.FetchRequest(), compare, TIMEOUT_MS)
        peers.until(lambda: len(peers.received) == len(seen) + 1)
        partition = response.PartitionData(records=each)
        peers.received[-1].answer(
            response(responses=[response.FetchableTopicResponse(topic_id=bytes(16), partitions=[partition])])
        )
        peers.until(lambda: len(seen) == len(peers.received))
    assert seen == [True, True]


def test_large_requests_arrive_whole(peers: Peers) -> None:
    link = peers.link()
    records = bytes(range(256)) * (32 << 10)
    request = messages.ProduceRequest
    partition = request.PartitionProduceData(index=0, records=records)
    asked = request(acks=1, topic_data=[request.TopicProduceData(name="t", partition_data=[partition])])
    peers.answers_at_once = False
    link.send(ApiKey.PRODUCE, asked, peers.outcomes.append, TIMEOUT_MS, at_most=9)
    peers.until(lambda: peers.received)
    assert bytes(peers.received[0].body.topic_data[0].partition_data[0].records) == records


def test_an_answer_larger_than_allowed_ends_the_connection(peers: Peers) -> None:
    peers.answers_at_once = False
    link = peers.link(max_answer_bytes=2000)
    peers.send(link)
    peers.until(lambda: peers.received)
    response = messages.FetchResponse
    partition = response.PartitionData(records=bytes(3000))
    peers.received[-1].answer(response(responses=[response.FetchableTopicResponse(partitions=[partition])]))
    peers.until(lambda: peers.outcomes)
    assert (peers.failures[0].kind, peers.failures[0].maybe_done) == (FailureKind.MALFORMED, True)


def test_a_done_that_raises_is_reported_and_harms_nobody_else(peers: Peers) -> None:
    link = peers.link()

    def fail(outcome: object) -> None:
        raise ValueError("a bug")

    link.send(ApiKey.FETCH, messages.FetchRequest(), fail, TIMEOUT_MS)
    assert peers.ask(link, 5).message.session_id == 5
    assert [str(error) for _, error in peers.reports] == ["a bug"]
    peers.reports.clear()


def test_a_request_that_cannot_be_written_is_reported_and_fails_alone(peers: Peers) -> None:
    link = peers.link()
    asked = messages.FetchRequest(max_wait_ms=1 << 40)
    link.send(ApiKey.FETCH, asked, peers.outcomes.append, TIMEOUT_MS)
    peers.until(lambda: peers.outcomes)
    assert (peers.failures[0].kind, peers.failures[0].maybe_done) == (FailureKind.MALFORMED, False)
    assert peers.ask(link, 5).message.session_id == 5
    assert len(peers.reports) == 1
    peers.reports.clear()


# -- time-outs --------------------------------------------------------------------------------------------------


def test_a_request_without_an_answer_times_out_once(peers: Peers) -> None:
    peers.answers_at_once = False
    link = peers.link()
    peers.send(link)
    peers.until(lambda: peers.received)
    peers.pass_time(TIMEOUT_MS - 1)
    assert peers.outcomes == []
    peers.pass_time(10 * TIMEOUT_MS)
    (failure,) = peers.outcomes
    assert (failure.kind, failure.maybe_done) == (FailureKind.TIMED_OUT, True)
    assert "Fetch" in failure.why
    assert link.unanswered == 0


def test_an_answer_takes_the_deadline_of_its_request_away(peers: Peers) -> None:
    link = peers.link()
    peers.ask(link, 0)
    before = peers.timers
    for number in range(10):
        peers.ask(link, number)
    assert peers.timers == before


def test_an_answer_after_its_time_out_is_dropped_and_the_next_one_is_not(peers: Peers) -> None:
    peers.answers_at_once = False
    link = peers.link()
    peers.send(link, 1, timeout_ms=3000)
    peers.send(link, 2, timeout_ms=1000)
    peers.send(link, 3, timeout_ms=3000)
    peers.until(lambda: len(peers.received) == 3)
    peers.received[0].answer()
    peers.until(lambda: peers.numbers == [1])
    peers.pass_time(1000)
    assert [failure.kind for failure in peers.failures] == [FailureKind.TIMED_OUT]
    peers.received[1].answer()
    peers.received[2].answer()
    peers.until(lambda: len(peers.outcomes) == 3)
    assert (peers.numbers, peers.connected) == ([1, 3], 1)


def test_a_peer_that_says_nothing_until_a_time_out_loses_its_connection(peers: Peers) -> None:
    peers.answers_at_once = False
    link = peers.link()
    peers.send(link, 1, timeout_ms=1000)
    peers.send(link, 2, timeout_ms=2000)
    peers.until(lambda: len(peers.received) == 2)
    peers.pass_time(1000)
    peers.settle()
    assert [failure.kind for failure in peers.failures] == [FailureKind.TIMED_OUT, FailureKind.DISCONNECTED]
    assert all(failure.maybe_done for failure in peers.failures)
    peers.answers_at_once = True
    peers.pass_time(TIMES.backoff_ms)
    assert peers.ask(link, 3).message.session_id == 3
    assert peers.connected == 2


def test_a_peer_that_accepts_and_stays_silent_is_unreachable_after_the_set_up_time(peers: Peers) -> None:
    peers.versions = lambda: None
    link = peers.link()
    peers.send(link, 1, timeout_ms=60_000)
    peers.until(lambda: peers.connected)
    peers.pass_time(TIMES.setup_ms - 1)
    assert peers.outcomes == []
    peers.pass_time(1)
    peers.until(lambda: peers.outcomes)
    (failure,) = peers.failures
    assert (failure.kind, failure.maybe_done) == (FailureKind.UNREACHABLE, False)


def test_a_request_that_times_out_before_there_is_a_connection_was_not_sent(peers: Peers) -> None:
    peers.versions = lambda: None
    link = peers.link()
    peers.send(link, 1, timeout_ms=1000)
    peers.send(link, 2, timeout_ms=60_000)
    peers.until(lambda: peers.connected)
    peers.pass_time(1000)
    (failure,) = peers.failures
    assert (failure.kind, failure.maybe_done) == (FailureKind.TIMED_OUT, False)
    assert link.unanswered == 1


# -- a peer that is gone ----------------------------------------------------------------------------------------


def test_a_dead_process_refuses_at_once(peers: Peers) -> None:
    peers.kill()
    before_ms = peers.clock.now_ms
    outcome = peers.ask(peers.link())
    assert (outcome.kind, outcome.maybe_done) == (FailureKind.REFUSED, False)
    assert "broker 2" in outcome.why
    assert peers.clock.now_ms == before_ms


def test_a_second_look_at_a_dead_process_waits_for_the_back_off_only(peers: Peers) -> None:
    peers.kill()
    link = peers.link()
    peers.ask(link)
    for wait_ms in (100, 200, 400, 800, 1000, 1000):
        count = len(peers.outcomes)
        peers.send(link, timeout_ms=60_000)
        peers.pass_time(wait_ms - 1)
        peers.settle()
        assert len(peers.outcomes) == count, wait_ms
        peers.pass_time(1)
        peers.until(lambda count=count: len(peers.outcomes) > count)
    assert {failure.kind for failure in peers.failures} == {FailureKind.REFUSED}


def test_requests_under_way_fail_as_maybe_done_when_the_connection_is_lost(peers: Peers) -> None:
    peers.answers_at_once = False
    link = peers.link()
    for number in range(3):
        peers.send(link, number)
    peers.until(lambda: len(peers.received) == 3)
    peers.received[0].answer()
    peers.until(lambda: peers.numbers)
    peers.kill()
    peers.until(lambda: len(peers.outcomes) == 3)
    assert [(each.kind, each.maybe_done) for each in peers.failures] == [(FailureKind.DISCONNECTED, True)] * 2


def test_a_peer_that_had_answered_is_tried_again_at_once(peers: Peers) -> None:
    link = peers.link()
    peers.ask(link, 1)
    peers.kill()
    peers.settle()
    before_ms = peers.clock.now_ms
    assert peers.ask(link, 2).kind is FailureKind.REFUSED
    assert peers.clock.now_ms == before_ms


def test_a_link_finds_a_peer_that_came_back(peers: Peers) -> None:
    link = peers.link()
    peers.ask(link, 1)
    peers.kill()
    peers.ask(link, 2)
    peers.revive()
    peers.send(link, 3)
    peers.pass_time(TIMES.backoff_ms)
    peers.until(lambda: len(peers.outcomes) == 3)
    assert peers.numbers == [1, 3]


def test_the_back_off_begins_anew_after_an_answer(peers: Peers) -> None:
    link = peers.link()
    for _ in range(2):
        peers.kill()
        peers.ask(link)
        peers.send(link, timeout_ms=60_000)
        peers.pass_time(TIMES.backoff_ms)
        peers.until(lambda: link.unanswered == 0)
        assert peers.failures[-1].kind is FailureKind.REFUSED
        peers.revive()
        peers.send(link, 1, timeout_ms=60_000)
        peers.pass_time(2 * TIMES.backoff_ms)
        peers.until(lambda: link.unanswered == 0)
    assert peers.numbers == [1, 1]


def test_the_versions_of_a_peer_are_asked_again_on_every_connection(peers: Peers) -> None:
    link = peers.link()
    assert peers.ask(link).version == NEWEST_FETCH
    peers.kill()
    peers.settle()
    peers.versions = lambda: up_to(ApiKey.FETCH, 12)
    peers.revive()
    assert peers.ask(link).version == 12


def test_a_peer_that_hangs_up_on_a_request_fails_it(peers: Peers) -> None:
    peers.answers_at_once = False
    link = peers.link()
    peers.send(link)
    peers.until(lambda: peers.received)
    peers.received[0].exchange.close()
    peers.until(lambda: peers.outcomes)
    assert (peers.failures[0].kind, peers.failures[0].maybe_done) == (FailureKind.DISCONNECTED, True)


def test_a_failure_can_be_answered_by_sending_again(peers: Peers) -> None:
    peers.kill()
    link = peers.link()
    kinds: list[FailureKind] = []

    def again(outcome: Answered[messages.FetchResponse] | Failure) -> None:
        assert isinstance(outcome, Failure)
        kinds.append(outcome.kind)
        if len(kinds) < 4:
            link.send(ApiKey.FETCH, messages.FetchRequest(), again, 60_000)

    link.send(ApiKey.FETCH, messages.FetchRequest(), again, 60_000)
    for _ in range(3):
        peers.settle()
        peers.pass_time(1000)
    peers.until(lambda: len(kinds) == 4)
    assert kinds == [FailureKind.REFUSED] * 4


# -- closing ----------------------------------------------------------------------------------------------------


def test_closing_a_link_fails_what_is_unanswered_and_not_from_within(peers: Peers) -> None:
    peers.answers_at_once = False
    link = peers.link()
    peers.send(link, 1)
    peers.until(lambda: peers.received)
    link.close()
    assert peers.outcomes == []
    peers.until(lambda: peers.outcomes)
    peers.pass_time(10 * TIMEOUT_MS)
    assert [(each.kind, each.maybe_done) for each in peers.outcomes] == [(FailureKind.CLOSED, True)]
    assert link.closed


def test_what_waits_for_a_connection_was_not_done_when_the_link_closes(peers: Peers) -> None:
    link = peers.link()
    peers.send(link, 1)
    link.close()
    peers.until(lambda: peers.outcomes)
    peers.pass_time(10 * TIMEOUT_MS)
    assert [(each.kind, each.maybe_done) for each in peers.outcomes] == [(FailureKind.CLOSED, False)]
    assert peers.received == []


def test_a_request_on_a_closed_link_fails(peers: Peers) -> None:
    link = peers.link()
    link.close()
    link.close()
    peers.send(link, 1)
    assert peers.outcomes == []
    peers.until(lambda: peers.outcomes)
    assert [(each.kind, each.maybe_done) for each in peers.outcomes] == [(FailureKind.CLOSED, False)]


def test_closing_from_within_an_answer_fails_the_rest(peers: Peers) -> None:
    peers.answers_at_once = False
    link = peers.link()
    outcomes: list[Any] = []

    def close(outcome: Any) -> None:
        outcomes.append(outcome)
        link.close()

    for number in range(3):
        link.send(ApiKey.FETCH, messages.FetchRequest(session_id=number), close, TIMEOUT_MS)
    peers.until(lambda: len(peers.received) == 3)
    for received in peers.received:
        received.answer()
    peers.until(lambda: len(outcomes) == 3)
    assert isinstance(outcomes[0], Answered)
    assert [each.kind for each in outcomes[1:]] == [FailureKind.CLOSED] * 2


def test_the_peer_is_told_that_a_link_closed(peers: Peers) -> None:
    peers.answers_at_once = False
    abandoned: list[int] = []
    link = peers.link()
    peers.send(link, 1)
    peers.until(lambda: peers.received)
    peers.received[0].exchange.on_abandoned = lambda: abandoned.append(1)
    link.close()
    peers.until(lambda: abandoned)
    assert peers.received[0].exchange.connection.closed
