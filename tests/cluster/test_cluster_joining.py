"""How brokers find together on one store."""

from __future__ import annotations

from broker_cluster import BrokerCluster
from tidelog.wire import messages


def test_three_brokers_that_start_on_an_empty_store_all_serve_one_cluster() -> None:
    cluster = BrokerCluster(3)
    assert {node.broker.cluster.cluster_id for node in cluster.nodes.values()} == {cluster.stored.cluster_id}
    assert len([node for node in cluster.nodes.values() if node.is_controller]) == 1
    cluster.agree()
    for broker_id in cluster.nodes:
        told = cluster.ask(broker_id, messages.MetadataRequest(topics=[]))
        assert sorted(node.node_id for node in told.brokers) == [0, 1, 2]
        assert told.controller_id == cluster.controller.id
    cluster.check()
