"""What can happen to a transaction: requests that come late, twice or never, producers that die, a broker that does.

The requests are made by hand (`transactions_wire`), in the versions of transactions 1 (a producer keeps its epoch, and
adds partitions itself) and 2 (every end of a transaction raises the epoch, and writing adds).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import transactions_wire as wire
from transactions_wire import TOPIC, Line, initialised, produced

from tidelog.client import Client
from tidelog.client.errors import NotFound
from tidelog.testing.broker import RunningBroker
from tidelog.wire.batch import iter_headers
from tidelog.wire.errors import ErrorCode

E = ErrorCode
ONE_EACH = {"transaction.state.log.num.partitions": "1", "offsets.topic.num.partitions": "1"}
LAST_EPOCH = 2**15 - 2


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    """One for all: a test gets a new topic, and goes on with the epochs that others have left."""
    with RunningBroker(ONE_EACH) as running:
        yield running


@pytest.fixture
def client(broker: RunningBroker) -> Iterator[Client]:
    with Client(broker.bootstrap) as client:
        wire.prepare(client, 2)
        with contextlib.suppress(NotFound):
            client.groups.delete("g")
        yield client


@pytest.fixture
def line(broker: RunningBroker) -> Iterator[Line]:
    line = Line(broker)
    yield line
    line.lose()


def committed(client: Client, partition: int = 0) -> list[bytes | None]:
    """What a reader of committed records sees, once nothing is open any more."""
    wire.eventually(lambda: stable(client, partition) == end(client, partition), "a transaction is left hanging")
    return [record.value for record in client.read(TOPIC, partition, isolation="read_committed")]


def stable(client: Client, partition: int = 0) -> int:
    return client.offsets(TOPIC, [partition], isolation="read_committed")[partition].offset


def end(client: Client, partition: int = 0) -> int:
    return client.offsets(TOPIC, [partition])[partition].offset


def write(line: Line, identity: tuple[int, int], sequence: int, value: bytes, partition: int = 0) -> None:
    request = wire.produce("x", *identity, sequence, partition, [value])
    assert produced(wire.settled(lambda: line.ask(request), lambda a: produced(a)[0]))[0] is E.NONE


def finish(line: Line, identity: tuple[int, int], commit: bool) -> tuple[int, int]:
    """Ends the transaction; what the producer is called from now on."""
    answer = wire.settled(lambda: line.ask(wire.end_txn("x", *identity, commit)), lambda a: a.error_code)
    assert answer.error_code == 0, E.of(answer.error_code).name
    return answer.producer_id, answer.producer_epoch


# --- late requests ----------------------------------------------------------------------------------


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize(
    ("version", "refusal"), [(10, E.INVALID_TXN_STATE), (11, E.TRANSACTION_ABORTABLE)], ids=["v10", "v11"]
)
def test_a_produce_after_its_end_is_refused_and_nothing_hangs(
    client: Client, line: Line, version: int, refusal: ErrorCode, commit: bool
) -> None:
    """The producer keeps its epoch, so only the coordinator can tell that the transaction is over."""
    identity = initialised(line, wire.init_producer_id("x"))
    assert wire.added(line.ask(wire.add_partitions("x", *identity, [0]))) is E.NONE
    first = wire.produce("x", *identity, 0, 0, [b"in time"], version=version)
    late = wire.produce("x", *identity, 1, 0, [b"late"], version=version)
    assert produced(line.ask(first))[0] is E.NONE
    ended = wire.settled(
        lambda: line.ask(wire.end_txn("x", *identity, commit, version=4)), lambda answer: answer.error_code
    )
    assert ended.error_code == 0
    assert produced(line.ask(late))[0] is refusal
    assert committed(client) == ([b"in time"] if commit else [])


def test_a_repeat_that_arrives_between_two_transactions_does_not_hold_up_the_next(client: Client, line: Line) -> None:
    identity = initialised(line, wire.init_producer_id("x"))
    requests = [wire.produce("x", *identity, n, 0, [b"%d" % n], version=10) for n in range(3)]
    for batches in (requests[:2], requests[2:]):
        assert (
            wire.added(wire.settled(lambda: line.ask(wire.add_partitions("x", *identity, [0])), wire.added)) is E.NONE
        )
        for request in batches:
            assert produced(line.ask(request))[0] is E.NONE
        assert line.ask(wire.end_txn("x", *identity, True, version=4)).error_code == 0
        assert produced(line.ask(requests[0]))[0] is E.INVALID_TXN_STATE
    assert committed(client) == [b"0", b"1", b"2"]


def test_a_produce_after_its_end_is_fenced_where_every_end_raises_the_epoch(client: Client, line: Line) -> None:
    identity = initialised(line, wire.init_producer_id("x"))
    write(line, identity, 0, b"in time")
    after = finish(line, identity, commit=True)
    assert after == (identity[0], identity[1] + 1)
    for partition, sequence in ((0, 1), (1, 0)):  # one that had records of it, and one that had none
        late = wire.produce("x", *identity, sequence, partition, [b"late"])
        assert produced(line.ask(late))[0] is E.INVALID_PRODUCER_EPOCH
    write(line, after, 0, b"next")
    finish(line, after, commit=True)
    assert committed(client) == [b"in time", b"next"]
    assert committed(client, 1) == []


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_an_end_that_arrives_after_the_next_begin_leaves_the_next_transaction_alone(
    client: Client, line: Line, commit: bool
) -> None:
    identity = initialised(line, wire.init_producer_id("x"))
    write(line, identity, 0, b"first")
    delayed = wire.end_txn("x", *identity, commit)
    after = finish(line, identity, commit)
    write(line, after, 0, b"second")
    assert line.ask(delayed).error_code == E.PRODUCER_FENCED
    assert stable(client) < end(client)
    write(line, after, 1, b"third")
    finish(line, after, commit=True)
    assert committed(client) == [*([b"first"] if commit else []), b"second", b"third"]


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_a_repeated_end_gets_the_same_answer_and_ends_nothing_else(client: Client, line: Line, commit: bool) -> None:
    identity = initialised(line, wire.init_producer_id("x"))
    write(line, identity, 0, b"first")
    request = wire.end_txn("x", *identity, commit)
    line.send(request)
    line.lose()
    after = finish(line, identity, commit)
    assert after == finish(line, identity, commit) == (identity[0], identity[1] + 1)
    assert line.ask(wire.end_txn("x", *identity, not commit)).error_code == E.INVALID_TXN_STATE
    assert committed(client) == ([b"first"] if commit else [])


# --- producers that die or are replaced -------------------------------------------------------------


def test_a_second_producer_of_the_name_aborts_and_fences_the_first(client: Client, line: Line) -> None:
    zombie = initialised(line, wire.init_producer_id("x"))
    write(line, zombie, 0, b"of the zombie")
    heir = initialised(Line(line._broker), wire.init_producer_id("x"))
    assert heir[0] == zombie[0] and heir[1] > zombie[1]
    assert committed(client) == []
    assert produced(line.ask(wire.produce("x", *zombie, 1, 0, [b"again"])))[0] is E.INVALID_PRODUCER_EPOCH
    assert produced(line.ask(wire.produce("x", *zombie, 0, 1, [b"elsewhere"])))[0] is E.INVALID_PRODUCER_EPOCH
    refused = wire.offset_committed(line.ask(wire.txn_offset_commit("x", *zombie, "g", 7)))
    assert refused is E.INVALID_PRODUCER_EPOCH
    assert line.ask(wire.end_txn("x", *zombie, True)).error_code == E.PRODUCER_FENCED
    write(line, heir, 0, b"of the heir")
    finish(line, heir, commit=True)
    assert committed(client) == [b"of the heir"]
    assert client.groups.offsets("g") == {}


def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced(client: Client, line: Line) -> None:
    identity = initialised(line, wire.init_producer_id("x", timeout_ms=200))
    write(line, identity, 0, b"slow")
    assert committed(client) == []
    assert produced(line.ask(wire.produce("x", *identity, 1, 0, [b"more"])))[0] is E.INVALID_PRODUCER_EPOCH
    assert line.ask(wire.end_txn("x", *identity, True)).error_code == E.INVALID_TXN_STATE
    again = initialised(line, wire.init_producer_id("x"))
    assert again[0] == identity[0] and again[1] > identity[1]


def test_a_transaction_still_times_out_after_the_broker_was_killed(
    broker: RunningBroker, client: Client, line: Line
) -> None:
    identity = initialised(line, wire.init_producer_id("x", timeout_ms=1500))
    write(line, identity, 0, b"slow")
    broker.kill()
    broker.start()
    assert committed(client) == []


# --- the state of a producer ------------------------------------------------------------------------


def test_a_producer_that_lost_track_is_given_the_next_epoch_once(client: Client, line: Line) -> None:
    producer_id, epoch = initialised(line, wire.init_producer_id("x"))
    lost = wire.init_producer_id("x", producer_id=producer_id, producer_epoch=epoch)
    assert initialised(line, lost) == (producer_id, epoch + 1)
    # The answer was lost: the same question has the same answer.
    assert initialised(line, lost) == (producer_id, epoch + 1)
    assert initialised(line, lost) == (producer_id, epoch + 1)
    # Somebody else has initialised since: the question comes from a zombie.
    assert initialised(line, wire.init_producer_id("x")) == (producer_id, epoch + 2)
    assert line.ask(lost).error_code == E.PRODUCER_FENCED
    assert line.ask(lost._replace(at_most=3)).error_code == E.INVALID_PRODUCER_EPOCH
    wrong_id = wire.init_producer_id("x", producer_id=producer_id + 1000, producer_epoch=epoch + 2)
    assert line.ask(wrong_id).error_code == E.PRODUCER_FENCED
    assert line.ask(wrong_id._replace(at_most=3)).error_code == E.INVALID_PRODUCER_EPOCH


def test_a_name_that_the_coordinator_forgot_gets_a_new_producer_id(client: Client, line: Line) -> None:
    unknown = initialised(line, wire.init_producer_id("forgotten", producer_id=4711, producer_epoch=17))
    assert unknown[0] != 4711 and unknown[1] == 0


def test_when_the_epochs_are_used_up_a_producer_gets_a_new_id(
    broker: RunningBroker, client: Client, line: Line
) -> None:
    producer_id, _ = initialised(line, wire.init_producer_id("x"))
    broker.kill()
    wire.rewrite_epoch(broker, "x", LAST_EPOCH - 1)
    broker.start()
    assert initialised(line, wire.init_producer_id("x")) == (producer_id, LAST_EPOCH)
    fresh = initialised(line, wire.init_producer_id("x"))
    assert fresh[0] != producer_id and fresh[1] == 0


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_an_end_that_uses_up_the_epochs_tells_the_new_id_as_often_as_it_is_asked(
    broker: RunningBroker, client: Client, line: Line, commit: bool
) -> None:
    producer_id, _ = initialised(line, wire.init_producer_id("x"))
    broker.kill()
    wire.rewrite_epoch(broker, "x", LAST_EPOCH - 1)
    broker.start()
    last = initialised(line, wire.init_producer_id("x"))
    assert last == (producer_id, LAST_EPOCH)
    write(line, last, 0, b"under the last epoch")
    fresh = finish(line, last, commit)
    assert fresh[0] != producer_id and fresh[1] == 0
    assert finish(line, last, commit) == fresh
    write(line, fresh, 0, b"under the new id")
    assert produced(line.ask(wire.produce("x", *last, 1, 0, [b"late"])))[0] is E.INVALID_PRODUCER_EPOCH
    finish(line, fresh, commit=True)
    assert committed(client) == [*([b"under the last epoch"] if commit else []), b"under the new id"]


# --- the broker dies --------------------------------------------------------------------------------


def test_an_open_transaction_survives_the_death_of_the_broker(
    broker: RunningBroker, client: Client, line: Line
) -> None:
    client.produce(TOPIC, [b"before"], partition=0)
    identity = initialised(line, wire.init_producer_id("x"))
    write(line, identity, 0, b"one")
    assert wire.offset_committed(line.ask(wire.txn_offset_commit("x", *identity, "g", 7))) is E.NONE
    broker.kill()
    broker.start()
    assert (stable(client), end(client)) == (1, 2)
    # A repeat of what was acknowledged before is known to be one.
    write(line, identity, 0, b"one")
    assert end(client) == 2
    write(line, identity, 1, b"two")
    write(line, identity, 0, b"three", partition=1)
    assert client.groups.offsets("g") == {}
    finish(line, identity, commit=True)
    assert committed(client) == [b"before", b"one", b"two"]
    assert committed(client, 1) == [b"three"]
    assert client.groups.offsets("g", require_stable=True)[TOPIC, 0].offset == 7


def segments(broker: RunningBroker) -> dict[str, Path]:
    names = ("__transaction_state-0", "__consumer_offsets-0", f"{TOPIC}-0", f"{TOPIC}-1")
    return {name: broker.data_dir / name / "00000000000000000000.log" for name in names}


def cut_last(path: Path) -> None:
    """Takes the last batch out of a segment: it had not been written yet when the broker died."""
    data = path.read_bytes()
    pos, _ = list(iter_headers(data))[-1]
    path.write_bytes(data[:pos])


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize(
    "missing",
    [[], [f"{TOPIC}-1"], [f"{TOPIC}-0", f"{TOPIC}-1"], [f"{TOPIC}-0", f"{TOPIC}-1", "__consumer_offsets-0"]],
    ids=["the last record", "one marker", "the topic's markers", "all markers"],
)
def test_a_coordinator_killed_between_prepare_and_complete_finishes_when_it_is_back(
    broker: RunningBroker, client: Client, line: Line, missing: list[str], commit: bool
) -> None:
    identity = initialised(line, wire.init_producer_id("x"))
    for partition in (0, 1):
        write(line, identity, 0, b"%d" % partition, partition)
    assert wire.offset_committed(line.ask(wire.txn_offset_commit("x", *identity, "g", 7))) is E.NONE
    sizes = {name: path.stat().st_size for name, path in segments(broker).items()}
    after = finish(line, identity, commit)
    wire.eventually(
        lambda: "Complete" in line.ask(wire.describe_transaction("x")).transaction_states[0].transaction_state,
        "the transaction is not completed",
    )
    broker.kill()
    for name in ["__transaction_state-0", *missing]:
        cut_last(segments(broker)[name])
    for name in missing:
        assert segments(broker)[name].stat().st_size == sizes[name], f"{name}: more than a marker was written"
    assert segments(broker)["__transaction_state-0"].stat().st_size > sizes["__transaction_state-0"]
    broker.start()
    for partition in (0, 1):
        assert committed(client, partition) == ([b"%d" % partition] if commit else [])
    offsets = client.groups.offsets("g", require_stable=True)
    assert {where: at.offset for where, at in offsets.items()} == ({(TOPIC, 0): 7} if commit else {})
    # The answer was lost in the crash: asked again, it is the same, and the producer goes on.
    assert finish(line, identity, commit) == after
    write(line, after, 0, b"next")
    finish(line, after, commit=True)
    assert committed(client)[-1] == b"next"


def test_a_transaction_whose_prepare_was_not_written_is_still_open(
    broker: RunningBroker, client: Client, line: Line
) -> None:
    identity = initialised(line, wire.init_producer_id("x"))
    write(line, identity, 0, b"one")
    sizes = {name: path.stat().st_size for name, path in segments(broker).items() if path.exists()}
    finish(line, identity, commit=True)
    broker.kill()
    for name in ("__transaction_state-0", f"{TOPIC}-0"):
        with open(segments(broker)[name], "r+b") as file:
            file.truncate(sizes[name])
    broker.start()
    assert (stable(client), end(client)) == (0, 1)
    finish(line, identity, commit=False)
    assert committed(client) == []


def test_an_end_in_flight_when_the_broker_dies_ends_all_or_nothing(
    broker: RunningBroker, client: Client, line: Line
) -> None:
    identity = initialised(line, wire.init_producer_id("x"))
    seen: list[bytes] = []
    for turn in range(4):
        for partition in (0, 1):
            write(line, identity, 0, b"%d" % turn, partition)
        line.send(wire.end_txn("x", *identity, True))
        time.sleep(turn * 0.001)  # sometimes before it was read, sometimes after it was carried out
        broker.kill()
        broker.start()
        line.lose()
        identity = finish(line, identity, commit=True)
        seen.append(b"%d" % turn)
    assert committed(client, 0) == committed(client, 1) == seen
