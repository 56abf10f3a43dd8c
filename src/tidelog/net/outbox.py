"""What a connection has still to send: bytes, and slices of files, in order.

Small parts are joined and leave in one `send`: a reply is often a few dozen bytes, and a pipeline of them answered in
one turn should cost one system call. A large part leaves by itself, without a copy: bytes with `send`, a slice with
`sendfile`, straight from the page cache. Until the last part the kernel is told that more is coming (MSG_MORE), so
that a header does not travel in a packet of its own before the file that it announces.

A slice of up to SMALL_SLICE_BYTES is read and joined like bytes: the two extra system calls would cost more than the
saved copy, especially when a fetch returns a little from each of many partitions.

A file may have become shorter since the slice was made, because its log was truncated. The frame's length has promised
the full size to the peer, so there is no way to continue: `TruncatedSliceError` is raised, and the connection must be
closed.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable
from typing import Protocol, TypeAlias

from tidelog.net.transport import MORE, Transport

JOIN_BYTES = 64 * 1024
SMALL_SLICE_BYTES = 16 * 1024
FLUSH_BYTES = 1024 * 1024  # one flush sends little more than this, so that a fast reader does not hold up the others


class FileSlice(Protocol):
    """Bytes `position .. position + size_bytes` of an open file. `release()`, if it has one, is called exactly once."""

    @property
    def size_bytes(self) -> int: ...

    @property
    def position(self) -> int: ...

    def fileno(self) -> int: ...


Bytes: TypeAlias = bytes | bytearray | memoryview
Part: TypeAlias = Bytes | FileSlice
_BYTES = (bytes, bytearray, memoryview)


class TruncatedSliceError(Exception):
    """The file ends before the slice does."""


def release(part: Part) -> None:
    """To be called when a part has been sent or never will be."""
    if not isinstance(part, _BYTES):
        give_back = getattr(part, "release", None)
        if give_back is not None:
            give_back()


class Outbox:
    __slots__ = ("_head_sent", "parts", "size_bytes")

    def __init__(self) -> None:
        self.parts: deque[Part] = deque()
        self.size_bytes = 0  # of all parts, less what was sent of them
        self._head_sent = 0  # how much of a slice at the head was sent

    def add(self, parts: Iterable[Part]) -> None:
        for part in parts:
            if type(part) is bytes:
                self.size_bytes += len(part)
            elif isinstance(part, _BYTES):
                self.size_bytes += memoryview(part).nbytes
            else:
                self.size_bytes += part.size_bytes
            self.parts.append(part)

    def flush(self, transport: Transport) -> int:
        """Send until nothing is left, the peer accepts no more, or it is the others' turn; returns the bytes sent."""
        if len(self.parts) == 1 and type(data := self.parts[0]) is bytes:
            # What nearly every answer is: all of it in one piece, and nothing behind it.
            return self._send_last(transport, data)
        sent = 0
        try:
            while self.parts and sent < FLUSH_BYTES:
                head = self.parts[0]
                if isinstance(head, _BYTES) or (head.size_bytes <= SMALL_SLICE_BYTES and not self._head_sent):
                    wanted, done = self._send_bytes(transport)
                else:
                    wanted, done = self._send_slice(transport, head)
                sent += done
                self.size_bytes -= done
                if done < wanted:
                    break
        except BlockingIOError:
            pass
        return sent

    def _send_last(self, transport: Transport, data: bytes) -> int:
        try:
            done = transport.send(data, 0)
        except BlockingIOError:
            return 0
        self.size_bytes -= done
        if done == len(data):
            self.parts.clear()
        else:
            self.parts[0] = memoryview(data)[done:]
        return done

    def drop(self) -> None:
        """Nothing of this will be sent."""
        for part in self.parts:
            release(part)
        self.parts.clear()
        self.size_bytes = self._head_sent = 0

    def _send_bytes(self, transport: Transport) -> tuple[int, int]:
        """Send the small parts at the head together, or one large one: (bytes tried, bytes sent)."""
        data = self._take_run()
        wanted = len(data)
        try:
            done = transport.send(data, MORE if self.parts else 0)
        except BlockingIOError:
            done = 0
        if done < wanted:
            self.parts.appendleft(memoryview(data)[done:] if done else data)
        return wanted, done

    def _take_run(self) -> Bytes:
        parts = self.parts
        run: list[Bytes] = []
        run_bytes = 0
        while parts and run_bytes < JOIN_BYTES:
            part = parts[0]
            if type(part) is not bytes:
                if not isinstance(part, _BYTES):
                    if part.size_bytes > SMALL_SLICE_BYTES:
                        break
                    part = _read(part)
                    release(parts[0])
                    parts[0] = part
                elif not isinstance(part, bytes):
                    part = memoryview(part).cast("B")
            if run and run_bytes + len(part) > JOIN_BYTES:
                break
            run.append(part)
            run_bytes += len(part)
            parts.popleft()
        return run[0] if len(run) == 1 else b"".join(run)

    def _send_slice(self, transport: Transport, part: FileSlice) -> tuple[int, int]:
        left = part.size_bytes - self._head_sent
        position = part.position + self._head_sent
        wanted = min(left, FLUSH_BYTES)
        if transport.can_sendfile:
            done = transport.sendfile(part.fileno(), position, wanted)
        else:
            wanted = min(wanted, JOIN_BYTES)
            data = os.pread(part.fileno(), wanted, position)
            done = transport.send(data, MORE if wanted < left or len(self.parts) > 1 else 0) if data else 0
        if done == 0:
            raise TruncatedSliceError(f"the file ends {left} bytes before the slice that is being sent from it")
        if done == left:
            self.parts.popleft()
            self._head_sent = 0
            release(part)
        else:
            self._head_sent += done
        return wanted, done


def _read(part: FileSlice) -> bytes:
    data = os.pread(part.fileno(), part.size_bytes, part.position)
    if len(data) < part.size_bytes:
        raise TruncatedSliceError(f"the file ends {part.size_bytes - len(data)} bytes before the slice to send")
    return data
