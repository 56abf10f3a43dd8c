"""Topics of thousands of partitions on a real ZooKeeper, which takes a megabyte at once."""

from __future__ import annotations

import pytest

from tidelog.client import Client
from tidelog.testing.cluster import RunningCluster

pytestmark = [pytest.mark.zookeeper, pytest.mark.long]


def test_a_topic_of_ten_thousand_partitions_is_created_led_and_deleted() -> None:
    with RunningCluster(3) as cluster, Client(cluster.bootstrap, timeout_s=300) as client:
        assert client.admin.create_topic("many", 10_000, 1).partitions == 10_000
        partitions = client.describe(["many"]).topics["many"].partitions
        assert len(partitions) == 10_000 and {p.leader for p in partitions.values()} == {1, 2, 3}
        client.produce("many", [b"x"], partition=9_999)
        client.admin.delete_topics(["many"])
