"""What the machine itself can do, measured in the same run: the ceiling over every figure.

Page-cache write, `sendfile` from page cache to a loopback socket, plain loopback, and CRC-32C, each in one thread
on the side that is measured.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

from fastcrc.crc32 import iscsi as crc32c

CHUNK = 1 << 20


def page_cache_write(path: Path, size_bytes: int) -> float:
    chunk = os.urandom(CHUNK)
    with path.open("wb", buffering=0) as file:
        began = time.perf_counter()
        for _ in range(size_bytes // CHUNK):
            file.write(chunk)
        return size_bytes / (time.perf_counter() - began)


def _through_loopback(size_bytes: int, send: Callable[[socket.socket], None]) -> float:
    """Bytes a second that `send` gets through to a process that only reads."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        child = os.fork()
        if child == 0:
            try:
                with socket.create_connection(server.getsockname()) as reader:
                    buffer = bytearray(CHUNK)
                    while reader.recv_into(buffer):
                        pass
                    reader.send(b"x")
            finally:
                os._exit(0)
        connection, _ = server.accept()
        with connection:
            began = time.perf_counter()
            send(connection)
            connection.shutdown(socket.SHUT_WR)
            connection.recv(1)
            taken = time.perf_counter() - began
        os.waitpid(child, 0)
    return size_bytes / taken


def sendfile(path: Path, size_bytes: int) -> float:
    with path.open("rb") as file:

        def send(connection: socket.socket) -> None:
            at = 0
            while at < size_bytes:
                at += os.sendfile(connection.fileno(), file.fileno(), at, min(CHUNK, size_bytes - at))

        return _through_loopback(size_bytes, send)


def loopback(size_bytes: int) -> float:
    chunk = bytes(CHUNK)

    def send(connection: socket.socket) -> None:
        for _ in range(size_bytes // CHUNK):
            connection.sendall(chunk)

    return _through_loopback(size_bytes, send)


def checksum(size_bytes: int) -> float:
    chunk = os.urandom(CHUNK)
    began = time.perf_counter()
    for _ in range(size_bytes // CHUNK):
        crc32c(chunk)
    return size_bytes / (time.perf_counter() - began)


def measure(directory: Path, size_bytes: int = 512 << 20) -> dict[str, float]:
    """Each limit in MB/s: the best of three."""
    path = directory / "limits"
    limits = {
        "page-cache write": lambda: page_cache_write(path, size_bytes),
        "sendfile": lambda: sendfile(path, size_bytes),
        "loopback": lambda: loopback(size_bytes),
        "CRC-32C": lambda: checksum(size_bytes),
    }
    measured = {name: max(run() for _ in range(3)) / 1e6 for name, run in limits.items()}
    path.unlink()
    return measured
