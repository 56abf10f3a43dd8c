"""A broker against lists in memory, through idling, stops, kills, power loss, topics created again under the same name,
policies that change, moves, and a log directory that goes and comes back.

The oracle: everything acknowledged before a stop or a kill is read back, and before a loss of power everything that was
flushed; offsets are dense unless the topic was ever compacted, and then the newest value of every key is there; the
high watermark is the log's end; the last stable offset is the high watermark unless a transaction is open; a partition
whose directory is away answers with a storage error, and is what it was when the directory is back.

    python -m restart_model 500        as many runs, with fresh seeds
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import hypothesis.strategies as st
from api_site import Site
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tidelog.log.producers import NOT_REQUIRED, AppendOrigin
from tidelog.replica.partition import Partition
from tidelog.wire.batch import iter_headers
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.records import ABORT, COMMIT, EndTxnMarker, build_batch, build_end_txn_marker, read_records

NAMES = ("t", "u")
INDEXES = (0, 1)
POLICIES = ("delete", "compact", "compact,delete")
SETTINGS = {
    "log.cleaner.min.cleanable.ratio": "0.001",
    "log.cleaner.backoff.ms": "5000",
    "log.retention.ms": "-1",
    "log.cleaner.dedupe.buffer.size": "1100000",
}


@dataclass
class Written:
    """A partition as it should be."""

    #: (key, value, producer of the transaction or -1) by offset; what is not there is a marker
    records: dict[int, tuple[bytes, bytes, int]] = field(default_factory=dict)
    #: where each producer's open transaction begins
    open: dict[int, int] = field(default_factory=dict)
    aborted: set[int] = field(default_factory=set)
    start: int = 0
    end: int = 0
    compacted: bool = False
    away: bool = False
    #: its directory has just come back
    returns: bool = False

    def cut(self, end: int) -> None:
        """The power took what lay behind."""
        self.end = end
        self.records = {offset: record for offset, record in self.records.items() if offset < end}
        # Others are written at these offsets next, and may be committed.
        self.aborted = {offset for offset in self.aborted if offset < end}
        self.start = min(self.start, end)

    def newest(self) -> dict[bytes, int]:
        """Where the newest value of each key is that a reader may count on."""
        undecided = set(self.open)
        return {
            key: offset
            for offset, (key, _, producer) in sorted(self.records.items())
            if offset >= self.start and offset not in self.aborted and producer not in undecided
        }


class RestartMachine(RuleBasedStateMachine):
    @initialize(seed=st.integers(0, 1 << 32))
    def begin(self, seed: int) -> None:
        self.random = Random(seed)
        self.scratch = tempfile.TemporaryDirectory()
        self.site = Site(Path(self.scratch.name), SETTINGS, dirs=2)
        self.paths = [directory.path for directory in self.site.broker.data.logs.dirs]
        self.topics: dict[str, dict[int, Written]] = {}
        self.away: str | None = None
        self.went = 0
        self.count = 0
        self._begin_cleaning()
        for name in NAMES:
            self.create(name, self.random.choice(POLICIES), 2)
            self.produce_some(name)

    def teardown(self) -> None:
        if hasattr(self, "site"):
            self.site.stop()
            self.scratch.cleanup()

    def _begin_cleaning(self) -> None:
        self.cleaning = self.site.broker.cleaning
        self.cleaning.start()

    # --- topics

    @precondition(lambda self: len(self.topics) < len(NAMES))
    @rule(policy=st.sampled_from(POLICIES), partitions=st.integers(1, 2))
    def create_one(self, policy: str, partitions: int) -> None:
        self.create(next(name for name in NAMES if name not in self.topics), policy, partitions)

    def create(self, name: str, policy: str, partitions: int) -> None:
        self.site.topic(name, partitions, cleanup_policy=policy)
        self.topics[name] = {index: Written(compacted=policy != "delete") for index in range(partitions)}

    @precondition(lambda self: self.topics)
    @rule(data=st.data(), again=st.booleans(), then=st.sampled_from([None, "kill", "power"]))
    def delete(self, data: st.DataObject, again: bool, then: str | None) -> None:
        name = data.draw(st.sampled_from(sorted(self.topics)))
        (deleted,) = self.site.ask(20, 4, topic_names=[name], timeout_ms=0).responses
        assert deleted.error_code == 0
        del self.topics[name]
        if again:
            self.create(name, self.random.choice(POLICIES), 2)
            self.produce_some(name)
        if then is not None:
            self.restart(then, None)

    @precondition(lambda self: self.topics)
    @rule(data=st.data(), policy=st.sampled_from(POLICIES))
    def change_policy(self, data: st.DataObject, policy: str) -> None:
        name = data.draw(st.sampled_from(sorted(self.topics)))
        change = [{"name": "cleanup.policy", "config_operation": 0, "value": policy}]
        resources = [{"resource_type": 2, "resource_name": name, "configs": change}]
        assert self.site.ask(44, 1, resources=resources).responses[0].error_code == 0
        for written in self.topics[name].values():
            written.compacted |= policy != "delete"

    # --- writing

    def produce_some(self, name: str) -> None:
        for index in self.topics[name]:
            for _ in range(self.random.randint(1, 4)):
                self._append(name, index, self.random.choice((-1, -1, 1, 2)), self.random.randint(1, 3))

    @precondition(lambda self: self.topics)
    @rule(data=st.data(), roll=st.booleans())
    def produce(self, data: st.DataObject, roll: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.topics)))
        self.produce_some(name)
        for index, written in self.topics[name].items():
            if roll and not written.away:
                self.site.broker.data.partition(name, index).log.roll(self.site.clock.wall_ms())

    def _append(self, name: str, index: int, producer: int, count: int) -> None:
        written = self.topics[name][index]
        self.count += 1
        records = [(b"k%d" % self.random.randint(0, 5), b"%d.%d" % (self.count, at)) for at in range(count)]
        try:
            partition = self.site.broker.data.partition(name, index)
        except KafkaError as error:
            assert written.away and error.code == ErrorCode.KAFKA_STORAGE_ERROR
            return
        assert not written.away
        # A copy knows of producers what the records tell that were left.
        known = partition.log.producers.get(producer)
        sequence = 0 if known is None else known.last_sequence + 1
        how = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequence, "transactional": True}
        stamped = [(self.site.clock.wall_ms(), key, value, None) for key, value in records]
        batch = build_batch(stamped, **how if producer > 0 else {})  # type: ignore[arg-type]
        info = partition.append(memoryview(batch), -1, self.site.clock.wall_ms(), guard=NOT_REQUIRED)
        assert info.first_offset == written.end
        if producer > 0:
            written.open.setdefault(producer, written.end)
        for key, value in records:
            written.records[written.end] = (key, value, producer)
            written.end += 1

    @precondition(lambda self: any(w.open and not w.away for t in self.topics.values() for w in t.values()))
    @rule(commit=st.booleans())
    def end_transactions(self, commit: bool) -> None:
        for name, partitions in self.topics.items():
            for index, written in partitions.items():
                if written.away:
                    continue
                for producer, first in list(written.open.items()):
                    marker = EndTxnMarker(COMMIT if commit else ABORT, 0)
                    batch = build_end_txn_marker(marker, producer, 0, self.site.clock.wall_ms())
                    partition = self.site.broker.data.partition(name, index)
                    partition.append(memoryview(batch), -1, self.site.clock.wall_ms(), origin=AppendOrigin.COORDINATOR)
                    if not commit:
                        written.aborted |= {
                            offset for offset, r in written.records.items() if r[2] == producer and offset >= first
                        }
                    self._decided(written, producer)
                    written.end += 1

    @staticmethod
    def _decided(written: Written, producer: int) -> None:
        del written.open[producer]
        for offset, (key, value, writer) in list(written.records.items()):
            if writer == producer:
                written.records[offset] = (key, value, -1)

    @precondition(lambda self: self.topics)
    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.topics)))
        for index, written in self.topics[name].items():
            if not written.away and "delete" in self.site.broker.cluster.log_config(name).cleanup_policy:
                written.start = max(written.start, self.random.randint(0, written.end))
                self.site.broker.data.partition(name, index).delete_records(written.start)

    # --- time, disks

    @rule(seconds=st.sampled_from([1, 6, 70]))
    def idle(self, seconds: int) -> None:
        for _ in range(seconds):
            self.site.pass_time(1000)

    @rule()
    def flush(self) -> None:
        for log in self.site.broker.data.logs.logs.values():
            log.flush()

    @rule(after=st.integers(0, 4))
    def stall_workers(self, after: int) -> None:
        """A few more syncs, or steps of a copy or compaction, and no other comes to its end in this life."""
        workers = self.site.workers
        run = workers.in_worker

        def counted(work: Any, done: Any) -> None:
            nonlocal after
            after -= 1
            if after >= 0:
                run(work, done)

        workers.in_worker = counted  # type: ignore[method-assign]

    @precondition(lambda self: self.away is None)
    @rule()
    def move(self) -> None:
        for name, partitions in self.topics.items():
            for index in partitions:
                if self.random.random() < 0.5:
                    now = self.site.broker.data.partition(name, index).log.directory.path
                    to = self.random.choice([path for path in self.paths if path != now])
                    asked = [{"path": to, "topics": [{"name": name, "partitions": [index]}]}]
                    (result,) = self.site.ask(34, 2, dirs=asked).results
                    assert result.partitions[0].error_code == 0

    # --- lives

    @rule(commit=st.booleans(), seconds=st.sampled_from([0, 6, 70]))
    def stop_and_idle_and_kill(self, commit: bool, seconds: int) -> None:
        self.end_transactions(commit)
        self.restart("stop", None)
        self.idle(seconds)
        self.restart("kill", None)

    @precondition(lambda self: self.topics)
    @rule(data=st.data(), policy=st.sampled_from(POLICIES), moved=st.booleans(), after=st.integers(1, 6))
    def compact_in_part_and_kill(self, data: st.DataObject, policy: str, moved: bool, after: int) -> None:
        self.produce(data, True)
        self.stall_workers(after)
        self.idle(6)
        if moved and self.away is None:
            self.move()
        self.change_policy(data, policy)
        self.restart("kill", None)

    @rule(how=st.sampled_from(["stop", "kill", "kill", "power"]), change=st.sampled_from([None, None, "go", "back"]))
    def restart(self, how: str, change: str | None) -> None:
        flushed = {
            key: partition.log.recovery_point for key, partition in self.site.broker.data.replicas.partitions.items()
        }
        self.cleaning.stop()
        self.site.stop(clean=how == "stop")
        if how == "power":
            self.site.disk.crash(self.random)
        if self.away is None and change == "go" and how != "power":
            self._take_away(self.random.choice(self.paths))
        elif self.away is not None and change == "back":
            self._bring_back()
        self.site.start()
        self._begin_cleaning()
        if self.away is not None and self.site.disk.exists(f"{self.away}/meta.properties"):
            # Nothing was missing: what is there now is the directory, and the one that went has nothing of ours.
            assert not any(written.away for topic in self.topics.values() for written in topic.values())
            self.away = None
        for name, partitions in self.topics.items():
            for index, written in partitions.items():
                if (name, index) in self.site.broker.data.logs.offline and not written.away:
                    # Its very directory was lost, and nobody knows that it does not lie in the one that is missing.
                    assert how == "power" and self.away is not None and not flushed[(name, index)]
                    written.away = True
                    written.cut(0)
                elif not written.away:
                    partition = self.site.broker.data.partition(name, index)
                    self._survived(partition, written, how, flushed.get((name, index), 0))

    def _take_away(self, path: str) -> None:
        disk = self.site.disk
        disk.sync_all(path)
        self.went += 1
        disk.rename(path, f"{path}.{self.went}")
        disk.commit()
        self.away = path
        for name, partitions in self.topics.items():
            for index, written in partitions.items():
                written.away = disk.exists(f"{path}.{self.went}/{name}-{index}")

    def _bring_back(self) -> None:
        disk, path = self.site.disk, self.away
        assert path is not None
        for entry in disk.list(path):
            assert not entry.is_dir, "nothing may be made where a directory is missing"
            disk.remove(f"{path}/{entry.name}")
        disk.remove_dir(path)
        disk.rename(f"{path}.{self.went}", path)
        disk.commit()
        self.away = None
        for partitions in self.topics.values():
            for written in partitions.values():
                written.returns, written.away = written.away, False

    def _survived(self, partition: Partition, written: Written, how: str, flushed: int) -> None:
        """What a crash may change; the invariants check the rest."""
        log = partition.log
        if how == "power":
            assert flushed <= log.log_end_offset <= written.end, (log.path, flushed, log.log_end_offset, written)
            written.cut(log.log_end_offset)
            # Who had what open, and what became of it, is what the log says.
            written.open = {p.producer_id: p.txn_first_offset for p in log.producers if p.txn_first_offset >= 0}
        if how != "stop" or written.returns:
            # Like high watermarks and recovery points, the starts of logs are written from time to time.
            assert log.log_start_offset <= written.start
            written.start = log.log_start_offset
            written.returns = False

    # --- the oracle

    @invariant()
    def everything_is_as_it_should_be(self) -> None:
        for name, partitions in getattr(self, "topics", {}).items():
            for index, written in partitions.items():
                if written.away:
                    assert self.site.produce(name, 1, index).error_code == ErrorCode.KAFKA_STORAGE_ERROR
                else:
                    self._check(self.site.broker.data.partition(name, index), written)

    def _check(self, partition: Partition, written: Written) -> None:
        log = partition.log
        assert (log.log_start_offset, log.log_end_offset) == (written.start, written.end)
        assert partition.high_watermark == written.end
        # Of a transaction whose beginning was deleted, what is left tells where it is still open.
        begun = [max(first, written.start) for first in written.open.values()]
        left = [offset for offset, (_, _, who) in written.records.items() if who in written.open]
        left = [offset for offset in left if offset >= written.start]
        assert min(begun, default=written.end) <= partition.last_stable_offset <= min(left, default=written.end)
        offsets: list[int] = []
        found: dict[int, tuple[bytes | None, bytes | None]] = {}
        at = written.start
        while at < written.end:
            piece = partition.read(at, 1 << 20, True).slice
            if piece is None:
                break
            data = memoryview(piece.read())
            for position, header in iter_headers(data):
                records = list(read_records(data[position : position + header.size_bytes]))
                offsets += [record.offset for record in records if record.offset >= at]
                if not header.is_control:
                    found |= {record.offset: (record.key, record.value) for record in records if record.offset >= at}
            at = piece.next_offset
        assert all(written.records[offset][:2] == record for offset, record in found.items())
        if not written.compacted:
            assert offsets == list(range(written.start, written.end))
        assert set(written.newest().values()) <= set(found)


def soak(runs: int) -> None:
    checks = [HealthCheck.too_slow, HealthCheck.filter_too_much]
    run_state_machine_as_test(
        RestartMachine,
        settings=settings(
            max_examples=runs,
            stateful_step_count=50,
            deadline=None,
            suppress_health_check=checks,
            phases=[Phase.generate],
            report_multiple_bugs=False,
        ),
    )


if __name__ == "__main__":
    soak(int(sys.argv[1]))
