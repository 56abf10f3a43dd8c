"""What a run is made of, apart from its seed."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random


@dataclass(slots=True)
class Terms:
    brokers: int = 3
    #: of each broker
    log_dirs: int = 1
    length_ms: int = 20_000
    most_faults: int = 14
    #: of faults; none: of all kinds
    kinds: tuple[str, ...] = ()
    partitions: int = 3
    producers: int = 2
    readers: int = 1
    #: of one consumer group
    members: int = 0
    #: and of one classic group
    classic_members: int = 0
    #: producers with transactions; and those of them that make what they write of the records of the main topic
    transactors: int = 0
    transformers: int = 0
    #: topics that are created and deleted again and again
    short_lived_topics: int = 0
    #: how often somebody changes something, None for never
    admin_pause_ms: int | None = None
    #: producers to a delay topic, and senders of half messages
    delayers: int = 0
    half_senders: int = 0
    #: brokers, the first ones, that keep their batches in the shared layout
    shared_brokers: int = 0
    #: no batch is acknowledged before it is on the device of its leader
    is_flushed: bool = False

    @classmethod
    def drawn(cls, random: Random) -> Terms:
        """Runs differ in more than their faults."""
        terms = cls(
            brokers=random.choice((3, 3, 3, 4)),
            log_dirs=random.choice((1, 1, 2)),
            length_ms=random.choice((3_000, 6_000, 6_000, 15_000)),
            most_faults=random.choice((4, 10, 20, 40)),
            partitions=random.randint(1, 4),
            producers=random.randint(1, 3),
            readers=1,
            members=random.choice((0, 0, 1, 2, 3)),
            classic_members=random.choice((0, 0, 0, 1, 2, 3)),
            transactors=random.choice((0, 0, 1, 2)),
            transformers=random.choice((0, 0, 1)),
            short_lived_topics=random.choice((0, 0, 1, 2)),
            admin_pause_ms=random.choice((None, 400, 1_500)),
            delayers=random.choice((0, 0, 1, 2)),
            half_senders=random.choice((0, 0, 1, 2)),
        )
        terms.shared_brokers = random.choice((0, 0, 1, terms.brokers))
        terms.is_flushed = random.choice((False, False, True))
        return terms
