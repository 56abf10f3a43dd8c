"""How a broker asks another: a requester makes links, and a link carries requests.

    link = requester.link(PeerAddress(2, "10.0.0.2", 9092), "fetcher-0")
    link.send(ApiKey.FETCH, messages.FetchRequest(...), on_answer, timeout_ms=30_000)

    def on_answer(outcome: Answered[messages.FetchResponse] | Failure) -> None:
        if isinstance(outcome, Failure):
            ...     # outcome.kind says why, outcome.maybe_done whether the peer may have carried it out
        else:
            ...     # outcome.message; its records are views that hold until this function returns

A link has a connection of its own, so that a fetch that waits for records does not hold up what the controller says:
one link for each purpose. It connects when the first request is sent, and again when one is sent after the connection
was lost. Requests are pipelined: each is sent at once, and the answers come in the order of the requests.

`done` is called exactly once for every request, on the broker's thread, and never from within `send` or `close`. A
request is not repeated here: whoever sent it knows whether it may be.

A request that is sent while the peer cannot be reached waits for the next attempt to connect, and shares its outcome.
Attempts follow each other after a wait that grows, so sending again after each failure is no busy loop; and a dead
process is known at once, as REFUSED, because its machine refuses the connection.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from tidelog.wire.classes import RequestMessage

#: more than any version
NEWEST: Final = 1 << 15

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class PeerAddress(NamedTuple):
    node_id: int
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"broker {self.node_id} at {host}:{self.port}"


class FailureKind(Enum):
    #: nobody listens at the address: the process is dead, its machine is not
    REFUSED = "refused"
    #: no connection came about, for another reason: no route, no such host, no answer in time
    UNREACHABLE = "unreachable"
    #: the connection was lost
    DISCONNECTED = "disconnected"
    #: no answer within the request's time-out; one that comes later is dropped
    TIMED_OUT = "timed out"
    #: no version of the request is known to both sides
    UNSUPPORTED_VERSION = "unsupported version"
    #: what came back cannot be an answer
    MALFORMED = "malformed"
    #: the link was closed on this side
    CLOSED = "closed"


class Failure(NamedTuple):
    kind: FailureKind
    #: a sentence for people, which names the peer
    why: str
    #: False: the peer has not seen the request, or not all of it. True: nobody knows what became of it
    maybe_done: bool

    def __str__(self) -> str:
        return self.why


class Answered(NamedTuple, Generic[R_co]):
    """`message` is a response in version `version`. Its records are views that hold until `done` returns."""

    message: R_co
    version: int


class LinkOptions(NamedTuple):
    #: -1 leaves the size to the operating system
    receive_buffer_bytes: int = -1
    #: an answer that announces more ends the connection
    max_answer_bytes: int = 1 << 30


DEFAULT_OPTIONS: Final = LinkOptions()

#: a request, or what makes it for the version that both sides speak
Asked: TypeAlias = RequestMessage[R] | Callable[[int], RequestMessage[R]]
Done: TypeAlias = Callable[[Answered[R] | Failure], object]


class Link(Protocol):
    """One connection to one peer, made anew when it is needed and was lost."""

    @property
    def peer(self) -> PeerAddress: ...

    @property
    def unanswered(self) -> int:
        """Requests whose `done` has not been called."""

    def send(self, api_key: int, asked: Asked[R], done: Done[R], timeout_ms: int, at_most: int = NEWEST) -> None:
        """Sends a request in the highest version that both sides know, `at_most` or lower.

        The message is written when the version is known: it must not be changed after this call.
        """

    def close(self) -> None:
        """Closes the connection. Requests that are not answered yet fail with CLOSED; so do those sent later."""


def peer_client_id(node_id: int, purpose: str) -> str:
    """What a broker calls itself towards its peers."""
    return f"broker-{node_id}-{purpose}"


def is_peer_client_id(client_id: str, purpose: str) -> bool:
    return client_id.startswith("broker-") and client_id.endswith(f"-{purpose}")


class Requester(Protocol):
    """The way from one broker to the others."""

    def link(self, peer: PeerAddress, purpose: str, options: LinkOptions = DEFAULT_OPTIONS) -> Link:
        """A new link, which belongs to the caller. The peer is told the purpose as a part of the client id."""


class NoPeers:
    """For a broker that works alone: every request fails."""

    __slots__ = ()

    def link(self, peer: PeerAddress, purpose: str, options: LinkOptions = DEFAULT_OPTIONS) -> Link:
        raise RuntimeError(f"this broker works alone: it has no way to {peer}, wanted for {purpose!r}")
