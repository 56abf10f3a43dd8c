"""How much of the broker a client may use: sizes, counts and times, all of them finite by default.

The names are Kafka's where Kafka has them. Its own defaults leave connections unbounded; a broker that is one process
with a file descriptor limit cannot, so `max_connections` has a number here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

KIB = 1024
MIB = 1024 * KIB


class ListenerLimits(NamedTuple):
    """Limits of a single listener, in addition to those for all listeners together; -1: no limit of its own."""

    max_connections: int = -1
    max_connection_creation_rate: int = -1


@dataclass(slots=True)
class Limits:
    """A limit of -1 is no limit, where a comment says so. Changing a value takes effect for what comes next."""

    socket_request_max_bytes: int = 100 * MIB
    # Announced sizes of the requests that are being read at once; more of them wait unread; -1: no limit but those
    # of the large and the huge ones, next.
    queued_max_request_bytes: int = -1
    # Requests beyond the first size may together announce the second, the large ones and the huge ones a sum of their
    # own; more of them wait unread. What producers send with the default of max.request.size, 1 MiB, is not large. One
    # that is not there whole after `huge_request_ms` while others wait for its memory ends with its connection.
    medium_request_bytes: int = 64 * KIB
    max_medium_requests_bytes: int = 128 * MIB
    large_request_bytes: int = 1 * MIB + 64 * KIB
    max_large_requests_bytes: int = 128 * MIB
    huge_request_bytes: int = 8 * MIB
    max_huge_requests_bytes: int = 128 * MIB
    huge_request_ms: int = 10_000

    # At this number new connections wait in the listener's backlog until one closes.
    max_connections: int = 10_000
    # Above this number from one address, a connection is closed as soon as it is accepted; -1: no limit.
    max_connections_per_ip: int = -1
    max_connections_per_ip_overrides: dict[str, int] = field(default_factory=dict)
    # New connections a second over all listeners; more of them wait in the backlog; -1: no limit.
    max_connection_creation_rate: int = -1
    # By the listener's name.
    of_listeners: dict[str, ListenerLimits] = field(default_factory=dict)
    connections_max_idle_ms: int = 600_000
    socket_listen_backlog_size: int = 1024

    # -1 leaves the operating system to size the buffer as the connection needs it. Kafka's default for both is 102400.
    # It is kept for sending: with less in flight the reader finds the bytes in the cache, and serving megabyte slices
    # on loopback took half the processor time. It is not kept for receiving: frames of 128 KiB then no longer arrive
    # in one read, which cost two to five times as much.
    socket_send_buffer_bytes: int = 102_400
    socket_receive_buffer_bytes: int = -1

    # Of one connection: frames that are handled before others have their turn; requests that may be unanswered at once,
    # where each allows the next; bytes of requests that wait for their turn, above which nothing more is read (what
    # came in one read is kept, so it may be up to one receive area); bytes of replies that wait for the peer to read,
    # above which its next request is not dispatched.
    max_frames_per_turn: int = 16
    max_pipelined_requests: int = 1000
    max_held_bytes: int = 64 * KIB
    max_unsent_bytes: int = 1 * MIB

    max_accepts_per_turn: int = 4
    accept_backoff_ms: int = 100
