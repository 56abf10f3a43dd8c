"""The line between a store and its ZooKeeper server, in the hands of a test: it can be held, and it can be cut."""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import suppress


class Line:
    """Listens on a port of its own and passes frames on to the server. `requests` counts the calls among them, and
    `sessions` the handshakes that ask for a new session."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self._is_cut = False
        self._answers_pass = threading.Event()
        self._answers_pass.set()
        self._mute_next = False
        self.requests = 0
        self.sessions = 0
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def connect(self) -> str:
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def hold_answers(self) -> None:
        """Requests reach the server, and nothing comes back."""
        self._answers_pass.clear()

    def release_answers(self) -> None:
        self._answers_pass.set()

    def cut(self) -> None:
        """Every connection breaks now, and new ones until `mend`. What was held is lost."""
        self._is_cut = True
        for one in self._open:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        self._open.clear()

    def mend(self) -> None:
        self._is_cut = False
        self._answers_pass.set()

    def mute_next(self) -> None:
        """The next connection is taken, and nobody speaks on it."""
        self._mute_next = True

    def close(self) -> None:
        self.cut()
        self._answers_pass.set()
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if self._is_cut:
                    client.close()
                    continue
                if self._mute_next:
                    self._mute_next = False
                    self._open.append(client)
                    continue
                server = socket.create_connection(("127.0.0.1", self._server_port))
                self._open += [client, server]
                threading.Thread(target=self._pass_requests, args=(client, server), daemon=True).start()
                threading.Thread(target=self._pass_answers, args=(server, client), daemon=True).start()

    def _pass_requests(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError, EOFError):
            handshake = _frame(client)
            if struct.unpack_from("!iiqiq", handshake)[4] == 0:
                self.sessions += 1
            server.sendall(handshake)
            while True:
                frame = _frame(client)
                if struct.unpack_from("!i", frame, 4)[0] > 0:
                    self.requests += 1
                server.sendall(frame)
        for one in (client, server):
            one.close()

    def _pass_answers(self, server: socket.socket, client: socket.socket) -> None:
        with suppress(OSError, EOFError):
            while True:
                frame = _frame(server)
                self._answers_pass.wait()
                client.sendall(frame)
        for one in (client, server):
            one.close()


def _frame(sender: socket.socket) -> bytes:
    head = _exactly(sender, 4)
    return head + _exactly(sender, struct.unpack("!i", head)[0])


def _exactly(sender: socket.socket, count: int) -> bytes:
    read = bytearray()
    while len(read) < count:
        chunk = sender.recv(count - len(read))
        if not chunk:
            raise EOFError
        read += chunk
    return bytes(read)
