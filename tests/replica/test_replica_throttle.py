"""A replication throttle: what may pass in a window, and to whom it applies."""

from __future__ import annotations

import pytest
from replica_kit import append, leader

from tidelog.config.broker_config import BrokerConfig
from tidelog.config.sources import load
from tidelog.log.config import LogConfig
from tidelog.replica.throttle import ReplicationThrottle, Throttles


def test_a_throttle_is_exceeded_until_the_window_has_made_up_for_it() -> None:
    throttle = ReplicationThrottle(rate=1000, samples=11, sample_ms=1000)
    throttle.record(10_000, 0)
    assert not throttle.is_exceeded(0), "ten samples' worth may pass at once"
    throttle.record(1, 1)
    assert throttle.is_exceeded(1)
    assert throttle.is_exceeded(9_000)
    assert not throttle.is_exceeded(10_002)
    throttle.record(5_000, 10_500)
    assert throttle.is_exceeded(10_500)
    assert not throttle.is_exceeded(11_000), "the first sample has left the window"


def test_nothing_exceeds_a_rate_that_nobody_set() -> None:
    throttle = ReplicationThrottle()
    throttle.record(1 << 60, 0)
    assert not throttle.is_exceeded(0)


@pytest.mark.parametrize(
    ("listed", "is_covered"), [((), False), (("*",), True), (("0:1",), True), (("0:2", "1:1"), False)]
)
def test_a_throttle_covers_the_replicas_that_the_topic_names(listed: tuple[str, ...], is_covered: bool) -> None:
    throttles = Throttles(BrokerConfig(load(flags=["leader.replication.throttled.rate=0"])))
    partition = leader(isr=(1, 2))
    append(partition)
    partition.log.config = LogConfig(leader_replication_throttled_replicas=listed)
    throttles.sent(partition, 100, 0)
    assert throttles.holds_back(partition, 3, 0) is is_covered
    assert not throttles.holds_back(partition, 2, 0), "it is in sync"
