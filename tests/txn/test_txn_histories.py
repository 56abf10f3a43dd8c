"""Random histories (see txn_world): answers lost, requests repeated, coordinators replaced in the middle of anything,
epochs and producer ids that run out, requests that come to a coordinator before it has loaded.

Checked on the way: the log tells a possible story (states follow the table, epochs never go back, what is prepared is
completed with the same outcome), and loading it gives what living gave. Checked in the end: every transaction is
committed or aborted in all its partitions, as its producer was told, and none is left open.

A history follows from its seed: what fails, fails again.
"""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from txn_world import Producer, World

from tidelog.wire.errors import ErrorCode
from tidelog.wire.partitions import TopicPartition

# (name, transactional id, transactions version): two that fence each other, and one of each version in peace.
PRODUCERS = [("a1", "x", 1), ("a2", "x", 2), ("b1", "y", 1), ("c2", "z", 2)]
STEPS = 400
FATES = ["fine"] * 8 + ["lost on the way", "answer lost"]


class History:
    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        self.world = World(transaction_version=random.choice([0, 1, 2, 2]), num_partitions=random.choice([1, 3]))
        for name, transactional_id, version in PRODUCERS:
            self.world.producers[name] = Producer(name, transactional_id, version)
        if random.random() < 0.5:
            for producer_id, transactional_id in enumerate("xyz"):
                self.world.grow_old(transactional_id, producer_id, random.choice([32_763, 32_765, 32_766]))
        # Histories differ in how often something goes wrong, how long markers are on their way, and how long records
        # stay uncommitted.
        self.trouble = random.choice([0.02, 0.1, 0.3])
        self.pace = random.choice([0.15, 0.3, 0.6])
        self.patience = random.choice([0.03, 0.2])
        self.world.while_loading = self.meanwhile

    def play(self) -> None:
        for step in range(STEPS):
            self.world.advance(self.random.randrange(30))
            self.world.controller_away &= self.random.random() < 0.9
            if self.random.random() < 0.5:
                self.world.controller_answers()
            if self.world.holding and self.random.random() < self.patience:
                self.world.holding = False
                self.world.commit()
            elif self.random.random() < self.trouble:
                self.misfortune()
            else:
                self.life_goes_on()
            if step % 50 == 0:
                self.world.check_log()
        self.world.settle()
        self.world.check_log()
        self.world.check_outcomes()

    def life_goes_on(self) -> None:
        if self.world.network and self.random.random() < self.pace:
            self.world.deliver_marker(self.random.randrange(99), self.random.choice(FATES))
        else:
            self.producer_acts(self.random.choice(list(self.world.producers.values())))

    def meanwhile(self) -> None:
        """A coordinator has come a bit further in its log."""
        if self.random.random() < 0.03:
            self.world.advance(self.random.choice([0, 10, 600]))
            self.life_goes_on()

    def producer_acts(self, producer: Producer) -> None:
        random, world = self.random, self.world
        if producer.task is None:
            if not producer.alive:
                if random.random() < 0.9:
                    return
                producer.task = ("init", False)
            elif producer.in_transaction and (producer.must_abort or random.random() < 0.3):
                producer.task = ("end", not producer.must_abort and random.random() < 0.7)
            elif not producer.in_transaction and random.random() < 0.05:
                producer.task = ("init", random.random() < 0.7)
            else:
                what = "add" if producer.version == 1 else "write"
                producer.task = (what, TopicPartition("t", random.randrange(3)))
        elif producer.ticket is not None and random.random() < 0.7:
            return  # It waits; otherwise it takes the answer for lost.
        world.request(producer)

    def misfortune(self) -> None:
        random, world = self.random, self.world
        what = random.choice(["time", "hold", "hold", "append", "ids", "death", "crash", "power"])
        if what == "time":
            world.advance(random.choice([100, 5_000, 11_000]))
        elif what == "hold":
            world.holding = True
        elif what == "append":
            world.fail_next = random.choice([ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.REQUEST_TIMED_OUT])
        elif what == "ids":
            world.controller_away = True
        elif what == "death":
            self.die(random.choice(list(world.producers.values())))
        else:
            world.holding = False
            # Nobody is left to send again what is lost with the connections of the coordinator.
            world.network = [marker for marker in world.network if random.random() < 0.5]
            world.restart(max(world.committed, len(world.log) - random.randrange(5)))
            for producer in world.producers.values() if what == "power" else ():
                if random.random() < 0.5:
                    self.die(producer)

    def die(self, producer: Producer) -> None:
        """What it had under way may still arrive, but nobody waits for the answer."""
        producer.task, producer.ticket, producer.alive = None, None, False


@given(st.integers(0, 2**32))
@settings(max_examples=120, deadline=None)
def test_whatever_happens_every_transaction_is_all_or_nothing(seed):
    History(seed).play()


def test_histories_are_about_something():
    """Across some seeds every way to end, and every obstacle on the way, is met many times."""
    committed = aborted = rotated = 0
    for seed in range(30):
        history = History(seed)
        history.play()
        told = [commit for producer in history.world.producers.values() for commit, written in producer.told.values()]
        committed += told.count(True)
        aborted += told.count(False)
        rotated += history.world.rotations()
    assert committed > 100 and aborted > 50 and rotated > 25
