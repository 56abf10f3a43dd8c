"""Kafka Streams with exactly_once_v2 on a broker that dies, in a program that is killed as well."""

from __future__ import annotations

import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.systems.java import java_command

from tidelog.client import Client, Message
from tidelog.testing.broker import RunningBroker

pytestmark = [pytest.mark.java, pytest.mark.slow]

PARTITIONS = 2
WORDS = 11
PATIENCE_S = 120


class Counting:
    """The Streams program (tests/java/src/tidelog/judge/CountWords.java) as a process."""

    def __init__(self, broker: RunningBroker, directory: Path) -> None:
        self._command = java_command(
            "tidelog.judge.CountWords", broker.bootstrap, "counting", "words", "counts", str(directory)
        )
        self._process: subprocess.Popen[bytes] | None = None
        self.client = Client(broker.bootstrap)
        self.written = 0

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stderr=subprocess.DEVNULL)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def feed(self, count: int) -> None:
        words = [b"%d" % (n * n % WORDS) for n in range(self.written, self.written + count)]
        self.client.produce("words", [Message(word, b"%d" % n) for n, word in enumerate(words)])
        self.written += count

    def counts(self) -> dict[bytes, list[int]]:
        """Word -> its counts, in the order in which a reader of committed records sees them."""
        found: defaultdict[bytes, list[int]] = defaultdict(list)
        for partition in range(PARTITIONS):
            for record in self.client.read("counts", partition, isolation="read_committed"):
                assert record.key is not None and record.value is not None
                found[record.key].append(int(record.value))
        return found

    def await_counts(self, total: int) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while (seen := sum(map(len, self.counts().values()))) < total:
            assert self._process is not None and self._process.poll() is None, "the program ended by itself"
            assert time.monotonic() < deadline, f"{seen} of {total} counts came"
            time.sleep(0.05)


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    with RunningBroker({"group.initial.rebalance.delay.ms": "0"}) as running:
        yield running


@pytest.fixture
def counting(broker: RunningBroker, tmp_path: Path) -> Iterator[Counting]:
    counting = Counting(broker, tmp_path)
    for topic in ("words", "counts"):
        counting.client.admin.create_topic(topic, PARTITIONS)
    yield counting
    counting.kill()
    counting.client.close()


def test_streams_counts_every_word_exactly_once(broker: RunningBroker, counting: Counting) -> None:
    counting.start()
    for life in range(3):
        counting.feed(2000)
        counting.await_counts(counting.written - 1900)  # somewhere in the middle of what was fed
        if life == 1:
            broker.kill()
            broker.start()
        else:
            counting.kill()
            counting.start()
    counting.feed(100)
    counting.await_counts(counting.written)
    expected = Counter(b"%d" % (n * n % WORDS) for n in range(counting.written))
    assert counting.counts() == {word: list(range(1, count + 1)) for word, count in expected.items()}
