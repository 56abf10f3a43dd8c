"""Each record once, whatever dies and whenever: runners killed at every step, broken tasks, rival runners."""

from __future__ import annotations

import random
from collections.abc import Callable
from multiprocessing.connection import wait
from pathlib import Path

import pytest
from bench.systems.process import BrokerProcess
from clumsy import Clumsy
from kill_points import FENCED, KILLED, run_until, start
from meddler import Meddler, delete_known, is_deleted
from pipeline_site import Site

from tidelog.pipeline.errors import Superseded
from tidelog.pipeline.land.executor import InProcess
from tidelog.pipeline.land.progress_events import Event, Step, StepReached
from tidelog.pipeline.run.table_replay import Replay
from tidelog.testing.broker import RunningBroker

POINTS = [
    *(f"step:{step}:{batch}" for step in Step for batch in (1, 2)),
    *(f"commit:{n}" for n in range(1, 7)),
    *(f"written:{n}" for n in range(1, 7)),
    *(f"file:{n}" for n in range(1, 4)),
]


@pytest.fixture
def site(broker: BrokerProcess, tmp_path: Path, unique: Callable[[str], str]) -> Site:
    return Site(broker.bootstrap, tmp_path, unique("p"), growing=True)


def test_a_runner_lands_every_record_once_in_one_of_the_tables(site: Site) -> None:
    site.produce(120)
    outcome = site.run()
    assert (outcome.rows, outcome.dead_letters, outcome.batches) == (103, 17, 3)
    site.check_exactly_once()
    site.produce(30)
    site.run()
    site.check_exactly_once()


@pytest.mark.parametrize("point", POINTS)
def test_a_runner_that_dies_anywhere_leaves_each_record_once(site: Site, point: str) -> None:
    site.produce(120)
    assert run_until(site.pipeline(), point) == KILLED
    site.produce(20)
    # The next one has other limits: the batch that was in hand is cut differently.
    assert run_until(site.pipeline(limits="max_records_per_batch = 37\ntasks = 2"), "") == 0
    site.check_exactly_once()


def test_runners_killed_at_random_many_times_with_broken_tasks_and_broker_restarts_between(
    tmp_path: Path, unique: Callable[[str], str]
) -> None:
    """Sixty kills; the seed is fixed, so that a failure can be looked at again, and time still makes it random."""
    dice = random.Random(7)
    killed = 0
    with RunningBroker() as broker:
        site = Site(broker.bootstrap, tmp_path, unique("p"), partitions=3, growing=True)
        while killed < 60:
            site.produce(dice.randrange(1, 90))
            if killed % 12 == 11:
                broker.restart()
            limits = f"max_records_per_batch = {dice.randrange(1, 60)}\ntasks = {dice.randrange(1, 5)}"
            point = dice.choice([f"time:{dice.randrange(1, 250)}", dice.choice(POINTS)])
            pipeline = site.pipeline(limits=limits, table=f"compact_every = {dice.choice([0, 1, 3])}")
            code = run_until(pipeline, point, clumsy_seed=dice.randrange(1000))
            assert code in (0, KILLED), point
            killed += code == KILLED
        assert run_until(site.pipeline(), "") == 0
        site.check_exactly_once()
        assert len(site.table.file_uris()) < len(list((tmp_path / "lake" / site.name).glob("*.parquet"))), "no orphans?"


def test_runners_killed_in_their_commits_while_another_writer_works_on_the_table_leave_each_record_once(
    site: Site,
) -> None:
    """The other one joins files, deletes rows that it is known to delete, adds columns, updates and restores."""
    dice = random.Random(11)
    site.produce(60)
    site.run()
    with Meddler(site.pipeline().table.path, seed=11) as other:
        for _ in range(12):
            site.produce(40)
            point = dice.choice([p for p in POINTS if p.startswith(("commit", "written", "step"))])
            limits = f"max_records_per_batch = {dice.randrange(10, 40)}\ntasks = 2"
            assert run_until(site.pipeline(limits=limits), point) in (0, KILLED), point
    assert run_until(site.pipeline(), "") == 0
    delete_known(site.table)
    site.check_exactly_once(is_deleted)
    assert len(other.done) >= 3, other.done


def test_a_table_that_was_restored_to_an_older_version_is_made_whole_by_a_replay(site: Site) -> None:
    site.produce(60)
    site.run()
    before = site.table.version()
    site.produce(60)
    site.run()
    site.table.restore(before)
    Replay(site.pipeline(), InProcess(), timeout_s=20).run()
    site.produce(20)
    site.run()
    site.check_exactly_once()


def test_tasks_that_fail_in_the_middle_and_run_twice_land_once(site: Site) -> None:
    site.produce(150)
    site.run(Clumsy(1), pipeline=site.pipeline(limits="max_records_per_batch = 40\ntasks = 3"))
    site.check_exactly_once()


@pytest.mark.parametrize("step", Step)
def test_a_runner_that_slept_through_a_takeover_is_fenced_and_doubles_nothing(site: Site, step: Step) -> None:
    """The first runner stops for a while at a step of its first batch; meanwhile a second one does all the work."""
    site.produce(120)

    def second_runner(event: Event) -> None:
        if isinstance(event, StepReached) and (event.batch, event.step) == (1, step):
            site.run()

    with pytest.raises(Superseded, match="has taken over"):
        site.run(listeners=[second_runner])
    site.check_exactly_once()


def test_of_two_runners_at_a_time_the_newer_one_goes_on(site: Site) -> None:
    continuous = site.pipeline(trigger='interval = "20ms"')
    site.produce(100)
    runners = [start(continuous) for _ in range(3)]
    for _ in range(5):
        site.produce(40)
    # Whoever took over last goes on; the others end by themselves.
    while len(running := [runner for runner in runners if runner.exitcode is None]) > 1:
        assert wait([runner.sentinel for runner in running], timeout=60), "nobody is fenced"
    assert sorted(runner.exitcode or 0 for runner in runners) == [0, FENCED, FENCED]
    running[0].kill()
    running[0].join(20)
    site.run()
    site.check_exactly_once()


def test_runners_that_all_start_at_once_leave_each_record_once(site: Site) -> None:
    """The first round has no tables yet: all of them want to make these, and to begin the partitions."""
    codes = []
    for _ in range(4):
        site.produce(60)
        runners = [start(site.pipeline(limits=f"max_records_per_batch = {10 + 7 * n}")) for n in range(4)]
        for runner in runners:
            runner.join(60)
            codes.append(runner.exitcode)
    assert set(codes) == {0, FENCED}
    site.run()
    site.check_exactly_once()


def test_a_broker_that_restarts_while_a_runner_runs_is_waited_for(tmp_path: Path, unique: Callable[[str], str]) -> None:
    with RunningBroker() as broker:
        site = Site(broker.bootstrap, tmp_path, unique("p"))
        site.produce(100)

        def restart(event: Event) -> None:
            if isinstance(event, StepReached) and (event.batch, event.step) == (1, Step.PLANNED):
                broker.restart()

        site.run(listeners=[restart])
        site.check_exactly_once()
