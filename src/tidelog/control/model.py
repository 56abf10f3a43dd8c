"""The cluster's nouns as values: brokers, topics, partitions, configurations.

All but `Topic` never change: a change puts a new value in their place. A topic is an object that the image owns, and
its list of partitions is what changes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple

from tidelog.control import nodes
from tidelog.control.nodes import Endpoint, LostLogs
from tidelog.control.topic_names import INTERNAL_TOPICS

NO_LEADER: Final = -1
NO_CONTROLLER: Final = -1
#: the partition epoch of a partition that has no state yet: its first leader is still to be chosen
NO_STATE: Final = -1


class ResourceType(IntEnum):
    """What a configuration belongs to, by the protocol's numbers."""

    TOPIC = 2
    BROKER = 4
    CLIENT_METRICS = 16
    GROUP = 32


ENTITY_TYPES: Final = {
    ResourceType.TOPIC: "topics",
    ResourceType.BROKER: "brokers",
    ResourceType.CLIENT_METRICS: "client-metrics",
    ResourceType.GROUP: "groups",
}
RESOURCE_TYPES: Final = {name: kind for kind, name in ENTITY_TYPES.items()}


class ConfigResource(NamedTuple):
    """`name` is a topic, a broker id in digits, a group; empty for the default of all brokers."""

    type: ResourceType
    name: str

    @property
    def path(self) -> str:
        name = (
            nodes.sanitize(self.name) if self.type in (ResourceType.GROUP, ResourceType.CLIENT_METRICS) else self.name
        )
        return nodes.config_path(ENTITY_TYPES[self.type], name or nodes.DEFAULT_ENTITY)


class ConfigNode(NamedTuple):
    values: dict[str, str]
    version: int


class Broker(NamedTuple):
    broker_id: int
    #: czxid of the registration: a broker that comes back has a higher one
    epoch: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None
    version: int
    #: when it registered
    lost: LostLogs = LostLogs.NONE
    #: by its own settings it takes no new partitions
    cordoned: bool = False
    #: the ids of topics and the numbers of partitions whose logs had lost their end when it registered
    damaged: frozenset[tuple[bytes, int]] = frozenset()


class Partition(NamedTuple):
    topic: str
    partition_index: int
    replicas: tuple[int, ...]
    #: while the replicas are being changed: those that are to come, and those that are to go; both are in `replicas`
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    #: always in the ISR, or NO_LEADER
    leader: int = NO_LEADER
    #: never empty once there is a state, and part of `replicas`
    isr: tuple[int, ...] = ()
    leader_epoch: int = -1
    #: the version of the state node
    partition_epoch: int = NO_STATE
    controller_epoch: int = 0
    #: the leader was elected from outside the ISR and has not yet said that it recovered
    recovering: bool = False
    #: The transaction that wrote the state. A member of the ISR that registered after it has restarted since, and may
    #: have lost what it had not synced.
    state_zxid: int = 0

    @property
    def is_reassigning(self) -> bool:
        return bool(self.adding or self.removing)

    @property
    def target_factor(self) -> int:
        """How many replicas it has, or will have once those that are to go are gone."""
        return len(self.replicas) - len(self.removing)


@dataclass(slots=True)
class Topic:
    name: str
    topic_id: bytes
    version: int
    partitions: list[Partition]
    #: whether `…/partitions` exists, and those of its children that have no state node yet
    has_partitions_node: bool = False
    bare: set[int] = field(default_factory=set)

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS
