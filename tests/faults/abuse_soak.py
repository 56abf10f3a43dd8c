"""What a healthy client feels while others misbehave: `python -m tests.faults.abuse_soak`, or `make abuse`.

The healthy client writes a record (the hundredth time a compressed batch that unpacks to two megabytes), waits for the
answer and rests a millisecond. It does so alone first, then beside each kind of abuse, and the abuse runs in a process
of its own.

Crowds: connections that send a byte a second, connections opened and dropped as fast as asked, and one socket that
pipelines requests without end. The factor is the median of rounds, each with its own baseline, since a shared machine
is never as quiet as the last time; a factor of the 99th percentile above `--most` is too much.

Requests: single ones that cost far more to answer than to send. What counts is the worst answer that the healthy client
got, the most memory that the broker took, and what the abuse was answered: a worst answer above `--worst-ms`, or more
memory than `--memory-mib`, is too much. Each has a broker of its own. `--only bomb` runs those whose name has the word.

It ends with 1 where anything was too much.
"""

from __future__ import annotations

import argparse
import multiprocessing
import multiprocessing.synchronize
import selectors
import socket
import statistics
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial

from bench import raw
from tests.faults import abuse_requests as abuse
from tests.faults.faultkit import batch, most_resident_bytes, resident_bytes

from tidelog.testing.broker import RunningBroker
from tidelog.wire import messages
from tidelog.wire.apis import ApiKey
from tidelog.wire.errors import ErrorCode

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


CROWDS: dict[str, Callable[..., None]] = {
    "2,000 connections, a byte a second each": slow_connections,
    "5,000 connects a second": connection_storm,
    "10,000 pipelined requests, over and over": pipelining,
}


def latencies_ms(host: str, port: int, seconds: float) -> list[float]:
    """Of a record by itself, and now and then of a batch that unpacks to two megabytes."""
    record = raw.produce_frame("healthy", 0, batch(b"x" * 100))
    packed = abuse.bomb("lz4", 2 * MIB)
    found: list[float] = []
    with raw.Connection(host, port) as healthy:
        until = time.perf_counter() + seconds
        while (began := time.perf_counter()) < until:
            assert healthy.produce(packed if len(found) % 100 == 99 else record).error_code == 0
            found.append((time.perf_counter() - began) * 1000)
            time.sleep(0.001)
    return found


def percentile(values: list[float], part: float) -> float:
    return sorted(values)[int(part * (len(values) - 1))]


def beside(behave_badly: Callable[..., None], broker: RunningBroker, seconds: float) -> tuple[list[float], int]:
    """The latencies beside the abuse, and by how much the broker's memory has grown."""
    ready, stop = multiprocessing.Event(), multiprocessing.Event()
    before = resident_bytes(broker.pid)
    process = multiprocessing.Process(target=behave_badly, args=(broker.host, broker.port, ready, stop), daemon=True)
    process.start()
    assert ready.wait(60), "the abuse has not begun"
    try:
        found = latencies_ms(broker.host, broker.port, seconds)
        return found, resident_bytes(broker.pid) - before
    finally:
        stop.set()
        process.join(30)
        process.kill()


# -- single requests ------------------------------------------------------------------------------------------------


class Answers:
    """What an abuse was answered, as it goes: how often, and the last."""

    def __init__(self, host: str, port: int) -> None:
        self._address = (host, port)
        self._counts: Counter[str] = Counter()

    def ask(self, request: bytes, said: Callable[[bytes], str], connection: raw.Connection | None = None) -> None:
        try:
            if connection is None:
                with raw.Connection(*self._address, timeout=120) as own:
                    self._counts[said(own.ask(request))] += 1
            else:
                self._counts[said(connection.ask(request))] += 1
        except (ConnectionError, BrokenPipeError):
            self._counts["connection closed"] += 1

    def send(self, request: bytes, connection: raw.Connection) -> None:
        try:
            connection.socket.sendall(request)
        except (ConnectionError, BrokenPipeError, TimeoutError):
            pass  # its answer will tell

    def receive(self, said: Callable[[bytes], str], connection: raw.Connection) -> None:
        try:
            self._counts[said(connection.answer())] += 1
        except (ConnectionError, BrokenPipeError):
            self._counts["connection closed"] += 1
        except TimeoutError:
            self._counts["no answer in time"] += 1

    def tell(self) -> None:
        told = ", ".join(f"{count} × {what}" for what, count in self._counts.most_common(4))
        print(f"    answered: {told or 'nothing'}", flush=True)


def code(answer: bytes, at: int) -> str:
    return ErrorCode.of(struct.unpack_from(">h", answer, at)[0]).name


def repeat(request: bytes, said: Callable[[bytes], str], times: int = 1_000_000) -> Callable[..., None]:
    """The same request over and over, each on a connection of its own."""

    def behave_badly(host: str, port: int, ready: Event, stop: Event) -> None:
        answers = Answers(host, port)
        ready.set()
        for _ in range(times):
            if stop.is_set():
                break
            answers.ask(request, said)
        stop.wait()
        answers.tell()

    return behave_badly


def bombs(codec: str, unpacked_bytes: int, times: int) -> Callable[..., None]:
    return repeat(
        abuse.bomb(codec, unpacked_bytes),
        lambda answer: ErrorCode.of(raw.parse_produced(answer).error_code).name,
        times,
    )


def mixed_bombs(host: str, port: int, ready: Event, stop: Event, count: int = 40) -> None:
    """All codecs at once, each on a connection of its own, and again as soon as they are answered."""
    sizes = (("gzip", 100 * MIB), ("zstd", 120 * MIB), ("lz4", 100 * MIB), ("gzip", 130 * MIB), ("snappy", 20 * MIB))
    frames = [abuse.bomb(codec, unpacked_bytes) for codec, unpacked_bytes in sizes]
    answers = Answers(host, port)
    ready.set()
    while not stop.is_set():
        crowd = [raw.Connection(host, port, timeout=120) for _ in range(count)]
        for number, one in enumerate(crowd):
            answers.send(frames[number % len(frames)], one)
        for one in crowd:
            answers.receive(lambda answer: ErrorCode.of(raw.parse_produced(answer).error_code).name, one)
            one.close()
    answers.tell()


def size(answer: bytes) -> str:
    return f"{len(answer):,} bytes"


def joining_members(host: str, port: int, ready: Event, stop: Event, count: int = 10_000) -> None:
    """Members of one server-side group, as fast as they are answered."""
    answers = Answers(host, port)
    raw.make_topic(host, port, "joined")
    with raw.Connection(host, port, timeout=120) as connection:
        connection.ask(abuse.framed(ApiKey.FIND_COORDINATOR, 3, messages.FindCoordinatorRequest(key="big")))
        ready.set()
        for number in range(count):
            if stop.is_set():
                break
            request = abuse.consumer_join("big", f"member-{number:06d}", subscribed_topic_names=["joined"])
            answers.ask(request, lambda answer: code(answer, 9), connection)
        answers.tell()
        stop.wait()


def large_joins(
    host: str, port: int, ready: Event, stop: Event, count: int = 10, metadata_bytes: int = 20 * MIB
) -> None:
    """Classic members whose metadata is twenty megabytes."""
    answers = Answers(host, port)
    with raw.Connection(host, port, timeout=120) as connection:
        connection.ask(abuse.framed(ApiKey.FIND_COORDINATOR, 3, messages.FindCoordinatorRequest(key="fat")))
    ready.set()
    request = abuse.join_of("fat", metadata_bytes)
    while not stop.is_set():
        crowd = [raw.Connection(host, port, timeout=10) for _ in range(count)]
        for one in crowd:
            answers.send(request, one)
        for one in crowd:
            answers.receive(lambda answer: code(answer, 8), one)
            one.close()
    answers.tell()


def expressions(host: str, port: int, ready: Event, stop: Event) -> None:
    """Regular expressions of thirty kilobytes, each another one."""
    answers = Answers(host, port)
    for number in range(20):
        raw.make_topic(host, port, "a" * 200 + str(number))
    with raw.Connection(host, port, timeout=120) as connection:
        connection.ask(abuse.framed(ApiKey.FIND_COORDINATOR, 3, messages.FindCoordinatorRequest(key="rx")))
        ready.set()
        for number in range(1_000):
            if stop.is_set():
                break
            expression = "(a?b?c?)" * 1_200 + "a*" * 10_000 + str(number)
            request = abuse.consumer_join("rx", f"m{number}", subscribed_topic_regex=expression)
            answers.ask(request, lambda answer: code(answer, 9), connection)
        stop.wait()
        answers.tell()


def half_sent(
    host: str, port: int, ready: Event, stop: Event, count: int = 20, announced_bytes: int = 60 * MIB
) -> None:
    """Requests of which all but the end is sent as far as the broker reads it."""
    crowd = [socket.create_connection((host, port), 60) for _ in range(count)]
    begin = struct.pack(">i", announced_bytes) + struct.pack(">hhih", 0, 9, 1, 4) + b"half"
    request = begin + bytes(announced_bytes - 1000)
    selector = selectors.DefaultSelector()
    for one in crowd:
        one.setblocking(False)
        selector.register(one, selectors.EVENT_WRITE)
    sent = dict.fromkeys(crowd, 0)
    closed = 0
    ready.set()
    while not stop.is_set():
        for key, _ in selector.select(0.1):
            one = key.fileobj
            assert isinstance(one, socket.socket)
            try:
                sent[one] += one.send(request[sent[one] : sent[one] + MIB])
            except (ConnectionError, BrokenPipeError):
                closed += 1
                selector.unregister(one)
                continue
            if sent[one] == len(request):
                selector.unregister(one)
    taken = sum(sent.values()) / MIB
    print(f"    answered: {taken:,.0f} MiB were taken, {closed} connections closed", flush=True)


def deleted_groups(host: str, port: int, ready: Event, stop: Event, count: int = 20_000) -> None:
    """Groups that are made by a committed offset and deleted again."""
    ready.set()
    with raw.Connection(host, port, timeout=120) as connection:
        connection.ask(abuse.framed(ApiKey.FIND_COORDINATOR, 3, messages.FindCoordinatorRequest(key="g")))
        names = [f"group-{number}" for number in range(count)]
        for name in names:
            connection.ask(abuse.commit_of(name, "healthy"))
        for at in range(0, count, 500):
            request = messages.DeleteGroupsRequest(groups_names=names[at : at + 500])
            connection.ask(abuse.framed(ApiKey.DELETE_GROUPS, 2, request))
    print(f"    answered: {count:,} groups made and deleted", flush=True)
    stop.wait()


def made_topics(host: str, port: int, ready: Event, stop: Event, count: int = 2_000) -> None:
    """Topics that are made by one request, deleted by another, and made again at once."""
    answers = Answers(host, port)
    names = [f"topic-{number}" for number in range(count)]
    ready.set()
    for request in (abuse.creation_of(names), abuse.deletion_of(names), abuse.creation_of(names)):
        if not stop.is_set():
            answers.ask(request, size)
    answers.tell()
    stop.wait()


def requests() -> dict[str, Callable[..., None]]:
    return {
        "a zstd bomb of 4 kB, 130 MB unpacked, refused": bombs("zstd", 130 * MIB, 30),
        "a gzip bomb of 130 kB, 130 MB unpacked, refused": bombs("gzip", 130 * MIB, 30),
        "an lz4 bomb of 500 kB, 130 MB unpacked, refused": bombs("lz4", 130 * MIB, 30),
        "a gzip bomb of 100 kB, 100 MB unpacked, taken": bombs("gzip", 100 * MIB, 12),
        "40 bombs of all codecs at once": mixed_bombs,
        "a Fetch of a million partitions": repeat(abuse.fetch_of(1_000_000), size),
        "a Fetch of 90,000 partitions": repeat(abuse.fetch_of(90_000), size),
        "a Metadata of 500,000 unknown topics": repeat(abuse.metadata_of(500_000), size),
        "a Metadata of 90,000 unknown topics": repeat(abuse.metadata_of(90_000), size),
        "10,000 members join a server-side group": joining_members,
        "ten JoinGroups of 20 MB": large_joins,
        "regular expressions of 30 kB": expressions,
        "20 half-sent requests of 60 MB": half_sent,
        "2,000 half-sent requests of 1 MB": partial(half_sent, count=2_000, announced_bytes=MIB),
        "20,000 groups made and deleted": deleted_groups,
        "2,000 topics made, deleted and made again": made_topics,
    }


def measure_request(name: str, behave_badly: Callable[..., None], seconds: float) -> tuple[float, float]:
    """The worst answer beside the abuse in milliseconds, and the broker's most memory in MiB."""
    with RunningBroker() as broker:
        raw.make_topic(broker.host, broker.port, "healthy")
        alone = latencies_ms(broker.host, broker.port, min(seconds, 2))
        found, _ = beside(behave_badly, broker, seconds)
        after = resident_bytes(broker.pid) / MIB
        most = most_resident_bytes(broker.pid) / MIB
    print(
        f"{name}: worst answer {max(alone):.0f} → {max(found):.0f} ms (p99 {percentile(found, 0.99):.1f} ms),"
        f" memory {most:.0f} MiB at most, {after:.0f} MiB after",
        flush=True,
    )
    return max(found), most


def measure_crowd(name: str, behave_badly: Callable[..., None], options: argparse.Namespace) -> float:
    """The factor by which the 99th percentile grows beside the abuse."""
    factors = []
    with RunningBroker() as broker:
        raw.make_topic(broker.host, broker.port, "healthy")
        for _ in range(options.rounds):
            alone = latencies_ms(broker.host, broker.port, options.seconds)
            found, grown = beside(behave_badly, broker, options.seconds)
            factors.append(percentile(found, 0.99) / percentile(alone, 0.99))
            print(
                f"{name}: p50 {percentile(alone, 0.5):.2f} → {percentile(found, 0.5):.2f} ms,"
                f" p99 {percentile(alone, 0.99):.2f} → {percentile(found, 0.99):.2f} ms, {grown / MIB:+.0f} MiB",
                flush=True,
            )
    factor = statistics.median(factors)
    print(f"{name}: p99 × {factor:.2f}", flush=True)
    return factor


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=5, help="of each crowd")
    parser.add_argument("--most", type=float, default=2.0, help="the factor of the 99th percentile that is too much")
    parser.add_argument("--worst-ms", type=float, default=100, help="the worst answer beside a request")
    parser.add_argument("--memory-mib", type=float, default=400, help="the broker's memory beside a request")
    parser.add_argument("--only", default="", help="a part of the names of those to run")
    options = parser.parse_args()
    too_much = []
    for name, behave_badly in requests().items():
        if options.only in name:
            worst_ms, memory_mib = measure_request(name, behave_badly, options.seconds)
            if worst_ms > options.worst_ms or memory_mib > options.memory_mib:
                too_much.append(name)
    for name, behave_badly in CROWDS.items():
        if options.only in name and measure_crowd(name, behave_badly, options) > options.most:
            too_much.append(name)
    print("too much: " + ", ".join(too_much) if too_much else "nothing was too much")
    return 1 if too_much else 0


if __name__ == "__main__":
    sys.exit(main())
