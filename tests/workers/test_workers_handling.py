"""Workers against a broker: order, restarts, failures and dead letters."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import Counter, defaultdict
from typing import Any

import pytest
import workers_handlers
from prometheus_client import CollectorRegistry, generate_latest
from workers_bench import Bench, eventually

from tidelog.workers import Message, Reject, Send, Workers, WorkersFailed, progress_line
from tidelog.workers.offset_map import decode
from tidelog.workers.work_metrics import WorkCollector

PROTOCOLS = ("classic", "consumer")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_record_is_handled_once_in_the_order_of_its_key(bench: Bench, protocol: str) -> None:
    bench.write((b"key-%d" % (n % 7), b"%d" % n) for n in range(500))
    seen: dict[bytes | None, list[int]] = defaultdict(list)

    def handle(message: Message) -> None:
        assert message.value is not None
        time.sleep(0.0005 * (int(message.value) % 3))
        seen[message.key].append(int(message.value))

    done = bench.work(handle, concurrency=16, protocol=protocol)
    assert seen == {b"key-%d" % k: list(range(k, 500, 7)) for k in range(7)}
    assert (done.handled, done.failed) == (500, 0)
    at = bench.committed()
    assert (at.offset, at.metadata or "") == (500, "")


def test_an_async_handler_works_on_many_at_once(bench: Bench) -> None:
    bench.write((b"%d" % n, b"v") for n in range(20))
    all_are_here = asyncio.Event()
    inside = 0

    async def handle(message: Message) -> None:
        nonlocal inside
        inside += 1
        if inside == 20:
            all_are_here.set()
        await all_are_here.wait()

    assert bench.work(handle, concurrency=20).handled == 20


def test_records_without_a_key_and_without_a_value_are_handled(bench: Bench) -> None:
    bench.write([(None, None), (b"", b""), (None, b"v"), (b"k", None)])
    seen = set()
    bench.work(lambda m: seen.add((m.key, m.value)))
    assert seen == {(None, None), (b"", b""), (None, b"v"), (b"k", None)}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_restart_repeats_only_what_was_under_way(bench: Bench, protocol: str) -> None:
    """One record never ends, those behind it do; the next workers get it, and nothing that was finished."""
    bench.write((b"%d" % n, b"%d" % n) for n in range(100))
    forever = threading.Event()
    first: list[bytes | None] = []

    def get_stuck(message: Message) -> None:
        if message.value in (b"10", b"50"):
            forever.wait()
        first.append(message.value)

    bench.start(get_stuck, drain_timeout_s=0, protocol=protocol)
    eventually(lambda: len(first) == 98)
    bench.stop()
    at = bench.committed()
    assert at.offset == 10 and decode(10, at.metadata) == ((10, 50), 100)
    bench.write([(b"new", b"100")])
    again: list[bytes | None] = []
    done = bench.work(lambda m: again.append(m.value), protocol=protocol)
    forever.set()
    assert sorted(again, key=str) == [b"10", b"100", b"50"] and done.skipped == 88
    assert bench.committed().offset == 101


def test_a_failing_record_is_tried_again_while_its_key_waits_and_others_do_not(bench: Bench) -> None:
    bench.write([(b"a", b"bad"), (b"a", b"after"), (b"b", b"other")])
    seen: list[tuple[bytes | None, int]] = []
    other_is_done = threading.Event()

    def handle(message: Message) -> None:
        seen.append((message.value, message.attempt))
        if message.value == b"bad" and message.attempt < 3:
            raise ValueError("not yet")
        if message.value == b"bad":
            assert other_is_done.wait(30)
        if message.value == b"other":
            other_is_done.set()

    done = bench.work(handle)
    mine = [each for each in seen if each[0] != b"other"]
    assert mine == [(b"bad", 1), (b"bad", 2), (b"bad", 3), (b"after", 1)]
    assert (done.handled, done.failed, done.retried, done.dead) == (3, 2, 2, 0)


def test_what_fails_every_time_becomes_a_dead_letter_that_says_why(bench: Bench) -> None:
    bench.create(bench.out)
    bench.write([(b"k", b"poison"), (None, None)], headers=[("trace", b"1")])
    bench.write([(b"k", b"good")])

    def handle(message: Message) -> None:
        if message.value == b"poison":
            raise ValueError("cannot be parsed")
        if message.value is None:
            raise Reject("empty")

    done = bench.work(handle, attempts=2, dead_letters=bench.out)
    assert (done.handled, done.dead, done.retried) == (1, 2, 1)
    letters = {letter.value(): letter for letter in bench.read(bench.out, 2)}
    poison = letters[b"poison"]
    headers = dict(poison.headers())
    assert poison.key() == b"k" and headers.pop("trace") == b"1"
    assert int(headers.pop("tidelog-dead-at")) > 0 and int(headers.pop("tidelog-dead-timestamp")) > 0
    assert headers == {
        "tidelog-dead-topic": bench.topic.encode(),
        "tidelog-dead-partition": b"0",
        "tidelog-dead-offset": b"0",
        "tidelog-dead-group": bench.group.encode(),
        "tidelog-dead-attempts": b"2",
        "tidelog-dead-error": b"ValueError",
        "tidelog-dead-reason": b"cannot be parsed",
    }
    rejected = dict(letters[None].headers())
    assert rejected["tidelog-dead-attempts"] == b"1" and rejected["tidelog-dead-reason"] == b"empty"
    assert bench.committed().offset == 3


def test_without_a_dead_letter_topic_the_workers_stop_at_the_record_that_failed(bench: Bench) -> None:
    bench.write((b"%d" % n, b"%d" % n) for n in range(3))
    workers = bench.workers(lambda m: 1 / (int(m.value) - 1), attempts=1, dead_letters=None)
    with pytest.raises(WorkersFailed, match=r"at offset 1 failed at attempt 1: ZeroDivisionError"):
        workers.run(until_end=True)
    assert bench.committed().offset == 1


def test_a_dead_letter_that_cannot_be_written_stops_the_workers_and_loses_nothing(bench: Bench) -> None:
    bench.write([(b"k", b"v")])
    workers = bench.workers(lambda m: 1 / 0, attempts=1, dead_letters="no/topic", config={"message.timeout.ms": 2000})
    with pytest.raises(WorkersFailed, match="no/topic"):
        workers.run(until_end=True)
    assert bench.committed().offset <= 0
    assert bench.work(lambda m: None).handled == 1


@pytest.mark.parametrize(
    "error", [SystemExit(1), KeyboardInterrupt(), GeneratorExit(), asyncio.CancelledError()], ids=repr
)
@pytest.mark.parametrize("kind", ["thread", "async"])
def test_whatever_a_handler_raises_ends_no_worker(bench: Bench, kind: str, error: BaseException) -> None:
    bench.write((b"%d" % n, b"%d" % n) for n in range(6))

    def handle(message: Message) -> None:
        if message.attempt == 1:
            raise error

    async def handle_async(message: Message) -> None:
        handle(message)

    done = bench.work(handle if kind == "thread" else handle_async, concurrency=2)
    assert (done.handled, done.retried) == (6, 6)


@pytest.mark.parametrize("kind", ["thread", "async", "process"])
def test_an_error_that_cannot_be_printed_is_a_failed_attempt_like_any_other(bench: Bench, kind: str) -> None:
    bench.create(bench.out)
    bench.write([(b"a", b"bad"), (b"b", b"reject"), (b"c", b"good")])
    handler = workers_handlers.raise_untold_async if kind == "async" else workers_handlers.raise_untold
    done = bench.work(handler, concurrency=1, attempts=2, dead_letters=bench.out, processes=kind == "process")
    assert (done.handled, done.retried, done.dead, done.lag) == (1, 1, 2, 0)
    errors = {r.value(): dict(r.headers())["tidelog-dead-error"] for r in bench.read(bench.out, 2)}
    assert errors[b"bad"] == b"Untold"


def test_nothing_lags_when_everything_was_handled(bench: Bench) -> None:
    bench.write((b"%d" % n, b"v") for n in range(6))
    assert bench.work(lambda message: None, commit_interval_s=60).lag == 0


def test_a_handler_in_a_process_may_die_hang_exit_fork_and_fail_and_the_others_go_on(bench: Bench) -> None:
    bench.create(bench.out)
    words = [b"a", b"die", b"b", b"exit", b"c", b"hang", b"d", b"reject", b"fork", b"e"]
    bench.write((bench.out.encode(), word) for word in words)
    done = bench.work(
        workers_handlers.unruly, concurrency=2, processes=True, handler_timeout_s=3, attempts=1, order="none",
        dead_letters=bench.out,
    )  # fmt: skip
    assert (done.handled, done.dead) == (6, 4)
    found = bench.read(bench.out, 10)
    errors = {r.value(): dict(r.headers())["tidelog-dead-error"] for r in found if r.headers()}
    assert errors == {
        b"die": b"HandlerDied", b"exit": b"SystemExit", b"hang": b"HandlerTimedOut", b"reject": b"Reject",
    }  # fmt: skip
    assert sorted(r.value() for r in found if not r.headers()) == [b"a", b"b", b"c", b"d", b"e", b"fork"]
    assert str(os.getpid()).encode() not in {r.key() for r in found}


def test_the_child_of_a_handler_that_forks_is_no_second_worker(bench: Bench) -> None:
    bench.write([(b"k", b"fork"), (b"k", b"next")])
    children: list[int] = []

    def handle(message: Message) -> None:
        if message.value == b"fork":
            children.append(os.fork())

    assert bench.work(handle, concurrency=1).handled == 2
    assert [os.waitpid(child, 0)[1] for child in children] == [0]


def test_an_async_handler_that_takes_too_long_is_cancelled(bench: Bench) -> None:
    bench.write([(b"k", b"v")])

    async def handle(message: Message) -> None:
        if message.attempt == 1:
            await asyncio.sleep(600)

    done = bench.work(handle, handler_timeout_s=0.05)
    assert (done.handled, done.retried) == (1, 1)


def test_no_more_is_fetched_than_may_be_held(bench: Bench) -> None:
    bench.write((None, b"%d" % n) for n in range(1_000))
    go_on = threading.Event()
    workers, _ = bench.start(lambda m: go_on.wait(), concurrency=4, max_pending=50)
    eventually(lambda: workers.progress().paused == 1, "paused")
    assert 50 <= workers.progress().pending <= 100
    go_on.set()
    eventually(lambda: workers.progress().handled == 1_000, "all handled")
    eventually(lambda: workers.progress().paused == 0, "resumed")


def test_a_stuck_partition_does_not_hold_up_the_others(bench: Bench) -> None:
    bench.admin.create_partitions([_to_two(bench.topic)])[bench.topic].result(30)
    eventually(lambda: len(bench.admin.list_topics(bench.topic, timeout=10).topics[bench.topic].partitions) == 2)
    for partition in (0, 1):
        bench.write(((b"k", b"%d" % n) for n in range(200)), partition=partition)
    go_on = threading.Event()
    seen: Counter[int] = Counter()

    def handle(message: Message) -> None:
        if message.partition == 0:
            go_on.wait()
        seen[message.partition] += 1

    bench.start(handle, order="partition", concurrency=4, max_pending=40)
    eventually(lambda: seen[1] == 200, "the other partition")
    assert seen[0] == 0
    go_on.set()
    eventually(lambda: seen[0] == 200, "the stuck partition")


def _to_two(topic: str) -> Any:
    from confluent_kafka.admin import NewPartitions

    return NewPartitions(topic, 2)


def test_a_handler_can_send_records_and_its_message_is_finished_when_they_are_written(bench: Bench) -> None:
    bench.create(bench.out)
    bench.write((b"k%d" % (n % 3), b"%d" % n) for n in range(30))

    def handle(message: Message) -> Any:
        yield Send(bench.out, message.value, message.key)
        yield Send(bench.out, b"again " + (message.value or b""), message.key)

    bench.work(handle)
    found = bench.read(bench.out, 60)
    assert len(found) == 60
    for key in range(3):
        mine = [int(r.value()) for r in found if r.key() == b"k%d" % key and not r.value().startswith(b"again")]
        assert mine == list(range(key, 30, 3))


def test_a_setting_that_the_client_does_not_know_is_named() -> None:
    with pytest.raises(WorkersFailed, match=r"no\.such\.setting"):
        Workers("t", "g", print, config={"no.such.setting": 1}).run()


@pytest.mark.parametrize("is_transactional", [False, True], ids=["at once", "in transactions"])
def test_a_result_that_the_topic_does_not_take_makes_its_record_a_dead_letter(
    bench: Bench, is_transactional: bool
) -> None:
    bench.create(bench.out)
    bench.write([(b"k", b"large"), (b"k", b"small")])
    done = bench.work(
        lambda m: Send(bench.out, bytes(3_000_000) if m.value == b"large" else m.value),
        attempts=2, dead_letters=bench.out, transactional_id=bench.group if is_transactional else None,
    )  # fmt: skip
    assert (done.handled, done.dead) == (1, 1)
    letter, result = bench.read(bench.out, 2)
    assert dict(letter.headers())["tidelog-dead-error"] == b"NotWritten"
    assert (letter.value(), result.value()) == (b"large", b"small")


def test_metrics_and_the_progress_line_tell_how_the_work_stands(bench: Bench) -> None:
    bench.write([(b"k", b"v"), (b"k", b"bad")])
    workers = bench.workers(lambda m: 1 / (m.value != b"bad"), attempts=2, dead_letters=bench.out)
    done = workers.run(until_end=True)
    registry = CollectorRegistry()
    registry.register(WorkCollector(workers))
    text = generate_latest(registry).decode()
    assert f'tidelog_workers_messages_total{{group="{bench.group}",outcome="handled"}} 1.0' in text
    assert f'tidelog_workers_messages_total{{group="{bench.group}",outcome="dead"}} 1.0' in text
    assert f'tidelog_workers_handler_seconds_count{{group="{bench.group}"}} 3.0' in text
    assert progress_line(done, done, 1.0).startswith("1 handled, 0/s, 0 in flight, 1 dead")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"order": "kye"}, "use 'key', 'partition' or 'none'"),
        ({"concurrency": 0}, "at least 1"),
        ({"protocol": "new"}, "use 'classic' or 'consumer'"),
        ({"handler_timeout_s": 1.0}, "a thread cannot be stopped"),
        ({"max_pending": 3}, "at least the concurrency"),
        ({"processes": True, "handler": lambda message: None}, "a function of a module"),
        ({"config": {"group.id": "g"}}, "the workers set this themselves"),
        ({"commit_interval_s": -1.0}, "must not be negative"),
    ],
    ids=lambda given: str(given)[:30],
)
def test_wrong_options_are_refused_with_what_to_do(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Workers("t", "g", **{"handler": print, **options})
