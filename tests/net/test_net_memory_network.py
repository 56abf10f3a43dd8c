"""The network in memory: what a simulation does to it, and what the two ends see."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from net_peers import TIMEOUT_MS, TIMES, MemoryPeers
from net_site import HandClock

from tidelog.net.memory_network import Weather
from tidelog.peers import Answered, FailureKind


@pytest.fixture
def peers() -> Iterator[MemoryPeers]:
    made = MemoryPeers()
    yield made
    made.close()
    assert made.reports == []


def test_a_cut_on_the_way_there_holds_requests_back_until_it_is_mended(peers: MemoryPeers) -> None:
    link = peers.link()
    peers.ask(link, 1)
    peers.network.cut("b1", "b2")
    peers.send(link, 2, timeout_ms=60_000)
    peers.pass_time(30_000)
    assert (len(peers.received), peers.numbers) == (1, [1])
    peers.network.mend("b1", "b2")
    peers.settle()
    assert peers.numbers == [1, 2]


def test_a_cut_on_the_way_back_lets_a_request_be_done_and_not_answered(peers: MemoryPeers) -> None:
    link = peers.link()
    peers.ask(link, 1)
    peers.network.cut("b2", "b1")
    peers.send(link, 2)
    peers.pass_time(TIMEOUT_MS)
    assert len(peers.received) == 2
    assert [(each.kind, each.maybe_done) for each in peers.failures] == [(FailureKind.TIMED_OUT, True)]


def test_a_cut_keeps_the_death_of_a_process_secret(peers: MemoryPeers) -> None:
    link = peers.link()
    peers.ask(link, 1)
    peers.network.cut("b2", "b1")
    peers.kill()
    peers.send(link, 2)
    peers.settle()
    assert peers.failures == []
    peers.pass_time(TIMEOUT_MS)
    assert peers.failures[0].kind is FailureKind.TIMED_OUT


def test_nobody_answers_through_a_cut_and_the_set_up_time_ends_the_attempt(peers: MemoryPeers) -> None:
    peers.network.cut("b1", "b2")
    link = peers.link()
    peers.send(link, 1, timeout_ms=60_000)
    peers.pass_time(TIMES.setup_ms)
    assert [(each.kind, each.maybe_done) for each in peers.failures] == [(FailureKind.UNREACHABLE, False)]
    peers.network.mend("b1", "b2")
    peers.settle()
    assert peers.connected == 0, "an attempt that was given up must not arrive as a connection"


def test_a_broken_connection_is_lost_for_both_ends(peers: MemoryPeers) -> None:
    peers.answers_at_once = False
    link = peers.link()
    peers.send(link, 1)
    peers.until(lambda: peers.received)
    abandoned: list[int] = []
    peers.received[0].exchange.on_abandoned = lambda: abandoned.append(1)
    peers.network.break_connections("b1", "b2")
    peers.settle()
    assert [(each.kind, each.maybe_done) for each in peers.failures] == [(FailureKind.DISCONNECTED, True)]
    assert abandoned == [1]
    peers.received[0].answer()
    peers.settle()
    assert peers.numbers == []


def test_what_is_under_way_on_a_broken_connection_never_arrives(peers: MemoryPeers) -> None:
    link = peers.link()
    peers.ask(link, 1)
    peers.network.weather = Weather(shortest_ms=10, longest_ms=10)
    peers.send(link, 2)
    peers.pass_time(5)
    peers.network.break_connections("b1", "b2")
    peers.pass_time(100)
    assert (len(peers.received), peers.numbers) == (1, [1])
    assert [(each.kind, each.maybe_done) for each in peers.failures] == [(FailureKind.DISCONNECTED, True)]


def test_a_process_that_died_is_not_told_of_what_it_lost(peers: MemoryPeers) -> None:
    peers.answers_at_once = False
    link = peers.link()
    peers.send(link, 1)
    peers.until(lambda: peers.received)
    abandoned: list[int] = []
    peers.received[0].exchange.on_abandoned = lambda: abandoned.append(1)
    peers.kill()
    assert (abandoned, peers.received[0].exchange.connection.closed) == ([], True)
    assert peers.failures[0].kind is FailureKind.DISCONNECTED


def test_the_death_of_the_one_who_asks_is_seen_by_the_one_who_answers(peers: MemoryPeers) -> None:
    peers.answers_at_once = False
    peers.send(peers.link(), 1)
    peers.until(lambda: peers.received)
    abandoned: list[int] = []
    peers.received[0].exchange.on_abandoned = lambda: abandoned.append(1)
    peers.network.stop("b1")
    peers.settle()
    assert (abandoned, peers.outcomes) == ([1], [])
    peers.network.listen(("b1", 9092), peers.dispatch, peers.host)


def test_a_lost_message_arrives_late_and_keeps_its_place(peers: MemoryPeers) -> None:
    link = peers.link()
    peers.ask(link, 0)
    peers.network.weather = Weather(lost_share=0.3)
    for number in range(1, 50):
        peers.send(link, number, timeout_ms=60_000)
    peers.until(lambda: len(peers.outcomes) == 50)
    assert peers.numbers == list(range(50))
    assert peers.network.injected["lost message"] > 10


STORM = Weather(shortest_ms=1, longest_ms=30, lost_share=0.05, breaking_share=0.01)


def history(seed: int) -> list[tuple[int, str]]:
    """Requests on three links through a storm: when each ended, and how."""
    peers = MemoryPeers(STORM, seed)
    links = [peers.link() for _ in range(3)]
    told: list[tuple[int, str]] = []
    clock: HandClock = peers.clock

    def tell(outcome: Any) -> None:
        shown = outcome.kind.value if not isinstance(outcome, Answered) else str(outcome.message.session_id)
        told.append((clock.now_ms, shown))

    peers.outcomes = _Telling(tell)
    for number in range(300):
        peers.send(links[number % 3], number)
        peers.pass_time(5)
    peers.pass_time(60_000)
    assert len(told) == 300, "each request ends once"
    assert peers.network.injected.keys() == {"lost message", "broken connection"}
    peers.close()
    return told


class _Telling(list[Any]):
    def __init__(self, tell: Any) -> None:
        super().__init__()
        self.append = tell  # type: ignore[method-assign]


def test_every_request_ends_once_in_a_storm_and_most_are_answered() -> None:
    told = history(1)
    answered = [shown for _, shown in told if shown.isdigit()]
    assert len(set(answered)) == len(answered) > 100
    assert {shown for _, shown in told if not shown.isdigit()} >= {"disconnected"}


def test_one_seed_gives_one_history_and_another_gives_another() -> None:
    assert history(7) == history(7)
    assert history(7) != history(8)
