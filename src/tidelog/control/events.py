"""What changed in the cluster. The broker acts on it: creates and deletes logs, changes leaders and configurations.

Events come in an order in which the controller and the brokers are told of before the topics.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tidelog.control.model import Broker, ConfigResource, Partition, Topic


class TopicCreated(NamedTuple):
    """Told once more of a topic that somebody made without an id, when it has got one."""

    topic: Topic


class TopicDeleted(NamedTuple):
    """The topic as it was."""

    topic: Topic


class PartitionsAdded(NamedTuple):
    topic: Topic
    partitions: Sequence[Partition]


class PartitionChanged(NamedTuple):
    """Another leader, ISR, replica set or epoch."""

    topic: Topic
    before: Partition
    after: Partition


class BrokerRegistered(NamedTuple):
    """`before` is its earlier registration where that was not seen to go: the broker restarted meanwhile, or it only
    changed its endpoints and has the same epoch."""

    broker: Broker
    before: Broker | None


class BrokerUnregistered(NamedTuple):
    broker: Broker


class ConfigChanged(NamedTuple):
    resource: ConfigResource
    before: dict[str, str]
    after: dict[str, str]


class QuotaChanged(NamedTuple):
    """`entity` is the path below /config: "clients/c", "users/u/clients/<default>", "ips/10.0.0.1"."""

    entity: str
    before: dict[str, str]
    after: dict[str, str]


class ControllerChanged(NamedTuple):
    """`controller_id` is NO_CONTROLLER while none is elected."""

    controller_id: int
    controller_epoch: int


class TopicMarked(NamedTuple):
    """/admin/delete_topics names the topic: the controller is to delete it."""

    name: str


Event = (
    TopicCreated
    | TopicDeleted
    | PartitionsAdded
    | PartitionChanged
    | BrokerRegistered
    | BrokerUnregistered
    | ConfigChanged
    | QuotaChanged
    | ControllerChanged
    | TopicMarked
)
