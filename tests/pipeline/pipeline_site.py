"""A pipeline under test: its topic, its file, its tables, and the oracle that says whether each record is there once.

What was acknowledged is kept with its offset. The oracle wants every one of these offsets in exactly one of the two
tables, once, with the value that was sent, and nothing else: dense, no gap, no double, nothing made up.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from tidelog.client import Client, Message
from tidelog.pipeline.land.executor import Executor, InProcess
from tidelog.pipeline.land.progress_events import Listener
from tidelog.pipeline.run.runner import Outcome, Runner
from tidelog.pipeline.spec import Pipeline, parse

At = tuple[str, int, int]

FILE = """
name = "{name}"
[source]
bootstrap = "{bootstrap}"
{source}
[decode]
{decode}
[table]
path = "{lake}/{name}"
{table}
[trigger]
{trigger}
[limits]
{limits}
[spark]
master = "{master}"
"""
JSON = 'format = "json"\nschema = "id BIGINT"'


def is_bad(number: int) -> bool:
    """Every seventh value cannot be decoded."""
    return number % 7 == 3


def value_of(number: int, growing: bool) -> bytes:
    """With `growing`, now and then a value has a field that none had before, so that the table gets a column."""
    if is_bad(number):
        return b'{"id": ' + b"?" * (number % 5)
    more = {f"seen_{number // 500}": True} if growing and number % 50 == 1 else {}
    return json.dumps({"id": number, **more}).encode()


class Site:
    def __init__(
        self,
        bootstrap: str,
        directory: Path,
        name: str,
        partitions: int = 2,
        growing: bool = False,
        lake: str | None = None,
    ) -> None:
        self.bootstrap = bootstrap
        self.directory = directory
        #: where the tables are: a directory, or an address
        self.lake = lake or str(directory / "lake")
        self.name = name
        self.topic = f"{name}-topic"
        self.partitions = partitions
        self.growing = growing
        #: offset -> value of everything that was acknowledged
        self.acknowledged: dict[At, bytes] = {}
        self._sent = 0
        with Client(bootstrap) as client:
            client.admin.create_topic(self.topic, partitions=partitions)

    # --- the topic ----------------------------------------------------------------------------------

    def produce(self, count: int) -> None:
        self.produce_values(self.topic, [value_of(n, self.growing) for n in range(self._sent, self._sent + count)])
        self._sent += count

    def produce_values(self, topic: str, values: Sequence[bytes], partitions: int | None = None) -> None:
        """Spread over the partitions one by one; returns when all are acknowledged."""
        partitions = partitions or self.partitions
        with Client(self.bootstrap) as client:
            for partition in range(partitions):
                own = values[partition::partitions]
                delivered = client.produce(topic, [Message(value) for value in own], partition=partition)
                offsets = [d.base_offset + n for d in delivered for n in range(d.record_count)]
                assert len(offsets) == len(own)
                self.acknowledged |= {(topic, partition, o): v for o, v in zip(offsets, own, strict=True)}

    # --- the pipeline -------------------------------------------------------------------------------

    def pipeline(
        self,
        *,
        decode: str = JSON,
        source: str | None = None,
        table: str = "",
        trigger: str = "once = true",
        limits: str = "max_records_per_batch = 50",
        master: str = "none",
        more: str = "",
    ) -> Pipeline:
        return parse(self.text(decode, source, table, trigger, limits, master) + more, str(self.directory / "p.toml"))

    def text(self, decode: str, source: str | None, table: str, trigger: str, limits: str, master: str) -> str:
        return FILE.format(
            name=self.name,
            lake=self.lake,
            bootstrap=self.bootstrap,
            source=source or f'topics = ["{self.topic}"]',
            decode=decode,
            table=table,
            trigger=trigger,
            limits=limits,
            master=master,
        )

    def run(
        self, executor: Executor | None = None, listeners: Iterable[Listener] = (), pipeline: Pipeline | None = None
    ) -> Outcome:
        return Runner(pipeline or self.pipeline(), executor or InProcess(), list(listeners), timeout_s=20).run()

    # --- what came out ------------------------------------------------------------------------------

    @property
    def table(self) -> DeltaTable:
        return DeltaTable(f"{self.lake}/{self.name}")

    @property
    def letters(self) -> DeltaTable:
        return DeltaTable(f"{self.lake}/{self.name}_dead_letters")

    def rows(self, *columns: str) -> list[dict[str, Any]]:
        """With all columns, or with these: a table that has grown for long has too many for one memory."""
        found: list[dict[str, Any]] = self.table.to_pyarrow_table(columns=list(columns) or None).to_pylist()
        return found

    def dead(self, *columns: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.letters.to_pyarrow_table(columns=list(columns) or None).to_pylist()
        return found

    def check_exactly_once(self, is_deleted: Callable[[int], bool] = lambda _: False) -> None:
        """The oracle, for JSON values with an id. Of rows that somebody else deletes (`is_deleted`) none is there."""
        found = self.rows("_topic", "_partition", "_offset", "id")
        rows = [((r["_topic"], r["_partition"], r["_offset"]), r["id"]) for r in found]
        letters = self.dead("topic", "partition", "offset", "value")
        dead = [((r["topic"], r["partition"], r["offset"]), r["value"]) for r in letters]
        twice = [at for at, count in Counter(at for at, _ in [*rows, *dead]).items() if count > 1]
        assert not twice, f"more than once: {sorted(twice)[:10]}"
        expected = {at: v for at, v in self.acknowledged.items() if v.startswith(b'{"id": ') and v.endswith(b"}")}
        ids = {at: json.loads(v)["id"] for at, v in expected.items()}
        assert dict(rows) == {at: number for at, number in ids.items() if not is_deleted(number)}
        assert dict(dead) == {at: v for at, v in self.acknowledged.items() if at not in expected}

    def check_raw_exactly_once(self) -> None:
        """The oracle, for raw values."""
        rows = [((r["topic"], r["partition"], r["offset"]), r["value"]) for r in self.rows()]
        assert len(rows) == len(dict(rows)), "a record is there twice"
        assert dict(rows) == self.acknowledged
