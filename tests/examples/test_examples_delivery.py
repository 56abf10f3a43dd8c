"""The examples of the three guarantees, killed again and again while they copy, and what must hold at the end."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidelog.client import Client, Message
from tidelog.testing.broker import RunningBroker

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ("at_most_once", "at_least_once", "exactly_once")
PARTITIONS = 2
RECORDS = 2000
ROUND = 8
PATIENCE_S = 90


def hear_interrupts() -> None:
    # A test run in the background ignores Ctrl-C, and its children would inherit that.
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Copying:
    """An example as a process that is started, killed, and started again until it has nothing left to do."""

    def __init__(self, broker: RunningBroker, example: str) -> None:
        self._broker = broker
        self._example = example
        self._process: subprocess.Popen[bytes] | None = None
        self.client = Client(broker.bootstrap)
        for topic in ("in", "out"):
            self.client.admin.create_topic(topic, PARTITIONS)
        for partition in range(PARTITIONS):
            records = [Message(b"%d" % n, b"%d" % partition) for n in range(partition, RECORDS, PARTITIONS)]
            self.client.produce("in", records, partition=partition)

    def start(self, *arguments: str) -> None:
        command = [sys.executable, "-m", f"examples.{self._example}", "--bootstrap", self._broker.bootstrap]
        command += ["--from", "in", "--to", "out", "--round", str(ROUND), *arguments]
        paths = [str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        self._process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, preexec_fn=hear_interrupts
        )

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def interrupt(self) -> int:
        """Presses Ctrl-C; its exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGINT)
        return self._process.wait(PATIENCE_S)

    def finish(self) -> None:
        """One more life, until nothing comes any more."""
        self.start("--idle", "3")
        assert self._process is not None
        assert self._process.wait(PATIENCE_S) == 0

    def written(self) -> int:
        return sum(at.offset for at in self.client.offsets("out").values())

    def work(self, more: int) -> bool:
        """Lets it go on until it has written so many more; whether there may be anything left."""
        deadline = time.monotonic() + PATIENCE_S
        goal = self.written() + more
        while self.written() < goal:
            if self.consumed() >= RECORDS:
                return False
            assert time.monotonic() < deadline, f"{self._example} writes nothing any more"
            time.sleep(0.002)
        return True

    def consumed(self) -> int:
        return sum(at.offset for at in self.client.groups.offsets(self._example.replace("_", "-")).values())

    def output(self) -> Counter[bytes | None]:
        found: Counter[bytes | None] = Counter()
        for partition in range(PARTITIONS):
            found.update(record.value for record in self.client.read("out", partition, isolation="read_committed"))
        return found


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    config = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "1"}
    with RunningBroker({**config, "transaction.state.log.num.partitions": "1"}) as running:
        yield running


@pytest.fixture
def copying(broker: RunningBroker, request: pytest.FixtureRequest) -> Iterator[Copying]:
    copying = Copying(broker, request.param)
    yield copying
    copying.kill()
    copying.client.close()


@pytest.mark.parametrize("copying", EXAMPLES, indirect=True)
def test_an_example_ends_in_good_order_on_ctrl_c_and_says_what_it_did(copying: Copying) -> None:
    copying.start("--idle", "60")
    copying.work(1)
    assert copying.interrupt() == 0
    assert copying.consumed() > 0


INPUT = Counter({b"%d" % n: 1 for n in range(RECORDS)})


def run_with_kills(copying: Copying, seed: int, kills: int) -> None:
    rng = random.Random(seed)
    for _ in range(kills):
        copying.start()
        left = copying.work(rng.randint(1, RECORDS // 20))
        copying.kill()
        assert left, "it was not killed in the middle"
    copying.finish()


@pytest.mark.parametrize("copying", ["at_most_once"], indirect=True)
def test_at_most_once_repeats_nothing(copying: Copying) -> None:
    run_with_kills(copying, seed=1, kills=4)
    found = copying.output()
    assert max(found.values()) == 1
    assert found <= INPUT and len(found) > RECORDS // 2


@pytest.mark.parametrize("copying", ["at_least_once"], indirect=True)
def test_at_least_once_loses_nothing(copying: Copying) -> None:
    run_with_kills(copying, seed=2, kills=4)
    assert copying.output() >= INPUT


@pytest.mark.parametrize("copying", ["exactly_once"], indirect=True)
def test_exactly_once_neither_loses_nor_repeats(copying: Copying) -> None:
    run_with_kills(copying, seed=3, kills=4)
    assert copying.output() == INPUT


@pytest.mark.slow
@pytest.mark.parametrize("copying", ["exactly_once"], indirect=True)
def test_exactly_once_survives_the_death_of_the_broker_as_well(broker: RunningBroker, copying: Copying) -> None:
    rng = random.Random(4)
    copying.start()
    for turn in range(5):
        left = copying.work(rng.randint(1, RECORDS // 20))
        if turn % 3 != 0:
            copying.kill()
        if turn % 3 != 1:
            broker.kill()
            broker.start()
        assert left, "nothing was killed in the middle"
        if turn % 3 != 0:
            copying.start()
    copying.kill()
    copying.finish()
    assert copying.output() == INPUT


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_example_explains_itself(example: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", f"examples.{example}", "--help"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert f"python -m examples.{example} --bootstrap localhost:9092 --from orders --to bills" in done.stdout
    assert "--bootstrap" in done.stdout.split("options:")[1]
