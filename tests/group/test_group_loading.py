"""Random histories of committed offsets on a coordinator that loads piece by piece while life goes on around it.

Producers commit offsets in transactions, others plainly; topics are deleted and created again under the same name; the
broker dies, also between the deletion of a topic and what the coordinator writes about it, and a full disk refuses
records. Markers and deletions come whenever they like; requests are refused while the partition loads. A model knows
what each group reads: whenever the partition answers, it answers that. A history follows from its seed.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

from tidelog.deciding.decision import CoordinatorRecord, Decision, SetTimer
from tidelog.deciding.turn import Refusal
from tidelog.group.config import GroupConfig
from tidelog.group.groups import Groups
from tidelog.group.offset_store import CommittedOffset
from tidelog.group.requests import (
    Membership,
    OffsetCommit,
    OffsetFetch,
    TxnOffsetCommit,
)
from tidelog.group.topics_image import Topic
from tidelog.wire import messages
from tidelog.wire.errors import ErrorCode
from tidelog.wire.ids import ZERO_UUID

E = ErrorCode
GROUPS, TOPICS, PARTITIONS, PRODUCERS = ["g", "h"], ["t", "u"], 10, [7, 8, 9]
STEPS = 150
Place = tuple[str, str, int]


class Record(NamedTuple):
    key: bytes
    value: bytes | None
    producer_id: int


class Marker(NamedTuple):
    producer_id: int
    commit: bool


class Ticket:
    def __init__(self) -> None:
        self.answer: Any = None

    def reply(self, message: Any) -> None:
        self.answer = message


class Model:
    """What consumers must read: the latest of a plain commit and of those whose transaction was committed."""

    def __init__(self) -> None:
        self.committed: dict[Place, tuple[int, int]] = {}
        self.pending: dict[int, dict[Place, tuple[int, int]]] = {}
        self._order = 0

    def commit(self, place: Place, offset: int, producer_id: int) -> None:
        self._order += 1
        kept = self.committed if producer_id < 0 else self.pending.setdefault(producer_id, {})
        kept[place] = (self._order, offset)

    def end(self, marker: Marker) -> None:
        for place, entry in self.pending.pop(marker.producer_id, {}).items():
            if marker.commit:
                self.committed[place] = max(entry, self.committed.get(place, entry))

    def delete(self, topic: str) -> None:
        for kept in (self.committed, *self.pending.values()):
            for place in [place for place in kept if place[1] == topic]:
                del kept[place]

    def stable(self, place: Place) -> int | ErrorCode:
        if any(place in entries for entries in self.pending.values()):
            return E.UNSTABLE_OFFSET_COMMIT
        return self.committed.get(place, (0, -1))[1]


class History:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.model = Model()
        self.log: list[Record | Marker] = []
        self.topics: dict[str, bytes] = {}
        self.disk_full = False
        self.now_ms = 0
        self.timers: set[Any] = set()
        self.answered = self.refused = 0
        self.start()
        for name in TOPICS:
            self.create(name)

    # --- the broker's part ----------------------------------------------------------------------------

    def start(self) -> None:
        """A coordinator that knows nothing yet of its log."""
        self.groups = Groups(GroupConfig(offsets_topic_num_partitions=1))
        self.timers.clear()
        self.tell_topics()
        self.carry_out(self.groups.load_begin(0, 0))
        self.read_to: int | None = 0
        self.load(self.random.randrange(3))

    def load(self, records: int) -> None:
        for _ in range(records):
            if self.read_to is None:
                return
            if self.read_to == len(self.log):
                self.read_to = None
                self.carry_out(self.groups.load_end(0, self.now_ms, 0))
                return
            entry = self.log[self.read_to]
            if isinstance(entry, Marker):
                self.groups.replay_end(0, *entry)
            else:
                self.groups.replay(0, CoordinatorRecord(*entry[:2]), *entry[2:], self.read_to)
            self.read_to += 1

    def carry_out(self, decision: Decision) -> None:
        if decision.records and self.disk_full:
            decision = self.groups.append_failed(decision, E.KAFKA_STORAGE_ERROR, self.now_ms, 0)
        for record in decision.records:
            assert self.read_to is None, "a coordinator that loads decides nothing"
            self.log.append(Record(record.key, record.value, decision.producer_id))
            self.groups.replay(0, record, decision.producer_id, len(self.log) - 1)
        for reply in decision.replies:
            reply.ticket.reply(reply.message)
        self.timers.update(timer.key for timer in decision.timers if isinstance(timer, SetTimer))

    def tell_topics(self) -> None:
        changes: dict[str, Topic | None] = dict.fromkeys(self.groups._around.topics.by_name)
        changes |= {name: Topic(name, topic_id, PARTITIONS) for name, topic_id in self.topics.items()}
        for decision in self.groups.on_topics_changed(changes, self.now_ms, 0):
            self.carry_out(decision)

    def ask(self, deciding: Callable[[Ticket, Any, int, int], Decision], asked: Any) -> Any:
        ticket = Ticket()
        self.carry_out(deciding(ticket, asked, self.now_ms, 0))
        return ticket.answer

    # --- what happens ---------------------------------------------------------------------------------

    def play(self) -> None:
        events = (self.commit, self.commit, self.mark, self.delete_or_create, self.crash, self.fill_or_free)
        for _ in range(STEPS):
            self.random.choices(events, (30, 30, 20, 6, 3, 6))[0]()
            self.load(self.random.randrange(4))
            self.check()
        if self.disk_full:
            self.fill_or_free()
        self.crash()
        self.load(len(self.log) + 1)
        for name in TOPICS:
            if name not in self.topics:
                self.create(name)
        self.check()

    def commit(self) -> None:
        group, topic, partition = (
            self.random.choice(GROUPS),
            self.random.choice(TOPICS),
            self.random.randrange(PARTITIONS),
        )
        if topic not in self.topics:
            return
        offset, producer_id = self.random.randrange(1000), self.random.choice([-1, *PRODUCERS])
        nobody = Membership(group, "", None, -1)
        of_partition = messages.OffsetCommitRequest.OffsetCommitRequestPartition
        topics = [(topic, ZERO_UUID, [of_partition(partition_index=partition, committed_offset=offset)])]
        if producer_id < 0:
            outcome = self.ask(self.groups.offset_commit, OffsetCommit(nobody, topics))
        else:
            outcome = self.ask(self.groups.txn_offset_commit, TxnOffsetCommit(nobody, producer_id, 0, topics))
        (code,) = [outcome.code] if isinstance(outcome, Refusal) else outcome.codes
        loading = self.read_to is not None
        assert (code == E.COORDINATOR_LOAD_IN_PROGRESS) == loading
        if code == E.NONE:
            assert not self.disk_full
            self.model.commit((group, topic, partition), offset, producer_id)
        self.refused += loading

    def mark(self) -> None:
        if self.disk_full:
            return
        marker = Marker(self.random.choice(PRODUCERS), self.random.random() < 0.7)
        self.log.append(marker)
        self.groups.transaction_ended(0, *marker)
        self.model.end(marker)

    def delete_or_create(self) -> None:
        name = self.random.choice(TOPICS)
        if name not in self.topics:
            self.create(name)
            return
        topic_id = self.topics.pop(name)
        self.model.delete(name)
        if self.random.random() < 0.4:
            # Decided, and the broker dies before its coordinator hears of it.
            self.start()
            return
        self.tell_topics()
        for decision in self.groups.on_topic_deleted(name, topic_id, self.now_ms, 0):
            self.carry_out(decision)

    def create(self, name: str) -> None:
        self.topics[name] = self.random.randbytes(16)
        self.tell_topics()

    def crash(self) -> None:
        self.start()

    def fill_or_free(self) -> None:
        """What a full disk has refused is tried again after a while."""
        self.disk_full = not self.disk_full
        self.now_ms += 10_000
        for key in sorted(self.timers):
            self.carry_out(self.groups.on_timer(key, self.now_ms, 0))

    # --- what must hold -------------------------------------------------------------------------------

    def check(self) -> None:
        if self.read_to is not None or self.disk_full:
            return
        for group in GROUPS:
            of = messages.OffsetFetchRequest
            indexes = list(range(PARTITIONS))
            topics = [of.OffsetFetchRequestTopics(name=name, partition_indexes=indexes) for name in self.topics]
            group_of = of.OffsetFetchRequestGroup(group_id=group, topics=topics)
            wanted = OffsetFetch([group_of], require_stable=True)
            (found,) = self.ask(self.groups.offset_fetch, wanted).groups
            assert found.code is E.NONE
            for topic in found.topics:
                for partition, committed in topic.offsets:
                    told = committed.offset if isinstance(committed, CommittedOffset) else committed or -1
                    place = (group, topic.name, partition)
                    assert told == self.model.stable(place), place
                    self.answered += 1


def test_offsets_are_those_that_were_committed_whatever_comes_while_they_load() -> None:
    answered = refused = 0
    for seed in range(60):
        history = History(seed)
        history.play()
        answered += history.answered
        refused += history.refused
    # The histories are about something.
    assert answered > 5_000 and refused > 1_000
