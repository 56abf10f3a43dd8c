"""Both ends of a link, over sockets and in memory: one broker asks, and the test decides what the other answers."""

from __future__ import annotations

import socket
import struct
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from net_site import HandClock, Site

from tidelog.api.api_versions import served
from tidelog.net import Exchange
from tidelog.net.link import ConnectTimes, PeerLink
from tidelog.net.memory_network import MemoryNetwork, Weather
from tidelog.net.requester import PeerRequester
from tidelog.net.socket_channel import SocketDialler
from tidelog.peers import Answered, Failure, LinkOptions, PeerAddress
from tidelog.timer import Timer
from tidelog.timer.host import Host
from tidelog.wire import messages
from tidelog.wire.apis import ApiKey
from tidelog.wire.codec import request_codec
from tidelog.wire.frame import RequestHeader, decode_request_header, encode_response

#: without chance: whoever waits twice waits twice as long
TIMES = ConnectTimes(backoff_ms=100, backoff_max_ms=1_000, setup_ms=5_000, setup_max_ms=5_000)
TIMEOUT_MS = 1_000


class Steady(Random):
    """No jitter, so that a test can say when an attempt is due."""

    def uniform(self, a: float, b: float) -> float:
        return (a + b) / 2


class Received:
    """A request as the answering side sees it."""

    def __init__(self, exchange: Exchange, header: RequestHeader, body: Any) -> None:
        self.exchange = exchange
        self.header = header
        self.body = body

    def answer(self, message: Any = None) -> None:
        message = message or messages.FetchResponse(session_id=self.body.session_id)
        header = self.header
        self.exchange.reply(encode_response(header.api_key, header.api_version, header.correlation_id, message))


class Peers:
    """What tests need of either kind: a link, the requests that arrived, time, and the death of the peer."""

    def __init__(self) -> None:
        self.clock: HandClock
        self.requester: PeerRequester
        self.peer: PeerAddress
        self.received: list[Received] = []
        self.connected = 0
        #: what the peer says of its versions; None where it says nothing
        self.versions: Callable[[], messages.ApiVersionsResponse | None] = served
        self.answers_at_once = True
        #: whether the peer begins a request before the one before it is answered
        self.allows_next = True
        self.outcomes: list[Any] = []
        self.reports: list[tuple[str, BaseException | None]] = []

    def dispatch(self, exchange: Exchange, frame: memoryview) -> None:
        header = decode_request_header(frame)
        if header.api_key == ApiKey.API_VERSIONS:
            self.connected += 1
            message = self.versions()
            if message is not None:
                version = 0 if message.error_code else header.api_version
                exchange.reply(encode_response(18, version, header.correlation_id, message))
            return
        body, _ = request_codec(header.api_key, header.api_version).decode(bytes(frame), header.body_at)
        self.received.append(Received(exchange, header, body))
        if self.allows_next:
            exchange.allow_next()
        if self.answers_at_once:
            self.received[-1].answer()

    def link(self, **options: int) -> PeerLink:
        return self.requester.link(self.peer, "test", LinkOptions(**options))

    def send(self, link: PeerLink, number: int = 0, timeout_ms: int = TIMEOUT_MS, **how: Any) -> None:
        asked = messages.FetchRequest(session_id=number)
        link.send(ApiKey.FETCH, asked, self.outcomes.append, timeout_ms, **how)

    def ask(self, link: PeerLink, number: int = 0, **how: Any) -> Any:
        """Sends one and waits for what comes of it."""
        count = len(self.outcomes)
        self.send(link, number, **how)
        self.until(lambda: len(self.outcomes) > count)
        return self.outcomes[-1]

    @property
    def numbers(self) -> list[int]:
        return [outcome.message.session_id for outcome in self.outcomes if isinstance(outcome, Answered)]

    @property
    def failures(self) -> list[Failure]:
        return [outcome for outcome in self.outcomes if isinstance(outcome, Failure)]

    @property
    def timers(self) -> int:
        """How many deadlines stand."""
        raise NotImplementedError

    def until(self, holds: Callable[[], object]) -> None: ...

    def pass_time(self, span_ms: int) -> None: ...

    def settle(self) -> None: ...

    def kill(self) -> None:
        """The process of the peer ends, at once."""

    def revive(self) -> None: ...

    def close(self) -> None: ...


class SocketPeers(Peers):
    def __init__(self) -> None:
        super().__init__()
        self.site = Site()
        self.site.dispatch = self.dispatch
        self.clock = self.site.clock
        loop = self.site.loop
        host = Host(self.clock, loop.timer, loop, lambda what, error: self.reports.append((what, error)))
        self.requester = PeerRequester(1, host, SocketDialler(loop), Steady(), TIMES)
        self.peer = PeerAddress(2, *self.site.address)

    @property
    def timers(self) -> int:
        return len(self.site.loop.timer)

    def until(self, holds: Callable[[], object], step: Callable[[], object] = lambda: None) -> None:
        self.site.until(holds, step)

    def pass_time(self, span_ms: int) -> None:
        self.site.advance(span_ms)

    def settle(self) -> None:
        self.site.settle()

    def kill(self) -> None:
        self.site.server.close()
        self.settle()

    def revive(self) -> None:
        self.site.server.listen(self.peer.host, self.peer.port, "PLAINTEXT")

    def close(self) -> None:
        self.requester.close()
        self.site.turn(2)
        assert self.site.errors == []
        self.site.close()


class NextTurn:
    """Workers that do nothing beside the broker's thread."""

    def __init__(self) -> None:
        self.soon: deque[Callable[[], object]] = deque()

    def call_soon(self, callback: Callable[[], object]) -> None:
        self.soon.append(callback)

    def in_worker(self, work: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        raise AssertionError("nothing in memory blocks")


class MemoryPeers(Peers):
    def __init__(self, weather: Weather | None = None, seed: int = 0) -> None:
        super().__init__()
        self.clock = HandClock()
        self.timer = Timer(self.clock.now_ms)
        self.workers = NextTurn()
        self.host = Host(self.clock, self.timer, self.workers, lambda what, error: self.reports.append((what, error)))
        self.network = MemoryNetwork(self.clock, self.timer, Random(seed), weather)
        self.requester = PeerRequester(1, self.host, self.network.dialler("b1"), Steady(), TIMES)
        self.peer = PeerAddress(2, "b2", 9092)
        self.revive()

    @property
    def timers(self) -> int:
        return len(self.timer)

    def _turn(self) -> bool:
        """Whether there was anything to do at this moment."""
        busy = False
        for _ in range(len(self.workers.soon)):
            self.workers.soon.popleft()()
            busy = True
        due_ms = self.timer.next_deadline_ms()
        if due_ms is not None and due_ms <= self.clock.now_ms:
            self.timer.advance(self.clock.now_ms)
            busy = True
        return busy

    def until(self, holds: Callable[[], object]) -> None:
        """Time passes from one event to the next, where nothing else happens."""
        while not holds():
            if not self._turn():
                due_ms = self.timer.next_deadline_ms()
                if due_ms is None:
                    pytest.fail("nothing more will happen")
                self.clock.now_ms = due_ms

    def pass_time(self, span_ms: int) -> None:
        end_ms = self.clock.now_ms + span_ms
        while True:
            self.settle()
            due_ms = self.timer.next_deadline_ms()
            if due_ms is None or due_ms > end_ms:
                break
            self.clock.now_ms = due_ms
        self.clock.now_ms = end_ms

    def settle(self) -> None:
        while self._turn():
            pass

    def kill(self) -> None:
        self.network.stop("b2")
        self.settle()

    def revive(self) -> None:
        self.network.listen(("b2", 9092), self.dispatch, self.host)

    def close(self) -> None:
        self.requester.close()
        self.pass_time(100_000)
        assert len(self.timer) == 0, "a timer is left"


class Hostile:
    """A server that says what the test says, on a socket of its own; the first connection is the one it talks on."""

    def __init__(self, peers: SocketPeers, backlog: int = 5) -> None:
        self.peers = peers
        self.listening = socket.create_server(("127.0.0.1", 0), backlog=backlog)
        self.listening.setblocking(False)
        self.accepted: socket.socket | None = None
        self.received = b""
        peers.peer = PeerAddress(2, *self.listening.getsockname())

    def step(self) -> None:
        try:
            if self.accepted is None:
                self.accepted, _ = self.listening.accept()
                self.accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self.accepted.setblocking(False)
            self.received += self.accepted.recv(1 << 16)
        except (BlockingIOError, ConnectionError):
            pass

    def request(self) -> tuple[int, int, int]:
        """API key, version and correlation id of the next request."""
        self.peers.until(lambda: len(self.received) >= 12, self.step)
        size, key, version, correlation_id = struct.unpack_from(">ihhi", self.received)
        self.peers.until(lambda: len(self.received) >= 4 + size, self.step)
        self.received = self.received[4 + size :]
        return key, version, correlation_id

    def say(self, data: bytes) -> None:
        assert self.accepted is not None
        self.accepted.sendall(data)

    def greet(self) -> None:
        """Answers ApiVersions as a broker does."""
        key, version, correlation_id = self.request()
        assert key == ApiKey.API_VERSIONS
        self.say(b"".join(encode_response(key, version, correlation_id, served())))

    def answer_to(self, request: tuple[int, int, int], number: int, records: bytes = b"") -> bytes:
        return fetch_answer(*request, number, records)

    def hang_up(self) -> None:
        assert self.accepted is not None
        self.accepted.close()

    def close(self) -> None:
        self.listening.close()
        if self.accepted is not None:
            self.accepted.close()


def fetch_answer(key: int, version: int, correlation_id: int, number: int, records: bytes = b"") -> bytes:
    message = messages.FetchResponse(session_id=number)
    if records:
        response = messages.FetchResponse
        partition = response.PartitionData(partition_index=0, records=records)
        message.responses = [response.FetchableTopicResponse(topic_id=bytes(16), partitions=[partition])]
    return b"".join(encode_response(key, version, correlation_id, message))
