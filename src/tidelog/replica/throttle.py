"""Replication throttles (KIP-73): a bound on the bytes a second that replicas which are not in sync may take.

An operator sets a rate for a broker, and names the replicas it applies to in the configuration of their topic: those
that a reassignment fills. Whoever is in sync is never throttled, or it would drop out.

The rate is measured over a window of samples, as Apache Kafka does: a large answer uses up what the next seconds would
have had.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import Final

from tidelog.config.broker_config import BrokerConfig
from tidelog.replica.partition import Partition

RATES: Final = ["leader.replication.throttled.rate", "follower.replication.throttled.rate"]
UNLIMITED: Final = 2**63 - 1
EVERYBODY: Final = "*"


class ReplicationThrottle:
    """`rate` is in bytes a second; `samples` of `sample_ms` each are what it is measured over."""

    __slots__ = ("_sample_ms", "_samples", "_taken", "_total", "rate")

    def __init__(self, rate: int = UNLIMITED, samples: int = 11, sample_ms: int = 1000) -> None:
        self.rate = rate
        self._samples = samples
        self._sample_ms = sample_ms
        #: (when a sample began, bytes in it), oldest first
        self._taken: deque[list[int]] = deque()
        self._total = 0

    def record(self, size_bytes: int, now_ms: int) -> None:
        self._forget(now_ms)
        if not self._taken or now_ms - self._taken[-1][0] >= self._sample_ms:
            self._taken.append([now_ms, 0])
        self._taken[-1][1] += size_bytes
        self._total += size_bytes

    def is_exceeded(self, now_ms: int) -> bool:
        if self.rate == UNLIMITED:
            return False
        self._forget(now_ms)
        if not self._taken:
            return False
        # A window that has only begun counts as all but one of its samples, or a first answer would look like a flood.
        elapsed_ms = max(now_ms - self._taken[0][0], (self._samples - 1) * self._sample_ms)
        return self._total * 1000 > self.rate * elapsed_ms

    def _forget(self, now_ms: int) -> None:
        oldest_ms = now_ms - self._samples * self._sample_ms
        while self._taken and self._taken[0][0] <= oldest_ms:
            self._total -= self._taken.popleft()[1]


def _is_named(throttled: Collection[str], index: int, replica: int) -> bool:
    """Whether a topic's list of throttled replicas, `partition:broker` or `*`, contains this one."""
    return bool(throttled) and (EVERYBODY in throttled or f"{index}:{replica}" in throttled)


class Throttles:
    """Of a broker: what it sends as a leader, and what it fetches as a follower."""

    __slots__ = ("_config", "as_follower", "as_leader")

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        values = config.values
        samples, sample_ms = values.replication_quota_window_num, 1000 * values.replication_quota_window_size_seconds
        self.as_leader = ReplicationThrottle(samples=samples, sample_ms=sample_ms)
        self.as_follower = ReplicationThrottle(samples=samples, sample_ms=sample_ms)
        self._take_rates()
        config.on_change(RATES, lambda names: self._take_rates())

    def _take_rates(self) -> None:
        values = self._config.values
        self.as_leader.rate = values.leader_replication_throttled_rate
        self.as_follower.rate = values.follower_replication_throttled_rate

    def covers_follower(self, partition: Partition) -> bool:
        """Whether the replica on this broker is one of those that are filled slowly."""
        throttled = partition.log.config.follower_replication_throttled_replicas
        return bool(throttled) and _is_named(throttled, partition.index, partition.local_id)

    def covers_leader(self, partition: Partition) -> bool:
        throttled = partition.log.config.leader_replication_throttled_replicas
        return bool(throttled) and _is_named(throttled, partition.index, partition.local_id)

    def holds_back(self, partition: Partition, replica: int, now_ms: int) -> bool:
        """Whether a follower gets no records for now: it is not in sync, and others have taken their share already."""
        return self.covers_leader(partition) and replica not in partition.isr and self.as_leader.is_exceeded(now_ms)

    def sent(self, partition: Partition, size_bytes: int, now_ms: int) -> None:
        """Counts records that are sent to a follower."""
        if self.covers_leader(partition):
            self.as_leader.record(size_bytes, now_ms)
