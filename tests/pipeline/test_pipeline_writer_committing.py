"""Two-phase commit of what tasks wrote: whoever dies wherever, readers of committed records see each row once.

No Spark here: a driver is a `Committer` with connections of its own, a task a function call, and death an exception
that leaves everything as it stands.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from random import Random

import pyarrow as pa
import pytest
from bench.systems.process import BrokerProcess

from tidelog.client import Client, ClientError, cluster
from tidelog.client.errors import Fenced, Refused
from tidelog.client.transactional import Prepared
from tidelog.pipeline.committing import Committer, Family, Torn
from tidelog.pipeline.sink_options import SinkOptions
from tidelog.pipeline.write_ledger import Entry, Hold, Ledger, Part
from tidelog.pipeline.writing import Place, _committer, _write
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
        self.clients: list[Client] = []
        self.expected: list[str] = []
        self.client().admin.create_topic(name, PARTITIONS)

    def client(self) -> Client:
        self.clients.append(Client(self.bootstrap, timeout_s=20))
        return self.clients[-1]

    def driver(self) -> Committer:
        return Committer(self.client(), self.family, self.options.ledger_topic)

    def task(self, run: str, batch: int, task: int, attempt: int = 0, rows: int = 3, salt: str = "") -> Part:
        place = Place(self.family.identity, run, batch, task, attempt)
        written = _write(self.options, place, [self.rows(batch, task, rows, salt)])
        part = written.part()
        assert part is not None
        return part

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
        everywhere = {self.topic: range(PARTITIONS)}
        deadline = time.monotonic() + 20
        # The end of a transaction is answered before its markers are written.
        while self.clients[0].transactions.open_on(everywhere) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert self.clients[0].transactions.open_on(everywhere) == []
        assert self.seen() == sorted(self.expected)

    def latest(self) -> Entry | None:
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

    def checked(prepared: Iterable[Prepared]) -> None:
        if step == "before check":
            raise Death
        check_open(prepared)
        if step == "before decision":
            raise Death

    def ended(prepared: Iterable[Prepared], committed: bool) -> dict[Prepared, ClientError | None]:
        if committed and step in ("after decision", "among commits"):
            chosen = [each for each in prepared if step == "among commits" and random.random() < 0.5]
            end(chosen, committed)
            raise Death
        return end(prepared, committed)

    class MortalHold(Hold):
        def write(self, entry: Entry) -> None:
            if entry.done and step == "before done":
                raise Death
            super().write(entry)
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


def test_only_one_driver_decides(world: World) -> None:
    first, second = world.driver(), world.driver()
    ours, theirs = [world.task("one", 0, 0)], [world.task("two", 0, 0)]
    assert first._taken().latest is None
    assert second.commit(0, theirs)
    with pytest.raises(Fenced, match="another driver writes as") as raised:
        first.commit(0, ours)
    assert "once at a time" in (raised.value.hint or "")
    assert not first.is_decided(0, ours[0].prepared) and first.is_decided(0, theirs[0].prepared)
    first.abort([ours[0].prepared])
    world.expect(0, [0])
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
    driver._taken().write(Entry(0, False, tuple(parts)))
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
    dead._taken().write(Entry(0, False, (decided,)))
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
        Entry.from_bytes(b'{"format": 99}', "the entry")


def test_a_broker_that_restarts_while_a_driver_begins_to_commit_is_waited_for(restarting_broker: RunningBroker) -> None:
    options = SinkOptions(restarting_broker.bootstrap)
    with _committer(options, "somebody") as committer:
        assert not committer.is_decided(0, Prepared("x", 0, 0))


def test_a_broker_that_restarts_while_a_worker_begins_to_write_is_waited_for(
    restarting_broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    # However little time a topic has to appear, once a broker answers.
    monkeypatch.setattr(cluster, "CREATED_WITHIN_S", 0.1)
    options = SinkOptions(restarting_broker.bootstrap, topic="t", exactly_once=False)
    written = _write(options, Place("", "", 0, 0, 0), [pa.record_batch({"value": pa.array(["three"])})])
    assert written.rows == 1
