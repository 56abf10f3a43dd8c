"""A link to a peer, as `tidelog.peers.requester` describes it, over any channel.

    IDLE          no connection, and nobody needs one
    BACKING_OFF   requests wait until it is time for the next attempt to connect
    CONNECTING    requests wait until the peer has accepted
    ASKING        requests wait until the peer has said which versions it serves
    UP            requests are sent at once
    CLOSED        the end

The peer is asked for its versions on every connection, since it may have come back as another release.

Waiting. After an attempt that failed, and after a connection that never answered a request, the next attempt waits,
twice as long each time, give or take a fifth, so that many brokers do not come back at the same moment. A connection
that did answer is followed by another at once: whether the peer is dead or was only restarted should be known soon.

Time-outs. A request that is not answered in time fails, and its answer, should it come, is dropped. If nothing at all
came from the peer since the request was sent, the connection is given up, too: the peer may be gone without a word, and
the next request should not wait for it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum
from functools import partial
from random import Random
from struct import Struct
from typing import Any, Final

from tidelog import __version__
from tidelog.net.channel import Channel, Dialler
from tidelog.peers.requester import (
    NEWEST,
    Answered,
    Asked,
    Done,
    Failure,
    FailureKind,
    LinkOptions,
    PeerAddress,
    R,
)
from tidelog.timer.host import Host
from tidelog.timer.wheel import TimerTask
from tidelog.wire import messages
from tidelog.wire.apis import APIS, ApiKey
from tidelog.wire.classes import RequestMessage
from tidelog.wire.codec import response_codec
from tidelog.wire.errors import ErrorCode
from tidelog.wire.frame import decode_response_header, encode_request
from tidelog.wire.malformed import UnsupportedFieldError, WireError

_API_VERSIONS: Final = int(ApiKey.API_VERSIONS)
_LAST_CORRELATION_ID: Final = 0x7FFFFFFF
_JITTER: Final = 0.2
_MOST_DOUBLINGS: Final = 32
_ERROR_CODE: Final = Struct(">h").unpack_from
_CORRELATION: Final = Struct(">i").unpack_from


@dataclass(slots=True, frozen=True)
class ConnectTimes:
    """How long to wait for a connection, and between attempts; each doubles from attempt to attempt, up to the most."""

    backoff_ms: int = 50
    backoff_max_ms: int = 1_000
    setup_ms: int = 10_000
    setup_max_ms: int = 30_000


class LinkState(Enum):
    IDLE = 0
    BACKING_OFF = 1
    CONNECTING = 2
    ASKING = 3
    UP = 4
    CLOSED = 5


_UP: Final = LinkState.UP


class _Request:
    """One request, from `send` until its `done` was called; as one that timed out, until its answer was dropped."""

    __slots__ = (
        "api_key",
        "asked",
        "at_most",
        "correlation_id",
        "deadline",
        "done",
        "ends_at",
        "heard_bytes",
        "version",
    )

    def __init__(self, api_key: int, asked: Any, done: Done[Any], at_most: int) -> None:
        self.api_key = api_key
        self.asked: Any = asked  # None as soon as it is written: the channel has it
        self.done: Done[Any] | None = done  # None once it was called
        self.at_most = at_most
        self.deadline: TimerTask | None = None
        self.version = 0
        self.correlation_id = 0
        self.ends_at = 0  # the channel's `taken_bytes` behind it
        self.heard_bytes = 0  # the channel's `received_bytes` when it was written


class PeerLink:
    __slots__ = (
        "_attempt",
        "_channel",
        "_client_id",
        "_correlation_id",
        "_dialler",
        "_failures",
        "_has_answered",
        "_host",
        "_not_before_ms",
        "_options",
        "_random",
        "_sent",
        "_state",
        "_times",
        "_unanswered",
        "_versions",
        "_waiting",
        "peer",
    )

    def __init__(
        self,
        host: Host,
        dialler: Dialler,
        peer: PeerAddress,
        client_id: str,
        options: LinkOptions,
        times: ConnectTimes,
        random: Random,
    ) -> None:
        self.peer = peer
        self._unanswered = 0
        self._host = host
        self._dialler = dialler
        self._client_id = client_id
        self._options = options
        self._times = times
        self._random = random
        self._state = LinkState.IDLE
        self._channel: Channel | None = None
        self._waiting: deque[_Request] = deque()  # for a connection
        self._sent: deque[_Request] = deque()  # in the order in which answers come
        self._versions: dict[int, tuple[int, int]] = {}  # of the peer, by API key
        self._correlation_id = 0
        self._attempt: TimerTask | None = None  # when to connect, or until when to have connected
        self._failures = 0  # attempts in vain since the last answer
        self._not_before_ms = 0
        self._has_answered = False  # on the connection at hand

    def __repr__(self) -> str:
        return f"<link of {self._client_id!r} to {self.peer}, {self._state.name}>"

    @property
    def unanswered(self) -> int:
        return self._unanswered - (self._state is LinkState.ASKING)

    @property
    def closed(self) -> bool:
        return self._state is LinkState.CLOSED

    def send(self, api_key: int, asked: Asked[R], done: Done[R], timeout_ms: int, at_most: int = NEWEST) -> None:
        request = _Request(api_key, asked, done, at_most)
        self._unanswered += 1
        if self._state is _UP:
            self._watch(request, timeout_ms)
            self._write(request)
            return
        if self.closed:
            self._fail_soon(request, FailureKind.CLOSED, f"the link to {self.peer} is closed")
            return
        self._watch(request, timeout_ms)
        self._waiting.append(request)
        if self._state is LinkState.IDLE:
            self._connect()

    def close(self) -> None:
        if self.closed:
            return
        channel = self._channel
        unanswered = [*self._sent, *self._waiting]
        self._leave(LinkState.CLOSED)
        for request in unanswered:
            self._fail_soon(
                request, FailureKind.CLOSED, f"the link to {self.peer} was closed", _has_left(request, channel)
            )
        if channel is not None:
            channel.close()

    # -- requests -----------------------------------------------------------------------------------------------

    def _watch(self, request: _Request, timeout_ms: int) -> None:
        host = self._host
        request.deadline = host.timer.add(host.clock.monotonic_ms() + timeout_ms, partial(self._time_out, request))

    def _write(self, request: _Request) -> None:
        """Encodes it in the version that both sides speak; where there is none, it fails soon."""
        channel = self._channel
        assert channel is not None
        low, high = self._range_of(request)
        if low > high:
            name, (first, last) = APIS[request.api_key].name, self._versions.get(request.api_key, (0, -1))
            theirs = f"serves versions {first} to {last} of it" if first <= last else "does not serve it"
            why = f"no version of {name} is known both here and to {self.peer}, which {theirs}"
            self._fail_soon(request, FailureKind.UNSUPPORTED_VERSION, why)
            return
        self._correlation_id = request.correlation_id = (self._correlation_id + 1) & _LAST_CORRELATION_ID
        request.version = high
        asked = request.asked
        try:
            message = asked if isinstance(asked, RequestMessage) else asked(high)
            parts = encode_request(request.api_key, high, request.correlation_id, self._client_id, message)
        except UnsupportedFieldError as error:
            self._fail_soon(request, FailureKind.UNSUPPORTED_VERSION, f"{self.peer} cannot be asked: {error}")
            return
        except Exception as error:
            self._host.report(f"a request to {self.peer} cannot be written", error)
            self._fail_soon(request, FailureKind.MALFORMED, f"a request to {self.peer} cannot be written: {error}")
            return
        request.asked = None
        request.heard_bytes = channel.received_bytes
        channel.send(parts)
        request.ends_at = channel.taken_bytes
        self._sent.append(request)

    def _range_of(self, request: _Request) -> tuple[int, int]:
        """The versions that both sides speak; empty where the first is higher than the second."""
        ours = APIS[request.api_key]
        if request.api_key == _API_VERSIONS:
            return ours.min_version, min(ours.max_version, request.at_most)
        low, high = self._versions.get(request.api_key, (0, -1))
        return max(low, ours.min_version), min(high, ours.max_version, request.at_most)

    def _finish(self, request: _Request, outcome: Answered[Any] | Failure) -> None:
        done = request.done
        if done is None:
            return
        request.done = request.asked = None
        self._unanswered -= 1
        if request.deadline is not None:
            request.deadline.cancel()
        try:
            done(outcome)
        except Exception as error:
            self._host.report(f"{done!r} failed with what came from {self.peer}", error)

    def _fail_soon(self, request: _Request, kind: FailureKind, why: str, maybe_done: bool = False) -> None:
        self._host.workers.call_soon(partial(self._finish, request, Failure(kind, why, maybe_done)))

    def _time_out(self, request: _Request) -> None:
        channel = self._channel
        was_sent = request.asked is None
        has_left = was_sent and _has_left(request, channel)
        self._finish(
            request, Failure(FailureKind.TIMED_OUT, f"{self.peer} did not answer {_name(request)} in time", has_left)
        )
        if not was_sent:
            self._forget_the_timed_out()
        elif channel is not None and channel is self._channel and channel.received_bytes == request.heard_bytes:
            self._lose(FailureKind.DISCONNECTED, f"{self.peer} has not said anything since it was asked")

    def _forget_the_timed_out(self) -> None:
        while self._waiting and self._waiting[0].done is None:
            self._waiting.popleft()

    # -- answers ------------------------------------------------------------------------------------------------

    def on_frame(self, frame: memoryview) -> None:
        sent = self._sent
        if not sent:
            self._lose(FailureKind.MALFORMED, f"{self.peer} sent an answer that nobody asked for")
            return
        request = sent[0]
        correlation_id: int = _CORRELATION(frame, 0)[0]
        if correlation_id != request.correlation_id:
            why = f"{self.peer} answered request {correlation_id} instead of {request.correlation_id}"
            self._lose(FailureKind.MALFORMED, why)
            return
        try:
            answered = None if request.done is None else self._decode(request, frame)
        except WireError as error:
            why = f"the answer of {self.peer} to {_name(request)} cannot be read: {error}"
            self._lose(FailureKind.MALFORMED, why)
            return
        sent.popleft()
        if self._state is _UP:
            self._has_answered = True
            self._failures = 0
        if answered is not None:
            self._finish(request, answered)

    def _decode(self, request: _Request, frame: memoryview) -> Answered[Any]:
        version = request.version
        # A broker that does not know our ApiVersions answers in version 0, which begins alike in every version.
        if (
            request.api_key == _API_VERSIONS
            and len(frame) >= 6
            and _ERROR_CODE(frame, 4)[0] == ErrorCode.UNSUPPORTED_VERSION
        ):
            version = 0
        _, body_at = decode_response_header(request.api_key, version, frame)
        return Answered(response_codec(request.api_key, version).decode(frame, body_at)[0], version)

    # -- connecting ---------------------------------------------------------------------------------------------

    def _connect(self) -> None:
        if self._host.clock.monotonic_ms() < self._not_before_ms:
            self._state = LinkState.BACKING_OFF
            self._attempt = self._host.timer.add(self._not_before_ms, self._dial)
        else:
            self._dial()

    def _dial(self) -> None:
        self._forget_the_timed_out()
        if not self._waiting:
            self._leave(LinkState.IDLE)
            return
        times = self._times
        wait_ms = self._growing(times.setup_ms, times.setup_max_ms)
        self._state = LinkState.CONNECTING
        self._has_answered = False
        self._attempt = self._host.timer.add(
            self._host.clock.monotonic_ms() + wait_ms, partial(self._not_set_up, wait_ms)
        )
        self._channel = self._dialler.dial(self.peer, self._options, self)

    def _not_set_up(self, wait_ms: int) -> None:
        self._lose(
            FailureKind.UNREACHABLE, f"{self.peer} did not accept a connection and say its versions in {wait_ms} ms"
        )

    def _growing(self, first_ms: int, most_ms: int) -> int:
        """Doubled for each failure, give or take a fifth."""
        wait_ms = min(first_ms << min(max(0, self._failures - 1), _MOST_DOUBLINGS), most_ms)
        return round(wait_ms * self._random.uniform(1 - _JITTER, 1 + _JITTER))

    def on_open(self) -> None:
        self._state = LinkState.ASKING
        self._ask_versions()

    def _ask_versions(self, at_most: int = NEWEST) -> None:
        asked = messages.ApiVersionsRequest(client_software_name="tidelog-broker", client_software_version=__version__)
        self._unanswered += 1
        done = partial(self._on_versions, at_most)
        self._write(_Request(_API_VERSIONS, lambda version: asked if version >= 3 else _OLD, done, at_most))

    def _on_versions(self, at_most: int, outcome: Answered[messages.ApiVersionsResponse] | Failure) -> None:
        if isinstance(outcome, Failure):
            return  # whoever failed it knows of the others
        code = outcome.message.error_code
        if code == ErrorCode.UNSUPPORTED_VERSION and at_most:
            self._ask_versions(at_most=0)
            return
        if code:
            self._lose(FailureKind.MALFORMED, f"{self.peer} answers ApiVersions with error {code}")
            return
        self._versions = {each.api_key: (each.min_version, each.max_version) for each in outcome.message.api_keys}
        if self._attempt is not None:
            self._attempt.cancel()
            self._attempt = None
        self._state = _UP
        waiting, self._waiting = self._waiting, deque()
        for request in waiting:
            if request.done is not None:
                self._write(request)

    # -- the end of a connection --------------------------------------------------------------------------------

    def on_closed(self, kind: FailureKind, why: str) -> None:
        self._lose(kind, why)

    def _lose(self, kind: FailureKind, why: str) -> None:
        """The connection is over, and with it every request that was sent on it or waited for it."""
        channel = self._channel
        assert channel is not None
        sent, waiting = self._sent, self._waiting
        if not self._has_answered:
            self._failures += 1
            times = self._times
            wait_ms = self._growing(times.backoff_ms, times.backoff_max_ms)
            self._not_before_ms = self._host.clock.monotonic_ms() + wait_ms
        self._leave(LinkState.IDLE)
        channel.close()
        for request in sent:
            self._finish(request, Failure(kind, why, _has_left(request, channel)))
        for request in waiting:
            self._finish(request, Failure(kind, why, False))

    def _leave(self, state: LinkState) -> None:
        self._state = state
        self._channel = None
        self._sent, self._waiting = deque(), deque()
        if self._attempt is not None:
            self._attempt.cancel()
            self._attempt = None


#: ApiVersions has no fields before version 3
_OLD: Final = messages.ApiVersionsRequest()


def _has_left(request: _Request, channel: Channel | None) -> bool:
    """Whether the peer may have all of it: no broker acts on a part of a request."""
    return channel is not None and request.asked is None and channel.sent_bytes >= request.ends_at


def _name(request: _Request) -> str:
    return f"{APIS[request.api_key].name} v{request.version}" if request.asked is None else APIS[request.api_key].name
