"""Where the replicas of new partitions go.

First replicas go round the brokers, starting at a random one; the others follow at a shift that grows by one with
every round, so that the replicas of a broker's partitions are spread over all the others. Five brokers, three
replicas, start 0, shift 0:

    p0: 0 1 2    p1: 1 2 3    p2: 2 3 4    p3: 3 4 0    p4: 4 0 1
    p5: 0 2 3    p6: 1 3 4    …

Where every broker names a rack, the brokers are first ordered so that racks alternate, and a broker is passed over
while its rack has a replica and another rack has none. Where some name none, racks are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from tidelog.control.errors import Rejected
from tidelog.wire.errors import ErrorCode


def place_replicas(
    racks: Mapping[int, str | None], partitions: int, replication_factor: int, random: Random, first_partition: int = 0
) -> list[tuple[int, ...]]:
    """Replicas of `partitions` partitions from `first_partition` on, over the brokers that are the keys of `racks`."""
    if not racks:
        raise Rejected(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {replication_factor} time(s): All brokers are currently fenced or in "
            "controlled shutdown.",
        )
    if replication_factor > len(racks):
        raise Rejected(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {replication_factor} time(s): The target replication factor of "
            f"{replication_factor} cannot be reached because only {len(racks)} broker(s) are registered.",
        )
    start = random.randrange(len(racks))
    shift = random.randrange(len(racks))
    known = {broker: rack for broker, rack in racks.items() if rack is not None}
    if len(known) == len(racks):
        brokers = alternate_racks(known)
    else:
        known, brokers = {}, sorted(racks)
    placed = []
    for partition in range(first_partition, first_partition + partitions):
        if partition > 0 and partition % len(brokers) == 0:
            shift += 1
        first = (partition + start) % len(brokers)
        if known:
            placed.append(_across_racks(brokers, known, first, shift, replication_factor))
        else:
            replicas = [brokers[first]]
            for nth in range(replication_factor - 1):
                replicas.append(brokers[_follower(first, shift, nth, len(brokers))])
            placed.append(tuple(replicas))
    return placed


def alternate_racks(racks: Mapping[int, str]) -> list[int]:
    """The brokers in an order in which racks take turns: r1: 0 1, r2: 2 3 gives 0 2 1 3."""
    by_rack: dict[str, list[int]] = {}
    for broker in sorted(racks):
        by_rack.setdefault(racks[broker], []).append(broker)
    columns = [by_rack[rack] for rack in sorted(by_rack)]
    depth = max(map(len, columns))
    return [column[row] for row in range(depth) for column in columns if row < len(column)]


def _across_racks(
    brokers: list[int], racks: Mapping[int, str], first: int, shift: int, replication_factor: int
) -> tuple[int, ...]:
    rack_count = len(set(racks.values()))
    replicas = [brokers[first]]
    used_racks = {racks[brokers[first]]}
    nth = 0
    while len(replicas) < replication_factor:
        broker = brokers[_follower(first, shift * rack_count, nth, len(brokers))]
        nth += 1
        rack_is_fresh = racks[broker] not in used_racks or len(used_racks) == rack_count
        if rack_is_fresh and broker not in replicas:
            replicas.append(broker)
            used_racks.add(racks[broker])
    return tuple(replicas)


def _follower(first: int, shift: int, nth: int, brokers: int) -> int:
    return (first + 1 + (shift + nth) % (brokers - 1)) % brokers
