"""Two-phase commit of what tasks wrote: whoever dies wherever, readers of committed records see each row once.

No Spark here: a driver is a `Committer` with connections of its own, a task a function call, and death an exception
that leaves everything as it stands.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterable, Iterator
from random import Random
from types import SimpleNamespace

import pyarrow as pa
import pytest
from bench.systems.process import BrokerProcess
from stable_topics import await_stable

from tidelog.client import Client, ClientError, cluster
from tidelog.client.errors import Fenced, Refused, TimedOut, Unreachable
from tidelog.client.transactional import Prepared
from tidelog.client.transactions import DescribedTransaction, Transactions
from tidelog.pipeline.options.sink_options import SinkOptions
from tidelog.pipeline.spark import topic_sink
from tidelog.pipeline.spark.topic_sink import TaskAttempt, TaskRows, TopicStreamWriter, TopicWriter, _committer, _write
from tidelog.pipeline.write import ledger
from tidelog.pipeline.write.committing import Committer, Family, Torn
from tidelog.pipeline.write.ledger import Hold, Ledger, LedgerEntry, Part
from tidelog.testing.broker import RunningBroker

PARTITIONS = 3


class Death(BaseException):
    """Not an Exception: nothing may take it for an error that it can handle."""


class World:
    """A topic, a writer, and what readers of committed records should find."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self.bootstrap = bootstrap
        self.topic = name
        self.family = Family("test", f"query-{name}")
        self.options = SinkOptions(bootstrap, topic=name, prefix="test", ledger_topic="__test_writes")
        self.attempts = itertools.count()
        self.clients: list[Client] = []
        self.expected: list[str] = []
        self.client().admin.create_topic(name, PARTITIONS)

    def client(self) -> Client:
        self.clients.append(Client(self.bootstrap, timeout_s=20))
        return self.clients[-1]

    def driver(self, run: str | None = None) -> Committer:
        """With a run, one of the processes that commit for it."""
        return Committer(self.client(), self.family, self.options.ledger_topic, run)

    def task(self, run: str, batch: int, task: int, attempt: int = 0, rows: int = 3, salt: str = "") -> Part:
        place = TaskAttempt(self.family.identity, run, batch, task, attempt, next(self.attempts), streaming=True)
        written = _write(self.options, place, [self.rows(batch, task, rows, salt)])
        part = written.part()
        assert part is not None
        return part

    def message(self, batch: int, part: Part, attempt: int = 0, run: str = "one") -> TaskRows:
        """What the task tells the driver."""
        place = TaskAttempt(self.family.identity, run, batch, part.task, attempt, 0, streaming=True)
        return TaskRows(place, part.prepared, part.rows, part.checksum)

    @staticmethod
    def values(batch: int, task: int, rows: int = 3, salt: str = "") -> list[str]:
        return [f"{batch}/{task}/{row}{salt}" for row in range(rows)]

    def rows(self, batch: int, task: int, rows: int, salt: str) -> pa.RecordBatch:
        values = self.values(batch, task, rows, salt)
        return pa.record_batch({"value": pa.array(values), "key": pa.array(values), "other": pa.array(range(rows))})

    def expect(self, batch: int, tasks: Iterable[int]) -> None:
        self.expected += [value for task in tasks for value in self.values(batch, task)]

    def seen(self) -> list[str]:
        client = self.clients[0]
        return sorted(
            (record.value or b"").decode()
            for partition in range(PARTITIONS)
            for record in client.read(self.topic, partition, isolation="read_committed")
        )

    def check(self) -> None:
        """Nothing is open, so that readers see everything there is; and that is what was to be written."""
        await_stable(self.clients[0], self.topic)
        assert self.clients[0].transactions.open_on({self.topic: range(PARTITIONS)}) == []
        assert self.seen() == sorted(self.expected)

    def latest(self) -> LedgerEntry | None:
        return Ledger(self.client(), self.options.ledger_topic).latest(self.family.identity)

    def close(self) -> None:
        for client in self.clients:
            client.close()


@pytest.fixture
def world(broker: BrokerProcess, unique: Callable[[str], str]) -> Iterator[World]:
    made = World(broker.bootstrap, unique("written"))
    yield made
    made.close()


STEPS = ("before check", "before decision", "after decision", "among commits", "before done", "after done")


def mortal(driver: Committer, step: str, random: Random) -> Committer:
    """A driver that dies at a step of its next commit."""
    transactions = driver._client.transactions
    check_open, end = driver.check_open, transactions.end

    def checked(prepared: Iterable[Prepared]) -> float:
        if step == "before check":
            raise Death
        decide_by = check_open(prepared)
        if step == "before decision":
            raise Death
        return decide_by

    def ended(prepared: Iterable[Prepared], committed: bool) -> dict[Prepared, ClientError | None]:
        if committed and step in ("after decision", "among commits"):
            chosen = [each for each in prepared if step == "among commits" and random.random() < 0.5]
            end(chosen, committed)
            raise Death
        return end(prepared, committed)

    class MortalHold(Hold):
        def write(self, entry: LedgerEntry, by: float = math.inf) -> None:
            if entry.done and step == "before done":
                raise Death
            super().write(entry, by)
            if entry.done and step == "after done":
                raise Death

    hold = driver._taken()
    hold.__class__ = MortalHold
    driver.check_open = checked  # type: ignore[method-assign]
    transactions.end = ended  # type: ignore[method-assign]
    return driver


def healed(driver: Committer) -> Committer:
    for who, what in ((driver, "check_open"), (driver._client.transactions, "end")):
        vars(who).pop(what, None)
    if driver._hold is not None:
        driver._hold.__class__ = Hold
    return driver


@pytest.mark.parametrize("step", STEPS)
def test_a_driver_that_dies_at_any_step_leaves_each_row_once(world: World, step: str) -> None:
    random = Random(step)
    first = world.driver()
    assert first.commit(0, [world.task("one", 0, task) for task in range(2)])
    world.expect(0, range(2))
    parts = [world.task("one", 1, task) for task in range(4)]
    with pytest.raises(Death):
        mortal(first, step, random).commit(1, parts)
    second = world.driver()
    again = second.commit(1, [world.task("two", 1, task) for task in range(4)])
    assert again == (step in ("before check", "before decision"))
    second.sweep("two", now=True)
    world.expect(1, range(4))
    world.check()
    latest = world.latest()
    assert latest is not None and latest.done and latest.batch == 1 and latest.rows == 12
    # Once more, as after a restart that found the batch in no commit log.
    assert world.driver().commit(1, [world.task("three", 1, task) for task in range(4)]) is False
    world.check()


@pytest.mark.parametrize("seed", range(3))
def test_histories_of_deaths_of_drivers_and_tasks_leave_each_row_once(world: World, seed: int) -> None:
    """Batches with failed, doubled and late tasks, by drivers that die, of which some come back from the dead."""
    random = Random(seed)
    driver, run, runs = world.driver(), "run-0", 0
    undead: list[tuple[Committer, int, list[Part]]] = []
    batch, tries = 0, 0
    while batch < 8:
        tasks = range(random.choice([1, 2, 5]))
        tries += 1
        parts = []
        for task in tasks:
            attempt = 0
            while random.random() < 0.3:
                world.task(run, batch, task, attempt)  # written, but its message is lost: another attempt counts
                attempt += 1
            parts.append(world.task(run, batch, task, attempt))
            if random.random() < 0.2:
                world.task(run, batch, task, attempt + 1)  # speculative, and second
        latest = world.latest()
        planned = tasks if latest is None or latest.batch < batch else {part.task for part in latest.parts}
        try:
            if tries < 4 and random.random() < 0.6:
                mortal(driver, random.choice(STEPS), random)
            driver.commit(batch, parts)
        except Death:
            if random.random() < 0.5:
                undead.append((driver, batch, parts))
            runs += 1
            driver, run = world.driver(), f"run-{runs}"
            continue
        healed(driver).sweep(run, now=True)
        world.expect(batch, planned)
        for zombie, old_batch, old_parts in undead:
            # It goes on where it was, with what it knew then; or, if its hold was broken, takes the ledger again.
            try:
                assert healed(zombie).commit(old_batch, old_parts) is False
                driver = world.driver()
            except Fenced:
                pass
        undead = []
        batch, tries = batch + 1, 0
    world.check()


def test_an_attempt_leaves_alone_what_one_of_the_same_number_has_prepared(world: World) -> None:
    """A stage that is run again counts its attempts from 0 again, while those of the first one may still count."""
    accepted, second = world.task("one", 0, 6), world.task("one", 0, 6)
    driver = world.driver()
    assert driver.commit(0, [accepted])
    assert driver.sweep("one", now=True) == 1
    # What is over does not keep an id from being used again, so that a long stream needs few of them.
    following = world.task("one", 1, 6)
    assert following.prepared.transactional_id == accepted.prepared.transactional_id
    assert following.prepared.transactional_id != second.prepared.transactional_id
    assert driver.commit(1, [following])
    for batch in range(2):
        world.expect(batch, [6])
    world.check()


def test_attempts_of_a_batch_write_share_no_id_though_none_has_written_yet(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = TopicWriter(world.options)

    def attempt(attempt_id: int, meanwhile: Callable[[], None] = lambda: None) -> TaskRows:
        context = SimpleNamespace(partitionId=lambda: 6, attemptNumber=lambda: 0, taskAttemptId=lambda: attempt_id)
        monkeypatch.setattr(topic_sink, "_task_context", lambda: context)

        def rows() -> Iterator[pa.RecordBatch]:
            yield world.rows(0, 6, 2, "")
            meanwhile()  # the producer is open
            yield world.rows(0, 6, 3, "")

        written = writer.write(rows())
        assert isinstance(written, TaskRows)
        return written

    late: list[TaskRows] = []
    accepted = attempt(41, lambda: late.append(attempt(42)))
    writer.commit([accepted])
    assert len(late) == 1
    world.expected += [*world.values(0, 6, 2), *world.values(0, 6)]
    world.check()


def test_only_one_driver_decides(world: World) -> None:
    first, second = world.driver(), world.driver()
    ours, theirs = [world.task("one", 0, 0)], [world.task("two", 0, 0)]
    assert first._taken().latest is None
    assert second.commit(0, theirs)
    with pytest.raises(Fenced, match="another driver writes as") as raised:
        first.commit(0, ours)
    assert "once at a time" in (raised.value.hint or "")
    assert first.undecided([ours[0].prepared, theirs[0].prepared]) == [ours[0].prepared]
    first.abort([ours[0].prepared])
    world.expect(0, [0])
    world.check()


def test_processes_that_commit_in_turn_for_one_run_do_not_fence_each_other(world: World) -> None:
    """Spark gives the commits of a query to whichever Python worker is free."""
    processes = [world.driver("one") for _ in range(3)]
    for batch, who in enumerate([0, 1, 0, 0, 2, 1, 2, 0]):
        assert processes[who].commit(batch, [world.task("one", batch, task) for task in range(2)])
        processes[who].sweep("one", now=True)
        world.expect(batch, range(2))
    world.check()


@pytest.mark.parametrize("step", STEPS)
def test_another_process_of_the_run_finishes_what_one_of_them_left(world: World, step: str) -> None:
    first, second = world.driver("one"), world.driver("one")
    assert second.commit(0, [world.task("one", 0, 0)])
    parts = [world.task("one", 1, task) for task in range(3)]
    with pytest.raises(Death):
        mortal(first, step, Random(step)).commit(1, parts)
    assert second.commit(1, parts), "these transactions are the batch, whoever committed them"
    assert healed(first).commit(2, [world.task("one", 2, 0)])
    for batch, tasks in enumerate((1, 3, 1)):
        world.expect(batch, range(tasks))
    world.check()


def test_a_run_that_takes_over_fences_every_process_of_the_one_before(world: World) -> None:
    first, second = world.driver("one"), world.driver("one")
    for batch, driver in enumerate((first, second)):
        assert driver.commit(batch, [world.task("one", batch, 0)])
        world.expect(batch, [0])
    rival = world.driver("two")
    assert rival.commit(1, [world.task("two", 1, 0)]) is False, "the batch is there"
    for process in (first, second, world.driver("one")):
        late = world.task("one", 2, 0)
        with pytest.raises(Fenced, match="run two has taken over from run one"):
            process.commit(2, [late])
        process.abort([late.prepared])
    # None of them has disturbed the rival, whose hold is as it was.
    assert rival._hold is not None
    rival._hold.write(LedgerEntry(2, True, (), None, "two", ("one",)))
    assert world.driver("three").commit(3, [world.task("three", 3, 0)])
    with pytest.raises(Fenced, match="run three has taken over from run two"):
        rival.commit(4, [])
    assert (latest := world.latest()) is not None and latest.before == ("one", "two")
    world.expect(3, [0])
    world.check()


def test_a_transaction_that_is_over_fails_the_batch_before_anything_is_decided(world: World) -> None:
    driver = world.driver()
    parts = [world.task("one", 0, task) for task in range(2)]
    world.client().transactions.abort(parts[1].prepared.transactional_id)
    with pytest.raises(Fenced, match="over before the batch") as raised:
        driver.commit(0, parts)
    assert "kafka.transaction.timeout.ms" in (raised.value.hint or "")
    assert world.latest() is None
    driver.abort(part.prepared for part in parts)
    world.check()


def aged(world: World, left_s: float, monkeypatch: pytest.MonkeyPatch) -> Committer:
    """A driver for which every transaction ends in so many seconds."""
    driver = world.driver()
    transactions = driver._client.transactions
    describe_all = transactions.describe_all

    def older(names: Iterable[str]) -> dict[str, DescribedTransaction | None]:
        start_ms = int((time.time() + left_s) * 1000) - world.options.transaction_timeout_ms
        return {name: found and found._replace(start_ms=start_ms) for name, found in describe_all(names).items()}

    monkeypatch.setattr(transactions, "describe_all", older)
    return driver


def test_a_batch_is_not_decided_where_its_transactions_may_time_out_before_they_are_committed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = [world.task("one", 0, task) for task in range(2)]
    # The brokers may be away for 20 s, as a driver here is told.
    driver = aged(world, 19, monkeypatch)
    with pytest.raises(TimedOut, match=r"aborted in 1\d\.\d s, and the commit of the batch may take 20\.0 s") as raised:
        driver.commit(0, parts)
    assert "kafka.transaction.timeout.ms" in (raised.value.hint or "")
    with pytest.raises(TimedOut, match="may take"):
        driver.commit_unrecorded([part.prepared for part in parts])
    assert world.latest() is None
    assert aged(world, 60, monkeypatch).commit(0, parts)
    world.expect(0, range(2))
    world.check()


def test_a_decision_that_takes_longer_than_its_transactions_have_left_is_not_made(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = [world.task("one", 0, task) for task in range(2)]
    driver = aged(world, 60, monkeypatch)
    producer = driver._taken()._producer
    flush = producer.flush
    clock = time.monotonic

    def slow() -> None:
        flush()
        # Of the 60 s the commits have 10.
        monkeypatch.setattr(ledger, "time", SimpleNamespace(monotonic=lambda: clock() + 51, time=time.time))

    monkeypatch.setattr(producer, "flush", slow)
    with pytest.raises(TimedOut, match="took too long to write"):
        driver.commit(0, parts)
    monkeypatch.undo()
    assert world.latest() is None
    driver.abort(part.prepared for part in parts)
    assert driver.commit(0, [world.task("one", 0, task) for task in range(2)])
    world.expect(0, range(2))
    world.check()


@pytest.mark.parametrize("survivors", [0, 1, 2])
def test_a_decided_batch_whose_transactions_were_lost_is_made_whole_if_its_tasks_repeat_themselves(
    world: World, survivors: int
) -> None:
    parts = _decided_then_lost(world, survivors)
    if survivors == 0:
        lost = world.driver().recover()
        assert lost is not None and not lost.done
    second = world.driver()
    again = [world.task("two", 0, task) for task in range(3)]
    assert second.commit(0, again) is True
    world.expect(0, range(3))
    world.check()
    latest = world.latest()
    assert latest is not None and latest.done
    assert [part.prepared for part in latest.parts][:survivors] == [part.prepared for part in parts[:survivors]]


def test_a_decided_batch_that_cannot_be_made_whole_stops_the_writer_and_says_what_is_missing(world: World) -> None:
    parts = _decided_then_lost(world, survivors=2)
    lost = parts[2].prepared.transactional_id
    for rows in ([world.task("two", 0, task, salt="!") for task in range(3)], [world.task("three", 0, 0)]):
        with pytest.raises(Torn, match=f"2 of its 3 transactions are committed.*{lost} with 3 rows"):
            world.driver().commit(0, rows)
        world.driver().abort(part.prepared for part in rows)
    with pytest.raises(Torn):
        world.driver().recover()
    world.expect(0, range(2))
    world.check()


def test_what_became_of_a_transaction_is_not_guessed(world: World) -> None:
    """An id that somebody took since may have been committed before: that is said, and nothing is written."""
    parts = _decided_then_lost(world, survivors=0)
    world.client().transactional_producer(parts[1].prepared.transactional_id)
    world.client().transactional_producer(parts[1].prepared.transactional_id)
    with pytest.raises(Torn, match="what became of 1 is not known"):
        world.driver().commit(0, [world.task("two", 0, task) for task in range(3)])
    world.driver().sweep("two", now=True)
    world.check()


def _decided_then_lost(world: World, survivors: int) -> list[Part]:
    """A decision, of whose three transactions only the first few were committed before the others timed out."""
    options = world.options
    world.options = SinkOptions(
        world.bootstrap, topic=world.topic, prefix="test", ledger_topic="__test_writes", transaction_timeout_ms=1500
    )
    parts = [world.task("one", 0, task) for task in range(3)]
    world.options = options
    driver = world.driver()
    driver._taken().write(LedgerEntry(0, False, tuple(parts)))
    transactions = world.client().transactions
    transactions.end([part.prepared for part in parts[:survivors]], committed=True)
    deadline = time.monotonic() + 30
    while any(transactions.describe(part.prepared.transactional_id).is_open for part in parts):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return parts


def test_an_older_checkpoint_is_refused(world: World) -> None:
    driver = world.driver()
    assert driver.commit(5, [world.task("one", 5, 0)])
    late = [world.task("two", 4, 0)]
    with pytest.raises(Refused, match="about to write batch 4, and has written batch 5"):
        world.driver().commit(4, late)
    driver.abort([late[0].prepared])
    world.expect(5, [0])
    world.check()


def test_recovery_finishes_what_was_decided_and_forgets_what_was_not(world: World) -> None:
    assert world.driver().recover() is None
    first = world.driver()
    parts = [world.task("one", 3, task) for task in range(2)]
    with pytest.raises(Death):
        mortal(first, "among commits", Random(1)).commit(3, parts, "a note")
    found = world.driver().recover()
    assert found is not None and found.done and found.batch == 3 and found.note == "a note"
    world.expect(3, range(2))
    world.check()


def test_a_batch_without_rows_is_done_too(world: World) -> None:
    assert world.driver().commit(0, [], "nothing to do")
    latest = world.latest()
    assert latest is not None and latest.done and latest.note == "nothing to do"
    assert world.driver().commit(1, [], even_empty=False)
    assert world.latest() == latest
    # An empty batch is no reason to leave what was decided for it unfinished.
    with pytest.raises(Death):
        mortal(world.driver(), "after decision", Random(0)).commit(2, [world.task("one", 2, 0)])
    assert world.driver().commit(2, [], even_empty=False) is False
    world.expect(2, [0])
    world.check()


def test_the_sweep_takes_what_tasks_left_and_never_what_is_decided(world: World) -> None:
    other = Family("test", f"{world.family.identity}-2")
    theirs = world.client().transactional_producer(other.transactional_id("one", 0, 0))
    theirs.begin()
    theirs.send(world.topic, b"theirs")
    theirs.flush()

    def is_open(part: Part) -> bool:
        return world.clients[0].transactions.describe(part.prepared.transactional_id).is_open

    decided, earlier, left = world.task("one", 0, 0), world.task("one", 0, 1), world.task("two", 0, 0)
    dead = world.driver()
    dead._taken().write(LedgerEntry(0, False, (decided,)))
    # Who has not committed anything cleans up after itself alone.
    undone = world.driver()
    assert undone.sweep("two", now=True) == 1
    assert is_open(decided) and is_open(earlier) and not is_open(left)
    undone._taken()
    assert undone.sweep("three", now=False) == 1
    assert is_open(decided) and not is_open(earlier)
    assert undone.sweep("three", now=False) == 0
    assert undone.commit(0, []) is False
    theirs.commit()
    world.expect(0, [0])
    world.expected.append("theirs")
    world.check()


@pytest.mark.parametrize("hung", ["list_all", "abort"])
def test_a_sweep_that_fails_leaves_the_batch_committed_and_is_not_repeated_at_once(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, hung: str
) -> None:
    asked = []

    def silent(self: Transactions, *_: object, **__: object) -> None:
        asked.append(hung)
        raise Unreachable("the broker at 127.0.0.1:1 did not answer within 20 s")

    world.task("one", 0, 0, attempt=0), world.task("one", 0, 1, attempt=0)  # their messages are lost
    counted = [world.task("one", 0, task, attempt=1) for task in range(2)]
    with monkeypatch.context() as broken:
        broken.setattr(Transactions, hung, silent)
        stream = TopicStreamWriter(world.options)
        for batch, parts in ((0, counted), (1, [world.task("one", 1, 2, attempt=1)])):
            stream.commit([world.message(batch, part, attempt=1) for part in parts], batch)
    assert len(asked) == 1 and "did not answer" in caplog.text
    latest = world.latest()
    assert latest is not None and latest.done and latest.batch == 1
    world.expect(0, range(2))
    world.expect(1, [2])
    world.driver().sweep("one", now=True)
    world.check()


def test_one_transaction_that_cannot_be_aborted_keeps_no_other_open(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = [world.task("one", 0, task).prepared.transactional_id for task in range(3)]
    driver = world.driver()
    driver._taken()
    abort = Transactions.abort

    def picky(self: Transactions, transactional_id: str) -> None:
        if transactional_id == left[0]:
            raise Refused("not this one")
        abort(self, transactional_id)

    with monkeypatch.context() as broken:
        broken.setattr(Transactions, "abort", picky)
        assert driver.sweep("two", now=True) == 2
    assert [name for name in left if world.clients[0].transactions.describe(name).is_open] == left[:1]
    driver._no_sweep_before = 0.0
    # Of other runs too: the first sweep was not all that it should have been.
    assert driver.sweep("two", now=True) == 1
    world.check()


def test_an_abort_after_a_failed_commit_spares_whatever_is_decided(world: World) -> None:
    """The decision has part of an earlier run, so that the first of the transactions given is not in it."""
    earlier = _decided_then_lost(world, survivors=1)
    again = [world.task("two", 0, task) for task in range(3)]
    driver = world.driver()
    write = driver._taken().write

    def last_words(entry: LedgerEntry, by: float) -> None:
        write(entry, by)
        raise Death

    driver._taken().write = last_words  # type: ignore[method-assign]
    with pytest.raises(Death):
        driver.commit(0, again)
    latest = world.latest()
    assert latest is not None and not latest.done
    assert [part.prepared for part in latest.parts] == [each.prepared for each in (earlier[0], *again[1:])]
    left = world.task("two", 0, 3)
    TopicStreamWriter(world.options).abort([world.message(0, part, run="two") for part in again], 0)
    assert not world.clients[0].transactions.describe(left.prepared.transactional_id).is_open
    recovered = world.driver().recover()
    assert recovered is not None and recovered.done
    world.expect(0, range(3))
    world.check()


def test_a_ledger_that_would_forget_is_refused(world: World, broker: BrokerProcess) -> None:
    name = f"forgetful-{world.topic}"
    world.client().admin.create_topic(name, 1)
    with pytest.raises(Refused, match=r"cleanup\.policy=delete"):
        Committer(world.client(), world.family, name).commit(0, [])


def test_entries_survive_the_ledgers_compaction_and_are_found_in_a_long_log(world: World) -> None:
    driver = world.driver()
    for batch in range(30):
        driver.commit(batch, [])
    long = Committer(world.client(), Family("test", "another"), world.options.ledger_topic)
    long.commit(0, [], "x" * 100_000)
    latest = world.latest()
    assert latest is not None and latest.batch == 29
    with pytest.raises(ClientError, match="cannot be read"):
        LedgerEntry.from_bytes(b'{"format": 99}', "the entry")


def test_a_broker_that_restarts_while_a_driver_begins_to_commit_is_waited_for(restarting_broker: RunningBroker) -> None:
    options = SinkOptions(restarting_broker.bootstrap)
    with _committer(options, "somebody") as committer:
        assert committer.undecided([Prepared("x", 0, 0)]) == [Prepared("x", 0, 0)]


def test_a_broker_that_restarts_while_a_worker_begins_to_write_is_waited_for(
    restarting_broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    # However little time a topic has to appear, once a broker answers.
    monkeypatch.setattr(cluster, "CREATED_WITHIN_S", 0.1)
    options = SinkOptions(restarting_broker.bootstrap, topic="t", exactly_once=False)
    written = _write(
        options, TaskAttempt("", "", 0, 0, 0, 0, streaming=False), [pa.record_batch({"value": pa.array(["three"])})]
    )
    assert written.rows == 1
