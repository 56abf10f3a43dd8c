"""The ledger: which batch of which writer is decided, kept on the brokers that the batch is written to.

A compacted topic, one record per writer: the key is the writer's identity (a streaming query's id, a job's name), the
value the newest batch of it.

    {"format": 1, "batch": 7, "state": "decided", "rows": 1200, "note": null,
     "tasks": [[0, "<transactional id>", <producer id>, <epoch>, 600, <checksum>], …],
     "run": "<the driver's run>", "before": ["<an earlier run>", …]}

`decided` names the transactions that make up the batch: they are to be committed, by whoever finds this. `done` says
that all of them are. A batch that has neither does not exist, and whatever was written for it is to be aborted.

A writer has one driver, which is one run of it. Spark lets changing processes commit for a driver, so a process is not
a driver: `run` says whose an entry is, and `before` which runs it took over from. Taking the ledger for an identity
takes a transactional id that belongs to it, which fences the process that had it, of whatever run; entries are written
in transactions of that id. So nobody decides anything who has not seen what was decided before, and a run that was
thought dead finds itself among those that others took over from. Reading goes to the end of the log as it is at that
moment: where another writer's entry is just being written in the same partition, its end is waited for.
"""

from __future__ import annotations

import json
import math
import time
from typing import Final, NamedTuple

from tidelog.client.client import Client
from tidelog.client.cluster import Patience
from tidelog.client.errors import ClientError, Denied, Exists, NotFound, Refused, TimedOut
from tidelog.client.partitioner import partition_of_key
from tidelog.client.reader import Span, chunk_records
from tidelog.client.transactional import Prepared, TransactionalProducer
from tidelog.pipeline.options.given import LEDGER_TOPIC

PARTITIONS: Final = 16
CONFIGS: Final = {
    "cleanup.policy": "compact",
    # Small segments are cleaned soon, so that a driver that starts has little to read.
    "segment.bytes": str(4 * 1024 * 1024),
    "min.cleanable.dirty.ratio": "0.1",
}
#: an entry is one small record: a transaction that takes longer is of a driver that died
ENTRY_TIMEOUT_MS: Final = 30_000
_FORMAT: Final = 1
#: how often in a row a broker says that nothing follows before a gap at the end is believed
_EMPTY_ANSWERS: Final = 2


class Part(NamedTuple):
    """What one task wrote of a batch: its transaction, and what was in it."""

    task: int
    prepared: Prepared
    rows: int
    checksum: int


class LedgerEntry(NamedTuple):
    """The newest batch of a writer. `note` is the writer's own."""

    batch: int
    done: bool
    parts: tuple[Part, ...]
    note: str | None = None
    #: the run whose driver wrote it; "" where a version wrote it that did not tell
    run: str = ""
    #: the runs that it took over from, the latest one last
    before: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts)

    def to_bytes(self) -> bytes:
        value = {
            "format": _FORMAT,
            "batch": self.batch,
            "state": "done" if self.done else "decided",
            "rows": self.rows,
            "note": self.note,
            "tasks": [[part.task, *part.prepared, part.rows, part.checksum] for part in self.parts],
            "run": self.run,
            "before": list(self.before),
        }
        return json.dumps(value, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, data: bytes, where: str) -> LedgerEntry:
        try:
            value = json.loads(data)
            if value["format"] != _FORMAT:
                raise ValueError(f"format {value['format']}")
            parts = tuple(
                Part(task, Prepared(name, producer_id, epoch), rows, checksum)
                for task, name, producer_id, epoch, rows, checksum in value["tasks"]
            )
            runs = value.get("run", ""), tuple(value.get("before", ()))
            return cls(value["batch"], value["state"] == "done", parts, value["note"], *runs)
        except (ValueError, KeyError, TypeError) as error:
            raise ClientError(f"{where} cannot be read: {error}", hint="was it written by a newer tidelog?") from error


class Ledger:
    """The ledger of a cluster, as far as it was read."""

    def __init__(self, client: Client, topic: str = LEDGER_TOPIC) -> None:
        self._client = client
        self._topic = topic
        self._partitions = 0
        self._spans: dict[int, Span] = {}
        self._values: dict[bytes, bytes | None] = {}

    def latest(self, identity: str) -> LedgerEntry | None:
        """The newest entry of a writer. Reads only what came since it was last asked."""
        key = identity.encode()
        self._catch_up(partition_of_key(key, self._count()))
        value = self._values.get(key)
        return (
            None if value is None else LedgerEntry.from_bytes(value, f"the entry of {identity} in topic {self._topic}")
        )

    def exists(self) -> bool:
        """Whether anything was ever decided in this cluster."""
        try:
            self._client.topic(self._topic)
        except NotFound:
            return False
        return True

    def take(self, identity: str, prefix: str) -> Hold:
        """Makes this the only process that can write entries of a writer."""
        producer = self._client.transactional_producer(
            f"{prefix}/{identity}/ledger", timeout_ms=ENTRY_TIMEOUT_MS, compression="zstd", auto_create=False
        )
        where = partition_of_key(identity.encode(), self._count())
        return Hold(identity, producer, self._topic, where, self.latest(identity))

    # --- the topic ----------------------------------------------------------------------------------

    def _count(self) -> int:
        if not self._partitions:
            try:
                self._partitions = len(self._client.topic(self._topic).partitions)
            except NotFound:
                self._partitions = self._create()
            self._check_policy()
        return self._partitions

    def _create(self) -> int:
        try:
            self._client.admin.create_topic(self._topic, PARTITIONS, configs=CONFIGS)
        except Exists:
            pass
        except Denied as error:
            raise Denied(
                f"topic {self._topic}, the ledger of exactly-once writes, cannot be created: {error}",
                error.code,
                f"create it with cleanup.policy=compact and {PARTITIONS} partitions, or ask for an ACL",
            ) from error
        return len(self._client.topic(self._topic).partitions)

    def _check_policy(self) -> None:
        """A ledger that forgets would let batches be written twice."""
        try:
            (found,) = self._client.admin.describe_configs("topic", self._topic, ["cleanup.policy"])
        except Denied:
            return
        if found.value != "compact":
            raise Refused(
                f"topic {self._topic} is the ledger of exactly-once writes, and has cleanup.policy={found.value}",
                hint="set cleanup.policy=compact for it, or name another topic with tidelog.ledger.topic",
            )

    def _catch_up(self, partition: int) -> None:
        span = self._spans.get(partition)
        try:
            if span is None:
                span = self._client.spans(self._topic, {partition: ("earliest", None)})[0]
            self._read(span)
        except ClientError:
            # Whatever it was, the next reading begins at the beginning.
            self._spans.pop(partition, None)
            raise
        self._spans[partition] = span

    def _read(self, span: Span) -> None:
        end = self._client.offsets(self._topic, [span.partition], "latest")[span.partition].offset
        reader = self._client.reader([span], isolation="read_committed", max_wait_ms=50)
        patience = Patience(2 * ENTRY_TIMEOUT_MS / 1000)
        empty = 0
        while span.position < end:
            (chunk,) = reader.once()
            for record in chunk_records(chunk):
                self._values[record.key or b""] = record.value
            if chunk.fetched.records:
                empty = 0
            elif chunk.fetched.last_stable_offset >= end:
                empty += 1
                if empty == _EMPTY_ANSWERS:
                    span.position = end
            else:
                waiting = f"an entry is being written to {self._topic}-{span.partition}, and does not end"
                patience.pause(TimedOut(waiting, hint="tidelog transaction list shows who writes it"))


class Hold:
    """A writer's place in the ledger, while nobody else takes it. `latest` is its newest entry."""

    def __init__(
        self, identity: str, producer: TransactionalProducer, topic: str, partition: int, latest: LedgerEntry | None
    ) -> None:
        self.identity = identity
        self.latest = latest
        self._producer = producer
        self._topic = topic
        self._partition = partition

    def write(self, entry: LedgerEntry, by: float = math.inf) -> None:
        """Returns when the entry is there for everybody; `Fenced` where somebody else has taken the place.

        Where it could not be written `by` then (`time.monotonic`), it is not, and that is `TimedOut`. Only its commit
        may end later, within `ENTRY_TIMEOUT_MS`.
        """
        value = entry.to_bytes()
        now_ms = int(time.time() * 1000)
        self._producer.begin()
        try:
            self._producer.send(
                self._topic, value, self.identity.encode(), partition=self._partition, timestamp_ms=now_ms
            )
            self._producer.flush()
            if time.monotonic() > by:
                raise TimedOut(
                    f"the entry of {self.identity} in topic {self._topic} took too long to write: "
                    "the transactions that it decides would have timed out before they are committed",
                    hint="nothing of the batch is committed: run it again when the brokers answer",
                )
            self._producer.commit()
        except BaseException:
            self._let_go()
            raise
        self.latest = entry

    def _let_go(self) -> None:
        """What is written half must not keep others from reading."""
        try:
            self._producer.abort()
        except ClientError:
            pass
