"""What a healthy client feels while others misbehave: `python -m tests.faults.abuse_soak`.

The healthy client writes a record, waits for the answer and rests a millisecond. It does so alone first, then beside
each kind of abuse, and the abuse runs in a process of its own: connections that send a byte a second, connections
opened and dropped as fast as asked, and one socket that pipelines requests without end. The factor is the median of
rounds, each with its own baseline, since a shared machine is never as quiet as the last time; it ends with 1 where a
factor of the 99th percentile is above `--most`.
"""

from __future__ import annotations

import argparse
import multiprocessing
import multiprocessing.synchronize
import selectors
import socket
import statistics
import sys
import time
from collections.abc import Callable

from bench import raw
from tests.faults.faultkit import batch, resident_bytes

from tidelog.testing.broker import RunningBroker

MIB = 1 << 20
Event = multiprocessing.synchronize.Event


def slow_connections(host: str, port: int, ready: Event, stop: Event, count: int = 2_000) -> None:
    """Each sends one byte a second of a request that never ends."""
    crowd = [socket.create_connection((host, port), 60) for _ in range(count)]
    request = raw.produce_frame("healthy", 0, batch(b"slow" * 1000))
    ready.set()
    at = 0
    while not stop.is_set():
        for number, one in enumerate(crowd):
            one.send(request[at : at + 1])
            if number % 20 == 19:
                time.sleep(20 / count)
        at += 1


def connection_storm(host: str, port: int, ready: Event, stop: Event, a_second: int = 5_000) -> None:
    """Connections opened and dropped at once, with a reset, so that no port stays taken."""
    ready.set()
    started, opened = time.perf_counter(), 0
    while not stop.is_set():
        one = socket.socket()
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        one.connect((host, port))
        one.close()
        opened += 1
        ahead = opened / a_second - (time.perf_counter() - started)
        if ahead > 0.001:
            time.sleep(ahead)
    print(f"    {opened / (time.perf_counter() - started):,.0f} connects a second", flush=True)


def pipelining(host: str, port: int, ready: Event, stop: Event, depth: int = 10_000) -> None:
    """Ten thousand requests of one record on one socket, all sent before the answers are read, over and over."""
    with socket.create_connection((host, port), 60) as greedy:
        requests = raw.produce_frame("healthy", 0, batch(b"x")) * depth
        greedy.setblocking(False)
        answer_bytes = None
        selector = selectors.DefaultSelector()
        selector.register(greedy, selectors.EVENT_READ | selectors.EVENT_WRITE)
        ready.set()
        sent = received = rounds = 0
        while not stop.is_set():
            for _, events in selector.select(0.1):
                if events & selectors.EVENT_WRITE and sent < len(requests):
                    sent += greedy.send(requests[sent : sent + 65536])
                if events & selectors.EVENT_READ:
                    piece = greedy.recv(1 << 20)
                    answer_bytes = answer_bytes or 4 + int.from_bytes(piece[:4], "big")
                    received += len(piece)
            if answer_bytes is not None and received == depth * answer_bytes:
                sent = received = 0
                rounds += 1
        print(f"    {rounds} rounds of {depth} requests", flush=True)


ABUSES: dict[str, Callable[..., None]] = {
    "2,000 connections, a byte a second each": slow_connections,
    "5,000 connects a second": connection_storm,
    "10,000 pipelined requests, over and over": pipelining,
}


def latencies_ms(host: str, port: int, seconds: float) -> list[float]:
    request = raw.produce_frame("healthy", 0, batch(b"x" * 100))
    found = []
    with raw.Connection(host, port) as healthy:
        until = time.perf_counter() + seconds
        while (began := time.perf_counter()) < until:
            assert healthy.produce(request).error_code == 0
            found.append((time.perf_counter() - began) * 1000)
            time.sleep(0.001)
    return found


def percentile(values: list[float], part: float) -> float:
    return sorted(values)[int(part * (len(values) - 1))]


def beside(abuse: Callable[..., None], broker: RunningBroker, seconds: float) -> tuple[list[float], int]:
    """The latencies beside the abuse, and by how much the broker's memory has grown."""
    ready, stop = multiprocessing.Event(), multiprocessing.Event()
    before = resident_bytes(broker.pid)
    process = multiprocessing.Process(target=abuse, args=(broker.host, broker.port, ready, stop), daemon=True)
    process.start()
    assert ready.wait(60), "the abuse has not begun"
    try:
        found = latencies_ms(broker.host, broker.port, seconds)
        return found, resident_bytes(broker.pid) - before
    finally:
        stop.set()
        process.join(30)
        process.kill()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=5, help="of each abuse")
    parser.add_argument("--most", type=float, default=2.0, help="the factor of the 99th percentile that is too much")
    options = parser.parse_args()
    too_much = []
    with RunningBroker() as broker:
        raw.make_topic(broker.host, broker.port, "healthy")
        for name, abuse in ABUSES.items():
            factors = []
            for _ in range(options.rounds):
                alone = latencies_ms(broker.host, broker.port, options.seconds)
                found, grown = beside(abuse, broker, options.seconds)
                factors.append(percentile(found, 0.99) / percentile(alone, 0.99))
                print(
                    f"{name}: p50 {percentile(alone, 0.5):.2f} → {percentile(found, 0.5):.2f} ms,"
                    f" p99 {percentile(alone, 0.99):.2f} → {percentile(found, 0.99):.2f} ms, {grown / MIB:+.0f} MiB",
                    flush=True,
                )
            factor = statistics.median(factors)
            print(f"{name}: p99 × {factor:.2f}", flush=True)
            if factor > options.most:
                too_much.append(name)
    print("too much: " + ", ".join(too_much) if too_much else f"every factor is within {options.most:g}")
    return 1 if too_much else 0


if __name__ == "__main__":
    sys.exit(main())
