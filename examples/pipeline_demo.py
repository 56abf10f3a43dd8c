"""A topic landing in a Delta table, each order once, although the runner is killed in the middle.

The pipeline is `tidelog pipeline run` in a process of its own, as an operator would start it; it runs on Spark. While
it works off what the topic holds, more orders come in, some of them not JSON. After a few commits the runner is killed
as a crash would, and started again; it goes on from the offsets that the table itself has. At the end the table and
its dead letters are read with pyarrow, which knows nothing of us, and compared with what was acknowledged.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Producer
from rich.console import Console

TOPIC = "orders"
NAME = "orders-to-table"
#: one order in so many is no JSON
BAD_EVERY = 10_007
KILL_AFTER_COMMITS = 3
STEP_TIMEOUT_S = 240

SPEC = """\
name = "{name}"

[source]
bootstrap = "{bootstrap}"
topics = ["{topic}"]

[decode]
format = "json"
schema = "id BIGINT, article BIGINT, pieces INT, price DOUBLE"

[table]
path = "lake/orders"

[trigger]
interval = "500ms"

[limits]
max_records_per_batch = {batch_records}

[spark.conf]
"spark.ui.enabled" = "false"
"""


def order(number: int) -> bytes:
    article = number % 1009
    return b'{"id": %d, "article": %d, "pieces": %d, "price": %d.25}' % (number, article, number % 7 + 1, article % 90)


def is_bad(number: int, first_late: int) -> bool:
    """Only among those that come in late."""
    return number >= first_late and number % BAD_EVERY == 0


class Commit(NamedTuple):
    at_s: float
    rows: int
    #: that the batch took
    seconds: float
    #: orders that were not in the table then
    lag: int


@dataclass
class Story:
    """What happened: moments, and where the pipeline stood at each commit."""

    started_s: float = field(default_factory=time.monotonic)
    commits: list[Commit] = field(default_factory=list)
    moments: list[tuple[float, str]] = field(default_factory=list)

    def now_s(self) -> float:
        return time.monotonic() - self.started_s

    def note(self, what: str) -> None:
        self.moments.append((self.now_s(), what))

    def show(self, console: Console) -> None:
        """Both curves in a line of characters each, a commit a character; the picture has them with their times."""
        console.print(f"rows/s of each commit  {bars([commit.rows / commit.seconds for commit in self.commits])}")
        console.print(f"lag behind each        {bars([commit.lag for commit in self.commits])}")


class Runner:
    """`tidelog pipeline run`, watched through its JSON lines."""

    def __init__(self, file: Path, story: Story) -> None:
        self._story = story
        self.commits = 0
        self.lag: int | None = None
        self.ended: dict[str, Any] | None = None
        command = [sys.executable, "-m", "tidelog.cli.main", "pipeline", "run", str(file), "-o", "json"]
        self._errors = open(file.with_suffix(".stderr"), "a+b")  # noqa: SIM115 - open as long as the process is
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self._errors, stdin=subprocess.DEVNULL)
        self._watching = threading.Thread(target=self._watch, daemon=True)
        self._watching.start()

    def _watch(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            said = json.loads(line)
            if said["event"] == "batch":
                self.lag = said["lag"]
                self._story.commits.append(Commit(self._story.now_s(), said["rows"], said["seconds"], said["lag"]))
                self.commits += 1
            elif said["event"] == "end":
                self.ended = said

    def wait_for(self, what: str, done: Any) -> None:
        until = time.monotonic() + STEP_TIMEOUT_S
        while not done():
            if self._process.poll() is not None:
                self._errors.seek(0)
                tail = self._errors.read().decode(errors="replace")[-2000:]
                raise SystemExit(f"the pipeline ended with {self._process.returncode} before {what}:\n{tail}")
            if time.monotonic() > until:
                raise SystemExit(f"waited {STEP_TIMEOUT_S} s in vain for {what}")
            time.sleep(0.05)

    def kill(self) -> None:
        self._process.kill()
        self._end()

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._end()
        if self._process.returncode != 0:
            raise SystemExit(f"the pipeline was asked to stop and ended with {self._process.returncode}")

    def _end(self) -> None:
        self._process.wait(60)
        self._watching.join(10)
        self._errors.close()


class Orders(threading.Thread):
    """More orders while the pipeline runs; counts those that were acknowledged, per partition."""

    def __init__(self, bootstrap: str, first: int, count: int, seconds: float, partitions: int) -> None:
        super().__init__(daemon=True)
        self.acknowledged = 0
        self._numbers = range(first, first + count)
        self._pause_s = seconds / 100
        self._partitions = partitions
        self._producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 5, "log_level": 0})

    def run(self) -> None:
        step = max(len(self._numbers) // 100, 1)
        for at, number in enumerate(self._numbers):
            value = b"this is no order" if is_bad(number, self._numbers[0]) else order(number)
            self._producer.produce(TOPIC, value, partition=number % self._partitions, on_delivery=self._delivered)
            if at % step == 0:
                self._producer.poll(self._pause_s)
        self._producer.flush()

    def _delivered(self, error: Any, _: Any) -> None:
        self.acknowledged += error is None


def show(bootstrap: str, console: Console, directory: Path, events: int, partitions: int) -> Story:
    """`events` orders are in the topic already; a fifth as many come in meanwhile."""
    console.print("\n[bold]A pipeline lands the orders in a Delta table, and is killed in the middle.[/bold]")
    file = directory / "orders.toml"
    batch_records = max(events // 8, 1000)
    file.write_text(SPEC.format(name=NAME, bootstrap=bootstrap, topic=TOPIC, batch_records=batch_records))
    more = events // 5
    story = Story()
    runner = Runner(file, story)
    orders = Orders(bootstrap, events, more, seconds=10, partitions=partitions)
    orders.start()
    runner.wait_for(f"{KILL_AFTER_COMMITS} commits", lambda: runner.commits >= KILL_AFTER_COMMITS)
    runner.kill()
    story.note("killed")
    console.print(f"After {runner.commits} commits the runner was killed (-9), with {runner.lag:,} orders to go.")
    runner = Runner(file, story)
    story.note("started again")
    orders.join(STEP_TIMEOUT_S)
    if orders.acknowledged != more:
        raise SystemExit(f"{orders.acknowledged} of {more} orders were acknowledged")
    total = events + more
    runner.wait_for("the end of the topic", lambda: runner.lag == 0 and committed(directory, partitions) == total)
    runner.stop()
    story.note("caught up")
    check(directory, events, total, partitions, console)
    return story


def committed(directory: Path, partitions: int) -> int:
    """Orders that the table's own offsets stand for."""
    from deltalake import DeltaTable

    table = DeltaTable(directory / "lake" / "orders")
    return sum(table.transaction_version(f"{NAME}/{TOPIC}/{partition}") or 0 for partition in range(partitions))


def check(directory: Path, first_late: int, total: int, partitions: int, console: Console) -> None:
    """Every acknowledged order once: in the table, or, where it is none, among the dead letters."""
    from deltalake import DeltaTable

    columns = ["id", "pieces", "_partition", "_offset"]
    rows = DeltaTable(directory / "lake" / "orders").to_pyarrow_table(columns=columns).to_pydict()
    dead = DeltaTable(directory / "lake" / "orders_dead_letters").to_pyarrow_table().to_pydict()
    good = [number for number in range(total) if not is_bad(number, first_late)]
    if sorted(rows["id"]) != good:
        raise SystemExit("the table does not hold every order once")
    if sum(rows["pieces"]) != sum(number % 7 + 1 for number in good):
        raise SystemExit("the table's pieces are not those that were ordered")
    places = list(zip(rows["_partition"], rows["_offset"], strict=True))
    places += zip(dead["partition"], dead["offset"], strict=True)
    counts = [len(range(partition, total, partitions)) for partition in range(partitions)]
    expected = [(partition, offset) for partition, count in enumerate(counts) for offset in range(count)]
    if sorted(places) != expected:
        raise SystemExit("the offsets in the table and its dead letters have gaps or come twice")
    console.print(
        f"Checked with pyarrow: {len(rows['id']):,} orders in the table, each once, and {len(dead['offset'])} that are"
        f" no JSON among the dead letters ({dead['reason'][0] if dead['reason'] else 'none'})."
    )


BARS = " ▁▂▃▄▅▆▇█"


def bars(values: list[float]) -> str:
    most = max(values, default=0) or 1
    return "".join(BARS[round(value / most * (len(BARS) - 1))] for value in values)


def draw(story: Story, path: Path) -> None:
    """Throughput and lag over time, with the moment of the kill."""
    from matplotlib import pyplot

    figure = picture(story)
    figure.savefig(path)
    pyplot.close(figure)


def picture(story: Story) -> Any:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    at = [commit.at_s for commit in story.commits]
    rates = [commit.rows / commit.seconds for commit in story.commits]
    figure, (rate, lag) = pyplot.subplots(2, 1, sharex=True, figsize=(8, 5))
    rate.bar(at, rates, width=0.3, color="#2a7f9e")
    # The upper third is for what happened; a line for each, for they may be close to each other.
    rate.set_ylim(0, 1.5 * max(rates, default=1))
    rate.set_ylabel("rows a second, per batch")
    rate.set_title("orders into a Delta table; the runner is killed and started again")
    lag.step(at, [commit.lag for commit in story.commits], where="post", color="#c0552d")
    lag.set_ylabel("orders not in the table")
    lag.set_xlabel("seconds")
    lag.set_ylim(bottom=0)
    first, last = rate.get_xlim()
    for number, (moment, what) in enumerate(story.moments[:2]):
        for axes in (rate, lag):
            axes.axvline(moment, color="black", linewidth=0.8, linestyle="--")
        # The one before the other on its left, the other on its right, as long as there is room.
        share = (moment - first) / (last - first)
        on_the_left = share > 0.75 or (number == 0 and share > 0.25)
        height = {"y": 0.93 - 0.12 * number, "transform": rate.get_xaxis_transform()}
        rate.text(moment, s=f" {what} ", ha="right" if on_the_left else "left", va="center", fontsize=8, **height)
    figure.tight_layout()
    return figure
