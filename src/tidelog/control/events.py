"""What changed in the cluster. The broker acts on it: creates and deletes logs, changes leaders and configurations.

Events come in an order in which the controller and the brokers are told of before the topics.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidelog.control.model import Broker, ConfigResource, Partition, Topic


@dataclass(slots=True, frozen=True)
class TopicCreated:
    topic: Topic


@dataclass(slots=True, frozen=True)
class TopicDeleted:
    """The topic as it was."""

    topic: Topic


@dataclass(slots=True, frozen=True)
class PartitionsAdded:
    topic: Topic
    partitions: Sequence[Partition]


@dataclass(slots=True, frozen=True)
class PartitionChanged:
    """Another leader, ISR, replica set or epoch."""

    topic: Topic
    before: Partition
    after: Partition


@dataclass(slots=True, frozen=True)
class BrokerRegistered:
    """`before` is its earlier registration where that was not seen to go: the broker restarted meanwhile, or it only
    changed its endpoints and has the same epoch."""

    broker: Broker
    before: Broker | None


@dataclass(slots=True, frozen=True)
class BrokerUnregistered:
    broker: Broker


@dataclass(slots=True, frozen=True)
class ConfigChanged:
    resource: ConfigResource
    before: dict[str, str]
    after: dict[str, str]


@dataclass(slots=True, frozen=True)
class QuotaChanged:
    """`entity` is the path below /config: "clients/c", "users/u/clients/<default>", "ips/10.0.0.1"."""

    entity: str
    before: dict[str, str]
    after: dict[str, str]


@dataclass(slots=True, frozen=True)
class ControllerChanged:
    """`controller_id` is NO_CONTROLLER while none is elected."""

    controller_id: int
    controller_epoch: int


@dataclass(slots=True, frozen=True)
class TopicMarked:
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
