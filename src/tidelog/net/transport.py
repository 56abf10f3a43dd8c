"""How bytes reach the peer: the few operations of a socket that a connection uses, and nothing else of it.

A connection asks its transport for `recv_into(buffer)`, `send(data, flags)` and, where `can_sendfile` says so,
`sendfile(fd, position, count)`. Each does what it can at once and returns the number of bytes, or raises
BlockingIOError when it can do nothing; 0 from `recv_into` is the end of what the peer sends. An encrypting transport
offers the same and says that it cannot `sendfile`.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from typing import Protocol

MORE = socket.MSG_MORE


class Transport(Protocol):
    can_sendfile: bool
    recv_into: Callable[[memoryview], int]
    send: Callable[[bytes | bytearray | memoryview, int], int]

    def fileno(self) -> int: ...

    def local_host(self) -> str: ...

    def sendfile(self, fd: int, position: int, count: int) -> int: ...

    def close(self) -> None: ...


TransportOf = Callable[[socket.socket], Transport]


class PlainTransport:
    """TCP as it is. `recv_into` and `send` are the socket's own, so that calling them costs nothing extra."""

    __slots__ = ("_fd", "_socket", "can_sendfile", "recv_into", "send")

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._fd = connected.fileno()
        self.can_sendfile = True
        self.recv_into: Callable[[memoryview], int] = connected.recv_into
        self.send: Callable[[bytes | bytearray | memoryview, int], int] = connected.send

    def fileno(self) -> int:
        return self._fd

    def local_host(self) -> str:
        host: str = self._socket.getsockname()[0]
        return host

    def sendfile(self, fd: int, position: int, count: int) -> int:
        return os.sendfile(self._fd, fd, position, count)

    def close(self) -> None:
        self._socket.close()
