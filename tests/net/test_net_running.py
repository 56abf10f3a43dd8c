"""A server on a running loop, as the broker has it: a thread that sleeps in epoll, clients that block."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from net_site import number_of, reply_to, request

from tidelog.net import Exchange, Limits, Loop, Server


class Running:
    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.server = Server(loop, Limits(), self.echo_soon)
        self.address = self.server.listen("127.0.0.1", 0, "PLAINTEXT")
        self.thread = threading.Thread(target=loop.run)
        self.thread.start()

    def echo_soon(self, exchange: Exchange, frame: memoryview) -> None:
        """Every third is answered by a worker, the others at once; all let the next one come."""
        number = number_of(frame)
        if number % 3:
            exchange.reply([reply_to(number)])
        else:
            exchange.allow_next()
            self.loop.in_worker(lambda: reply_to(number), lambda reply, _: exchange.reply([reply]))

    def on_loop(self, question: Callable[[], int]) -> int:
        """Asked on the loop's thread."""
        answers: list[int] = []
        seen = threading.Event()

        def look() -> None:
            answers.append(question())
            seen.set()

        self.loop.call_soon_threadsafe(look)
        assert seen.wait(30)
        return answers[0]


@pytest.fixture
def running(system_loop: Loop) -> Iterator[Running]:
    one = Running(system_loop)
    yield one
    system_loop.call_soon_threadsafe(one.server.close)
    system_loop.call_soon_threadsafe(system_loop.stop)
    one.thread.join(30)
    assert not one.thread.is_alive()


def talk(address: tuple[str, int], requests: int, got: list[list[int]]) -> None:
    with socket.create_connection(address, timeout=30) as client:
        client.sendall(b"".join(request(number, 50) for number in range(requests)))
        data = client.makefile("rb").read(8 * requests)
        got.append([struct.unpack_from(">i", data, at + 4)[0] for at in range(0, len(data), 8)])


def test_many_clients_at_once_each_get_their_answers_in_order(running: Running) -> None:
    got: list[list[int]] = []
    clients = [threading.Thread(target=talk, args=(running.address, 500, got)) for _ in range(8)]
    for client in clients:
        client.start()
    for client in clients:
        client.join(60)
    assert got == [list(range(500))] * 8
    assert running.on_loop(lambda: running.server.requests) == 4000


def test_open_connections_that_say_nothing_cost_no_turn(running: Running) -> None:
    clients = [socket.create_connection(running.address, timeout=30) for _ in range(20)]
    for client in clients:
        client.sendall(request(1))
        assert client.recv(8) == reply_to(1)
    before = running.on_loop(lambda: running.loop.turns)
    time.sleep(0.3)
    assert running.on_loop(lambda: running.loop.turns) - before <= 2  # the two questions
    for client in clients:
        client.close()


def test_a_drain_from_the_loop_ends_it_after_the_last_answer(running: Running) -> None:
    client = socket.create_connection(running.address, timeout=30)
    client.sendall(request(1) + request(3))
    assert client.recv(8) == reply_to(1)
    drained = threading.Event()
    running.loop.call_soon_threadsafe(lambda: running.server.drain(drained.set))
    rest = client.makefile("rb").read()
    assert rest in (reply_to(3), b"")  # the second may not have been dispatched when the drain began
    assert drained.wait(30)
    client.close()
