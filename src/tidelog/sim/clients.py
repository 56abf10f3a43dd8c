"""Everybody who uses the cluster in a run: who there is, who has to be waited for, and how far all of them are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Final, Protocol

from tidelog.sim.log_place import LogPlace
from tidelog.sim.oracle import Oracle
from tidelog.sim.simulated_admin import SimulatedAdmin
from tidelog.sim.simulated_classic import SimulatedClassic
from tidelog.sim.simulated_consumer import SimulatedConsumer
from tidelog.sim.simulated_delays import DEFAULT_DELAY_MS, DelayProducer
from tidelog.sim.simulated_halves import CHECK_MS, MOST_CHECKS, QuestionReader, SimulatedHalfSender
from tidelog.sim.simulated_member import SimulatedMember
from tidelog.sim.simulated_producer import IdempotentProducer
from tidelog.sim.simulated_reader import READ_COMMITTED, SimulatedReader
from tidelog.sim.simulated_transactor import Transactor
from tidelog.sim.terms import Terms
from tidelog.sim.topic_lives import TopicLives
from tidelog.sim.waiting_oracle import DelayedTruth, HalfTruth, WaitingTruth
from tidelog.sim.world import World

TOPIC: Final = "main"
#: written to in transactions
TRANSACTIONAL_TOPIC: Final = "transactional"
GROUP: Final = "group"
CLASSIC_GROUP: Final = "classic"
DELAY_TOPIC, DUE_TOPIC = "later", "due"
HALF_TOPIC, WHOLE_TOPIC, QUESTIONS, UNDECIDED = "half", "whole", "questions", "undecided"


class TopicMaker(Protocol):
    """Makes a topic, and returns its partitions."""

    def __call__(self, topic: str, partitions: int, settings: Mapping[str, str] = ...) -> list[LogPlace]: ...


class Clients:
    def __init__(self, world: World, oracle: Oracle, terms: Terms, create: TopicMaker) -> None:
        random = world.random("clients")
        self._oracle = oracle
        places = create(TOPIC, terms.partitions)
        self.producers: list[IdempotentProducer] = [
            IdempotentProducer(world, oracle, f"p{n}", places, random.choice((30, 100, 300)), random.randint(1, 5))
            for n in range(terms.producers)
        ]
        self.readers = [SimulatedReader(world, oracle, f"r{n}", places) for n in range(terms.readers)]
        self.members: list[SimulatedMember] = [
            SimulatedConsumer(world, oracle, f"m{n}", GROUP, TOPIC, terms.partitions) for n in range(terms.members)
        ]
        self.members += [
            SimulatedClassic(world, oracle, f"c{n}", CLASSIC_GROUP, TOPIC, terms.partitions)
            for n in range(terms.classic_members)
        ]
        self.transactors: list[Transactor] = []
        outputs: list[LogPlace] = []
        if terms.transactors or terms.transformers:
            outputs = create(TRANSACTIONAL_TOPIC, random.randint(1, 3))
            sources = [None] * terms.transactors + places[: terms.transformers]
            self.transactors = [
                Transactor(
                    world, oracle, f"t{n}", outputs, random.choice((1, 2)), random.choice((2_000, 15_000)), source
                )
                for n, source in enumerate(sources)
            ]
            self.readers.append(SimulatedReader(world, oracle, "u0", outputs))
            self.readers.append(SimulatedReader(world, oracle, "s0", outputs, READ_COMMITTED))
        waiting: list[LogPlace] = []
        if terms.delayers:
            waiting += self._delay(world, terms, random, create)
        if terms.half_senders:
            waiting += self._halve(world, terms, random, create)
        self.topics = [TopicLives(world, oracle, f"short{n}") for n in range(terms.short_lived_topics)]
        self.admin: SimulatedAdmin | None = None
        if terms.admin_pause_ms is not None:
            self.admin = SimulatedAdmin(
                world, oracle, "a0", [*places, *outputs, *waiting], terms.admin_pause_ms, self._deletable
            )

    def _delay(self, world: World, terms: Terms, random: Random, create: TopicMaker) -> list[LogPlace]:
        """A delay topic and its target; those who write to it, and a reader of both."""
        partitions = random.randint(1, 2)
        targets = create(DUE_TOPIC, partitions)
        settings = {"tidelog.delay.target": DUE_TOPIC, "tidelog.delay.ms": str(DEFAULT_DELAY_MS)}
        sources = create(DELAY_TOPIC, partitions, settings)
        truths = [DelayedTruth(*pair, DEFAULT_DELAY_MS) for pair in zip(sources, targets, strict=True)]
        self._watch(truths)
        self.producers += [
            DelayProducer(world, self._oracle, f"d{n}", truths, random.choice((50, 200)), random.randint(1, 5))
            for n in range(terms.delayers)
        ]
        self.readers.append(SimulatedReader(world, self._oracle, "w0", [*sources, *targets]))
        return [*sources, *targets]

    def _halve(self, world: World, terms: Terms, random: Random, create: TopicMaker) -> list[LogPlace]:
        """A topic of half messages with its target, where senders are asked, and where what is undecided goes."""
        partitions, oracle = random.randint(1, 2), self._oracle
        targets, questions, undecided = create(WHOLE_TOPIC, partitions), create(QUESTIONS, 1), create(UNDECIDED, 1)
        settings = {
            "tidelog.half.target": WHOLE_TOPIC,
            "tidelog.half.check.topic": QUESTIONS,
            "tidelog.half.check.ms": str(CHECK_MS),
            "tidelog.half.check.max": str(MOST_CHECKS),
            "tidelog.half.undecided.topic": UNDECIDED,
        }
        sources = create(HALF_TOPIC, partitions, settings)
        truths = [HalfTruth(*pair) for pair in zip(sources, targets, strict=True)]
        self._watch(truths)
        oracle.waiting.most_asked = MOST_CHECKS
        senders = [
            SimulatedHalfSender(world, oracle, f"h{n}", truths, random.choice((50, 200)), random.randint(1, 5))
            for n in range(terms.half_senders)
        ]
        self.producers += senders
        self.readers.append(SimulatedReader(world, oracle, "x0", [*sources, *targets]))
        self.readers.append(QuestionReader(world, oracle, "q0", questions, undecided, senders))
        return [*sources, *targets]

    def _watch(self, truths: Sequence[WaitingTruth]) -> None:
        for truth in truths:
            self._oracle.waiting.add(truth)
            self._oracle[truth.target].is_in_order_of_producers = False

    def stop(self) -> None:
        """Nobody begins anything new; readers and groups go on."""
        for client in (*self.producers, *self.transactors, *self.topics):
            client.is_stopped = True
        if self.admin is not None:
            self.admin.is_stopped = True

    def are_done(self) -> bool:
        return (
            not any(producer.unacknowledged for producer in self.producers)
            and all(transactor.is_done for transactor in self.transactors)
            and all(topic.is_idle for topic in self.topics)
        )

    def are_committed(self) -> bool:
        """The groups have got as far as the first reader."""
        committed = self._oracle.committed
        return all(
            committed.get((group, place), 0) >= end
            for group in {member.group for member in self.members}
            for place, end in self.readers[0].positions.items()
        )

    def deleted_topics(self) -> set[bytes]:
        return {topic_id for topic in self.topics for topic_id in topic.deleted}

    def _deletable(self, place: LogPlace) -> int:
        """Nobody has to read below it."""
        ends = [reader.positions[place] for reader in self.readers if place in reader.positions]
        ends += [self._oracle.committed.get((group, place), 0) for group in {member.group for member in self.members}]
        ends += [transactor.position for transactor in self.transactors if transactor.source == place]
        needed = self._oracle.waiting.first_needed(place)
        return min(ends) if needed is None else min(*ends, needed)
