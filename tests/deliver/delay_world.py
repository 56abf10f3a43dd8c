"""A delay partition and its target as plain lists, a deliverer that may die at any step, and what must hold.

The log and the target survive a death; the schedule and its scratch do not. The target checks duplicates as a partition
does: it knows the last batches of a producer and refuses a sequence that does not follow. What it has it recognises
before it refuses anything, unless it is told to be as it is to clients.
"""

from __future__ import annotations

from random import Random

from tidelog.deciding.decision import CoordinatorRecord, Decision
from tidelog.deliver.delivery_picture import kind_of
from tidelog.deliver.schedule import Schedule
from tidelog.deliver.wheels import Key, Wheels
from tidelog.wire.batch import MAX_SEQUENCE

RETAINED = 5
#: what the target never takes, by the weight that the world gives a record
TOO_LARGE = 1000
#: looks as if it fitted, and is refused
REFUSED = 999
#: is refused while the target is compacted
KEYLESS = 11


class ScratchBytes:
    def __init__(self, data: bytes) -> None:
        self._data = data

    def pread(self, size_bytes: int, position: int) -> bytes:
        return self._data[position : position + size_bytes]


class MemoryScratch:
    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    def write(self, name: str, data: bytes, position: int) -> None:
        self.files[name] = self.files.get(name, b"")[:position] + data

    def open(self, name: str) -> ScratchBytes:
        return ScratchBytes(self.files[name])

    def remove(self, name: str) -> None:
        self.files.pop(name, None)


class Died(Exception):
    """The broker was killed."""


class World:
    def __init__(self, seed: int, deaths: float, disturbed: bool = False) -> None:
        """`disturbed`: at each death, records may be deleted, and the target may change what it takes."""
        self.random = Random(seed)
        self.deaths = deaths
        self.disturbed = disturbed
        self.now_ms = 1_000_000
        #: due time and weight of a record, or a control record
        self.log: list[tuple[int, int] | CoordinatorRecord] = []
        #: producer -> (first sequence, count) of its last batches
        self.known: dict[int, list[tuple[int, int]]] = {}
        self.delivered: list[tuple[int, int]] = []
        self.cancelled: set[int] = set()
        #: records that were there before they were due
        self.in_time: set[int] = set()
        self.next_producer_id = 0
        #: where the log begins: what is before was deleted
        self.begin = 0
        #: records of a batch, beyond which the target refuses it
        self.most_taken = 100
        self.compacted = False
        #: the target has a look at what it knows before it refuses a batch
        self.recognises = True
        #: what is stopped is to be tried again
        self.retries = False
        #: the clock was set back, once at least: what was delivered before may not be due any more
        self.was_set_back = False
        self.lives = 0
        self.start()

    # --- what survives ----------------------------------------------------------------------------

    def produce(self, due_ms: int, weight: int = 10) -> int:
        self.log.append((due_ms, weight))
        if due_ms > self.now_ms:
            self.in_time.add(len(self.log) - 1)
        return len(self.log) - 1

    def set_back(self, span_ms: int) -> None:
        self.now_ms -= span_ms
        self.was_set_back = True

    def accept(self, producer_id: int, sequence: int, offsets: list[int], decided_ms: int | None = None) -> str:
        """As a partition's leader does; `delivered` is what its consumers see."""
        batches = self.known.setdefault(producer_id, [])
        outcome = "taken"
        if (sequence, len(offsets)) in batches[-RETAINED:]:
            outcome = "duplicate"
        elif batches and sequence != (batches[-1][0] + batches[-1][1]) & MAX_SEQUENCE:
            outcome = "out of order"
        is_refused = len(offsets) > self.most_taken or bool(self.faulty(offsets))
        if is_refused and (outcome == "taken" or not self.recognises):
            return "refused"
        if outcome != "taken":
            return outcome
        batches.append((sequence, len(offsets)))
        self.delivered += [(offset, self.now_ms if decided_ms is None else decided_ms) for offset in offsets]
        return "taken"

    def faulty(self, offsets: list[int]) -> list[int]:
        """The places of those that the target refuses, whatever they come with."""
        odd = (REFUSED, KEYLESS) if self.compacted else (REFUSED,)
        return [at for at, offset in enumerate(offsets) if self.log[offset][1] in odd]

    # --- what does not ----------------------------------------------------------------------------

    def start(self) -> None:
        self.lives += 1
        self.schedule = Schedule(0, MemoryScratch())
        self.schedule.waiting = Wheels(MemoryScratch(), most_in_memory=8)
        left = self.log[self.begin :]
        pictures = [each for each in left if isinstance(each, CoordinatorRecord) and kind_of(each.key) == 10001]
        if pictures:
            self.schedule.replay(pictures[-1]._replace(meaning=None))
        self.schedule.begin(max(self.schedule.picture.floor, self.begin), self.now_ms)
        self.retries = self.disturbed and self.random.random() < 0.1

    def maybe_die(self) -> None:
        if self.random.random() < self.deaths:
            raise Died

    def write(self, decision: Decision) -> None:
        self.maybe_die()
        for record in decision.records:
            self.log.append(record)
            self.schedule.replay(record)
        self.maybe_die()

    def read_all(self) -> None:
        keys: list[Key] = []
        self.schedule.waiting.follow(self.now_ms)
        for offset in range(max(self.schedule.position, self.begin), len(self.log)):
            entry = self.log[offset]
            if isinstance(entry, CoordinatorRecord):
                if kind_of(entry.key) == 10002:
                    self.schedule.replay(entry._replace(meaning=None))
            else:
                keys.append((entry[0], offset))
        self.schedule.found_all(keys)
        self.schedule.position = len(self.log)

    def work(self) -> None:
        """Delivers all that is due. What is under way is sent before anything is read."""
        if (pruned := self.schedule.deleted_below(self.begin)) is not None:
            self.write(pruned)
        while self.schedule.parcel is not None or self.schedule.must_settle:
            self.send()
        self.read_all()
        if self.retries:
            self.schedule.retry_stopped()
            self.retries = False
        while True:
            schedule = self.schedule
            if schedule.parcel is not None or schedule.must_settle:
                self.send()
                continue
            resumed = schedule.resume(self.now_ms)
            if resumed is not None:
                self.write(resumed)
                continue
            set_back = schedule.set_back(self.now_ms)
            if set_back is not None:
                self.write(set_back)
                continue
            chosen = schedule.choose(self.now_ms, self.random.randint(1, 7))
            if not chosen:
                if schedule.waiting.is_pouring:
                    continue
                break
            self.maybe_die()
            weights = [self.log[offset][1] if offset >= self.begin else None for _, offset in chosen]
            producer_id = schedule.picture.producer_id
            if producer_id < 0:
                producer_id = self.new_producer_id()
            self.write(schedule.decide(weights, "orders", 999, producer_id, self.now_ms))
            if self.random.random() < 0.3:
                self.read_all()
        if schedule.owes_a_picture:
            self.write(schedule.settle())

    def new_producer_id(self) -> int:
        self.next_producer_id += 1
        return self.next_producer_id

    def send(self) -> None:
        schedule = self.schedule
        parcel = schedule.parcel
        if parcel is None:
            self.write(schedule.settle())
            return
        left = [key for key in parcel.keys if key[1] >= self.begin]
        if len(left) < len(parcel.keys):
            self.write(schedule.cut(left))
            return
        self.maybe_die()
        sent = [offset for _, offset in parcel.sent_keys]
        outcome = self.accept(schedule.picture.producer_id, parcel.sequence, sent, parcel.decided_ms)
        self.maybe_die()
        if outcome == "refused":
            self.write(schedule.refused("it is odd", self.faulty(sent)))
        elif outcome == "out of order" and parcel.is_cut:
            self.write(schedule.was_whole())
        elif outcome == "out of order":
            self.write(schedule.renew(self.new_producer_id()))
        else:
            schedule.arrived()

    def cancel(self, offset: int) -> bool:
        self.read_all()
        entry = self.log[offset]
        assert not isinstance(entry, CoordinatorRecord)
        if self.schedule.why_not_cancelled(entry[0], offset) is not None:
            return False
        self.write(self.schedule.cancel([(entry[0], offset)]))
        self.cancelled.add(offset)
        return True

    def mend(self) -> None:
        """The target takes what has no key, and gets it in one life."""
        self.compacted, self.retries = False, True
        deaths, self.deaths = self.deaths, 0.0
        self.work()
        self.deaths = deaths

    def live(self) -> None:
        """Works, and starts again after each death, until all that is due is delivered."""
        while True:
            try:
                self.work()
                return
            except Died:
                if self.disturbed:
                    self.disturb()
                self.start()

    def disturb(self) -> None:
        if self.random.random() < 0.3:
            self.begin = max(self.begin, self.random.randint(0, len(self.log)))
        self.most_taken = self.random.choice([100, 100, 2, 1])
        self.compacted = self.random.random() < 0.5

    # --- what must hold ---------------------------------------------------------------------------

    def waiting_keys(self) -> list[Key]:
        return [(entry[0], at) for at, entry in enumerate(self.log) if not isinstance(entry, CoordinatorRecord)]

    def check(self) -> None:
        seen = [offset for offset, _ in self.delivered]
        assert len(seen) == len(set(seen)), "delivered twice"
        stopped = set(self.schedule.picture.stopped)
        due = {
            offset
            for due_ms, offset in self.waiting_keys()
            if due_ms <= self.now_ms and self.log[offset][1] < REFUSED and offset not in self.cancelled
        }
        lost = {offset for offset in due - set(seen) if offset >= self.begin}
        assert not lost, f"missing {lost}"
        odd = {at for due_ms, at in self.waiting_keys() if due_ms <= self.now_ms and self.log[at][1] >= REFUSED}
        gone = {at for at in odd if at < self.begin}
        if self.was_set_back:
            assert stopped >= odd - self.cancelled - gone and not set(seen) & self.cancelled
        else:
            assert set(seen) <= due, f"too many {set(seen) - due}"
            assert stopped == odd - self.cancelled - gone
            in_time = [offset for offset in seen if offset in self.in_time and self.log[offset][1] != KEYLESS]
            in_order = [(self.log[offset][0], offset) for offset in in_time]
            assert in_order == sorted(in_order), "delivered out of order"
        for offset, when_ms in self.delivered:
            assert self.log[offset][0] <= when_ms, f"{offset} was early"
