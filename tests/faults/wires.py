"""Wires that can be cut: a small TCP proxy before each broker, and one between each broker and ZooKeeper.

    wires = Wires()
    port = wires.to_broker(2, 9092)          # whoever connects here reaches the broker 2
    wires.cut(1, 2)                          # nothing from 1 reaches 2 any more, nor from 2 to 1
    wires.cut(1, 2, both=False)              # only what 1 says to 2 is lost
    wires.mend()

A cut wire is silent, as a network without a route is: nothing is refused or closed, and what was on its way arrives
after the mending, as TCP would repeat it. Brokers say who they are in the client id of their first request; everybody
else is a client, whose wires are never cut.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import struct
import threading
from collections.abc import Coroutine
from typing import Any

HOST = "127.0.0.1"
ZOOKEEPER = "zookeeper"
CLIENT = "client"
#: a broker's id, or one of the names above
End = int | str
_PEER = re.compile(rb"broker-(\d+)-")


class Wires:
    def __init__(self) -> None:
        self._lost: set[tuple[End, End]] = set()
        self._loop = asyncio.new_event_loop()
        self._mended = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._servers: list[asyncio.Server] = []
        self._thread = threading.Thread(target=self._loop.run_forever, name="wires", daemon=True)
        self._thread.start()

    def to_broker(self, broker_id: int, port: int) -> int:
        """A port of its own for what goes to the broker that listens on `port`."""
        return self._lay(None, broker_id, port)

    def to_zookeeper(self, broker_id: int, port: int) -> int:
        """A port for the sessions of this broker."""
        return self._lay(broker_id, ZOOKEEPER, port)

    def cut(self, one: End, other: End, *, both: bool = True) -> None:
        self._lost.add((one, other))
        if both:
            self._lost.add((other, one))

    def mend(self) -> None:
        self._lost.clear()
        self._call(self._tell_mended())

    def close(self) -> None:
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _call(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    def _lay(self, near: End | None, far: End, port: int) -> int:
        async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._tasks.add(task)
            try:
                await self._carry(near, far, port, reader, writer)
            except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                pass
            finally:
                self._tasks.discard(task)
                writer.close()

        server: asyncio.Server = self._call(asyncio.start_server(carry, HOST, 0))
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    async def _carry(
        self, near: End | None, far: End, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        first = b""
        if near is None:
            head = await reader.readexactly(4)
            first = head + await reader.readexactly(min(struct.unpack(">i", head)[0], 1 << 20))
            name = _PEER.match(first, 14)
            near = int(name[1]) if name else CLIENT
        await self._passable(near, far)
        far_reader, far_writer = await asyncio.open_connection(HOST, port)
        with contextlib.closing(far_writer):
            far_writer.write(first)
            pumps = [
                asyncio.ensure_future(self._pump(near, far, reader, far_writer)),
                asyncio.ensure_future(self._pump(far, near, far_reader, writer)),
            ]
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in pumps:
                    pump.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)

    async def _pump(self, near: End, far: End, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            data = await reader.read(65536)
            # An end is lost as well: who is cut off does not hear that the other has gone.
            await self._passable(near, far)
            if not data:
                return
            writer.write(data)
            await writer.drain()

    async def _passable(self, near: End, far: End) -> None:
        while (near, far) in self._lost:
            await self._mended.wait()

    async def _tell_mended(self) -> None:
        self._mended.set()
        self._mended = asyncio.Event()

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def free_port() -> int:
    with socket.socket() as one:
        one.bind((HOST, 0))
        return int(one.getsockname()[1])
