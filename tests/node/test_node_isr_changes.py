"""What becomes of a proposal to change an ISR, by the controller's answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from tidelog.control.errors import NO_ERROR, ApiError
from tidelog.control.leadership import IsrChange, IsrResult
from tidelog.control.model import Partition as Assignment
from tidelog.log.config import LogConfig
from tidelog.log.directories.log_dirs import LogDirs
from tidelog.log.memory_disk import MemoryDisk
from tidelog.node.isr_changes import RETRY_MS, IsrChanges
from tidelog.replica.partition import Partition
from tidelog.replica.replicas import Replicas
from tidelog.timer.host import Host
from tidelog.timer.wheel import Timer
from tidelog.wire.errors import ErrorCode
from tidelog.wire.partitions import TopicPartition

ID = bytes(range(16))


class World:
    """Somebody to ask, whose answers the test gives."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.timer = Timer(0)
        self.soon: list[Callable[[], object]] = []
        self.sent: list[Sequence[IsrChange]] = []
        self.settled: list[Partition] = []
        self._done: Callable[[list[IsrResult]], None]
        self.changes = IsrChanges(self.ask, Host(self, self.timer, self, _fail), self.settled.append)
        dirs = LogDirs(["/a"], MemoryDisk(), lambda topic: LogConfig())
        dirs.open(1, "cluster", 0)
        self.partition = Replicas(1).place(ID, dirs.create(TopicPartition("t", 0), 0, ID), 0)
        self.partition.lead(5, 7, (1, 2, 3), (1, 2), 0)
        self.partition.record_follower_fetch(2, 0, 0, 0)
        self.partition.record_follower_fetch(3, 0, 0, 0)

    def propose(self) -> None:
        proposal = self.partition.propose_expansion(3, self.now_ms, 100)
        assert proposal is not None
        self.changes.add(self.partition, proposal)
        self.turn()

    def ask(self, changes: Sequence[IsrChange], done: Callable[[list[IsrResult]], None]) -> None:
        self.sent.append(changes)
        self._done = done

    def answer(self, code: ErrorCode, state: Assignment | None = None) -> None:
        error = NO_ERROR if code is ErrorCode.NONE else ApiError(code)
        self._done([IsrResult(ID, 0, error, state) for _ in self.sent[-1]])

    def turn(self, span_ms: int = 0) -> None:
        self.now_ms += span_ms
        self.timer.advance(self.now_ms)
        while self.soon:
            self.soon.pop(0)()

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return self.now_ms

    def call_soon(self, callback: Callable[[], object]) -> None:
        self.soon.append(callback)

    def in_worker(self, work: object, done: object) -> None:
        raise AssertionError("no work is done here")


def _fail(what: str, error: BaseException | None) -> None:
    raise AssertionError(what) from error


def test_an_accepted_proposal_becomes_the_isr() -> None:
    world = World()
    world.propose()
    assert world.sent == [[IsrChange(ID, 0, 5, 7, ((1, 100), (2, -1), (3, -1)))]]
    world.answer(ErrorCode.NONE, Assignment("t", 0, (1, 2, 3), (), (), 1, (1, 2, 3), 5, 8))
    assert (world.partition.isr, world.partition.partition_epoch) == ((1, 2, 3), 8)
    assert (world.settled, world.changes.expansions, world.changes.shrinkages) == ([world.partition], 1, 0)


@pytest.mark.parametrize("code", [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED])
def test_a_refused_proposal_is_withdrawn(code: ErrorCode) -> None:
    world = World()
    world.propose()
    world.answer(code)
    assert world.partition.in_sync.pending is None
    assert world.partition.in_sync.maximal == {1, 2}
    assert world.settled == [world.partition]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.NEW_LEADER_ELECTED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ],
)
def test_where_the_controller_knows_more_the_proposal_stays_until_its_word_arrives(code: ErrorCode) -> None:
    world = World()
    world.propose()
    world.answer(code)
    world.turn(10 * RETRY_MS)
    assert len(world.sent) == 1
    assert world.partition.in_sync.maximal == {1, 2, 3}, "it may have been accepted"
    world.partition.lead(5, 8, (1, 2, 3), (1, 2), 0)
    assert world.partition.in_sync.maximal == {1, 2}


@pytest.mark.parametrize("code", [ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.STALE_BROKER_EPOCH])
def test_after_an_error_that_passes_the_same_proposal_is_sent_again(code: ErrorCode) -> None:
    world = World()
    world.propose()
    world.answer(code)
    assert len(world.sent) == 1
    world.turn(RETRY_MS)
    assert len(world.sent) == 2 and world.sent[0] == world.sent[1]


def test_a_proposal_that_the_controllers_word_has_overtaken_is_not_sent_again() -> None:
    world = World()
    world.propose()
    world.answer(ErrorCode.REQUEST_TIMED_OUT)
    world.partition.lead(5, 8, (1, 2, 3), (1, 2, 3), 0)
    world.turn(RETRY_MS)
    assert len(world.sent) == 1
    world.partition.lead(5, 9, (1, 2, 3), (1, 2), 0)
    world.propose()
    assert len(world.sent) == 2, "the next one is not held up"
