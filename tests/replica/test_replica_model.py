"""Three replicas, a controller and messages that take their time: whatever happens, nothing committed is lost.

The model is the controller and the network; the partitions are the real ones. Each step is drawn from a seed: somebody
writes, a follower asks, an answer arrives, a proposal is decided, the controller moves the leader, its word arrives
somewhere, a process dies and starts again with the high watermark it last wrote down. After every step:

- what was acknowledged by all is on every member of the ISR, at the offset that was acknowledged;
- what was visible below any high watermark never becomes anything else.

In the end, when everybody hears everything, all replicas have the same bytes.
"""

from __future__ import annotations

from collections import deque
from random import Random
from typing import NamedTuple

import pytest
from replica_kit import ID, append, content, replica, values

from seeds import seeds
from tidelog.log.config import LogConfig
from tidelog.replica.follower_session import FetchPosition
from tidelog.replica.in_sync import IsrProposal
from tidelog.replica.partition import Partition
from tidelog.wire.batch import InvalidBatch
from tidelog.wire.errors import CodedError

BROKERS = (1, 2, 3)
STEPS = 600
LAG_MS = 100


class State(NamedTuple):
    """What the controller says of the partition."""

    leader: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]


class Question(NamedTuple):
    """A fetch on its way to the leader."""

    follower: int
    leader: int
    position: FetchPosition
    life: int


class Reply(NamedTuple):
    """… and what comes back."""

    question: Question
    diverging: tuple[int, int] | None
    records: bytes
    high_watermark: int
    log_start_offset: int


class World:
    def __init__(self, seed: int, min_insync: int) -> None:
        self.random = Random(seed)
        self.now_ms = 0
        self.config = LogConfig(min_insync_replicas=min_insync)
        self.replicas = {broker: replica(broker, self.config) for broker in BROKERS}
        self.state = State(1, 0, 0, BROKERS)
        #: counts the lives of each broker, as broker epochs do
        self.lives = dict.fromkeys(BROKERS, 1)
        self.to_hear: dict[int, deque[State]] = {broker: deque([self.state]) for broker in BROKERS}
        self.questions: list[Question] = []
        self.replies: list[Reply] = []
        self.proposals: list[tuple[int, int, IsrProposal]] = []
        self.verdicts: list[tuple[int, int, IsrProposal, State | None]] = []
        self.marks = dict.fromkeys(BROKERS, 0)
        #: written and not acknowledged: (broker, life, leader epoch, offset, value)
        self.unacknowledged: list[tuple[int, int, int, int, bytes]] = []
        self.acknowledged: dict[int, bytes] = {}
        self.seen: list[bytes | None] = []
        self.written = 0

    # --- what happens -------------------------------------------------------------------------------

    def step(self) -> None:
        self.now_ms += self.random.randrange(0, 5)
        weights = {
            self.write: 8,
            self.ask: 16,
            self.answer: 16,
            self.take: 16,
            self.decide: 4,
            self.settle: 4,
            self.hear: 12,
            self.shrink: 1,
            self.move_leader: 0.5,
            self.die: 0.3,
            self.checkpoint: 1,
        }
        (happening,) = self.random.choices(list(weights), list(weights.values()))
        happening()
        self.acknowledge()
        self.check()

    def write(self) -> None:
        leaders = [broker for broker, each in self.replicas.items() if each.is_leader]
        if not leaders:
            return
        broker = self.random.choice(leaders)
        partition = self.replicas[broker]
        self.written += 1
        value = b"%d" % self.written
        try:
            end = append(partition, acks=self.random.choice((1, -1)), value=value)
        except CodedError:
            return
        self.unacknowledged.append((broker, self.lives[broker], partition.leader_epoch, end - 1, value))

    def ask(self) -> None:
        follower = self.random.choice(BROKERS)
        partition = self.replicas[follower]
        if partition.is_leader or partition.leader_id < 0:
            return
        is_waiting = any(each.follower == follower for each in self.questions)
        is_waiting = is_waiting or any(each.question.follower == follower for each in self.replies)
        if is_waiting and self.random.random() < 0.9:
            return
        log = partition.log
        position = FetchPosition(
            log.log_end_offset, log.log_start_offset, partition.leader_epoch, log.leader_epochs.latest
        )
        self.questions.append(Question(follower, partition.leader_id, position, self.lives[follower]))

    def answer(self) -> None:
        question = self._one_of(self.questions)
        if question is None:
            return
        leader, position = self.replicas[question.leader], question.position
        try:
            leader.check_follower(question.follower, position.leader_epoch)
            if leader.continues(position.fetch_offset, position.last_fetched_epoch):
                self.heard_of(leader, question)
            read = leader.read(
                position.fetch_offset, 150, True, 0, position.leader_epoch, position.last_fetched_epoch, True
            )
        except CodedError:
            return
        records = b"" if read.slice is None else read.slice.read()
        self.replies.append(Reply(question, read.diverging_epoch, records, read.high_watermark, read.log_start_offset))

    def heard_of(self, leader: Partition, question: Question) -> None:
        is_eligible = question.life == self.lives[question.follower]
        follower, position = question.follower, question.position
        leader.record_follower_fetch(
            follower, position.fetch_offset, position.log_start_offset, self.now_ms, question.life, is_eligible
        )
        proposal = leader.propose_expansion(follower, self.now_ms, self.lives[leader.local_id], is_eligible)
        if proposal is not None:
            self.proposals.append((leader.local_id, self.lives[leader.local_id], proposal))

    def take(self) -> None:
        reply = self._one_of(self.replies)
        if reply is None or reply.question.life != self.lives[reply.question.follower]:
            return
        partition, position = self.replicas[reply.question.follower], reply.question.position
        is_at = (partition.log.log_end_offset, partition.leader_epoch) == (position.fetch_offset, position.leader_epoch)
        if partition.is_leader or not is_at:
            return
        if reply.diverging is not None:
            partition.truncate_to_divergence(*reply.diverging, 0)
            return
        if reply.records:
            try:
                partition.append_as_follower(memoryview(bytearray(reply.records)), 0)
            except InvalidBatch as error:
                raise AssertionError(reply) from error
        partition.follow_watermarks(reply.high_watermark, reply.log_start_offset)

    def shrink(self) -> None:
        for broker, partition in self.replicas.items():
            proposal = partition.propose_shrinkage(self.now_ms, LAG_MS, self.lives[broker])
            if proposal is not None:
                self.proposals.append((broker, self.lives[broker], proposal))

    def decide(self) -> None:
        """The controller takes up a proposal; its answer may get lost, and the proposal is then sent again."""
        sent = self._one_of(self.proposals)
        if sent is None:
            return
        broker, life, proposal = sent
        state = self.state
        if (broker, proposal.leader_epoch, proposal.partition_epoch) != state[:3]:
            return  # the controller's word on the newer state ends it
        if any(self.lives[member] != epoch for member, epoch in proposal.members if epoch >= 0):
            self.verdicts.append((broker, life, proposal, None))
            return
        isr = tuple(member for member, _ in proposal.members)
        self._say(state._replace(partition_epoch=state.partition_epoch + 1, isr=isr))
        if self.random.random() < 0.7:
            self.verdicts.append((broker, life, proposal, self.state))

    def settle(self) -> None:
        verdict = self._one_of(self.verdicts)
        if verdict is None:
            return
        broker, life, proposal, state = verdict
        if life != self.lives[broker]:
            return
        partition = self.replicas[broker]
        if state is None:
            partition.withdraw_proposal(proposal, self.now_ms)
        else:
            partition.settle_isr(proposal, state.leader_epoch, state.partition_epoch, state.isr)

    def move_leader(self) -> None:
        state = self.state
        leader = self.random.choice(state.isr)
        self._say(state._replace(leader=leader, leader_epoch=state.leader_epoch + 1))

    def hear(self) -> None:
        broker = self.random.choice(BROKERS)
        if self.to_hear[broker]:
            self._obey(broker, self.to_hear[broker].popleft())

    def checkpoint(self) -> None:
        broker = self.random.choice(BROKERS)
        self.marks[broker] = self.replicas[broker].high_watermark

    def die(self) -> None:
        """And starts again: the log is what it was, the rest is forgotten. It leaves the ISR if it is not alone."""
        broker = self.random.choice(BROKERS)
        self.lives[broker] += 1
        log = self.replicas[broker].log
        partition = Partition("t", ID, 0, log, broker)
        partition.set_high_watermark(max(log.log_start_offset, min(self.marks[broker], log.log_end_offset)))
        self.replicas[broker] = partition
        state = self.state
        isr = tuple(member for member in state.isr if member != broker) or state.isr
        leader = state.leader if state.leader in isr and state.leader != broker else isr[0]
        self._say(State(leader, state.leader_epoch + 1, state.partition_epoch + 1, isr))
        self.to_hear[broker].clear()
        self.to_hear[broker].append(self.state)

    def _say(self, state: State) -> None:
        self.state = state._replace(partition_epoch=max(state.partition_epoch, self.state.partition_epoch + 1))
        for waiting in self.to_hear.values():
            waiting.append(self.state)

    def _obey(self, broker: int, state: State) -> None:
        partition = self.replicas[broker]
        if state.leader == broker:
            partition.lead(state.leader_epoch, state.partition_epoch, BROKERS, state.isr, self.now_ms)
        else:
            partition.resign(state.leader, state.leader_epoch, state.partition_epoch, BROKERS, state.isr)

    def _one_of(self, waiting: list) -> object:  # type: ignore[type-arg]
        """Any of those that wait: messages overtake each other."""
        return waiting.pop(self.random.randrange(len(waiting))) if waiting else None  # type: ignore[no-any-return]

    # --- what must hold -----------------------------------------------------------------------------

    def acknowledge(self) -> None:
        waiting = []
        for broker, life, epoch, offset, value in self.unacknowledged:
            partition = self.replicas[broker]
            if life != self.lives[broker] or not partition.is_leader or partition.leader_epoch != epoch:
                continue
            if partition.high_watermark > offset and partition.may_have_enough_in_sync:
                assert self.acknowledged.get(offset, value) == value, "one offset was acknowledged twice"
                self.acknowledged[offset] = value
            else:
                waiting.append((broker, life, epoch, offset, value))
        self.unacknowledged = waiting

    def check(self) -> None:
        logs = {broker: values(partition) for broker, partition in self.replicas.items()}
        for broker in self.state.isr:
            for offset, value in self.acknowledged.items():
                assert offset < len(logs[broker]) and logs[broker][offset] == value, (
                    f"broker {broker} is in the ISR without what was acknowledged at {offset}"
                )
        for broker, partition in self.replicas.items():
            visible = logs[broker][: partition.high_watermark]
            common = min(len(visible), len(self.seen))
            assert visible[:common] == self.seen[:common], f"broker {broker} shows something else than was seen"
            self.seen += visible[common:]

    def calm_down(self) -> None:
        for turn in range(30):
            if turn == 20:
                self.write()
            for broker in BROKERS:
                while self.to_hear[broker]:
                    self._obey(broker, self.to_hear[broker].popleft())
            for _ in range(4):
                for happening in (self.ask, self.ask, self.answer, self.answer, self.take, self.take):
                    happening()
            self.now_ms += 1000
            self.proposals = [each for each in self.proposals if self.replicas[each[0]].in_sync.pending is each[2]]
            while self.proposals:
                self.decide()
            while self.verdicts:
                self.settle()
        self.acknowledge()
        self.check()


@pytest.mark.parametrize("min_insync", [1, 2])
@pytest.mark.parametrize("seed", seeds(range(6), fresh=6))
def test_nothing_committed_is_lost_or_changed_whatever_happens(seed: int, min_insync: int) -> None:
    world = World(seed, min_insync)
    print(f"seed {seed}, min.insync.replicas {min_insync}")
    for _ in range(STEPS):
        world.step()
    world.calm_down()
    leader = world.replicas[world.state.leader]
    assert {content(partition) for partition in world.replicas.values()} == {content(leader)}
    assert sorted(world.state.isr) == list(BROKERS)
    assert leader.high_watermark == leader.log.log_end_offset
    assert leader.log.log_end_offset - 1 in world.acknowledged
