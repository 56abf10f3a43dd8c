"""What a link stands on: a connection to a peer that carries whole frames, whatever carries them below.

    channel = dialler.dial(peer, options, events)
    events.on_open()              # the peer has accepted
    channel.send(parts)           # any number of frames
    events.on_frame(frame)        # without its size prefix, valid until this returns
    events.on_closed(kind, why)   # it could not be opened, or was lost: the last event

No event comes from within `dial` or `send`, and none at all after `close`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from tidelog.net.outbox import Part
from tidelog.peers.requester import FailureKind, LinkOptions, PeerAddress


class Channel(Protocol):
    #: what was handed to `send`, and what has left of it; nobody acts on a frame that has not left as a whole
    @property
    def taken_bytes(self) -> int: ...

    @property
    def sent_bytes(self) -> int: ...

    @property
    def received_bytes(self) -> int: ...

    def send(self, parts: Iterable[Part]) -> None: ...

    def close(self) -> None: ...


class ChannelEvents(Protocol):
    def on_open(self) -> None: ...

    def on_frame(self, frame: memoryview) -> None: ...

    def on_closed(self, kind: FailureKind, why: str) -> None: ...


class Dialler(Protocol):
    def dial(self, peer: PeerAddress, options: LinkOptions, events: ChannelEvents) -> Channel: ...
