"""What a handler may reach of the broker: the doors of the rooms, and nothing else."""

from __future__ import annotations

from typing import NamedTuple

from tidelog.config.broker_config import BrokerConfig
from tidelog.coordinator.delays import Delays
from tidelog.coordinator.groups import GroupCoordination
from tidelog.coordinator.markers import Markers
from tidelog.coordinator.producer_ids import ProducerIds
from tidelog.coordinator.transactions import TransactionCoordination
from tidelog.node.cluster_view import ClusterView
from tidelog.node.controller_door import ControllerDoor
from tidelog.node.data_plane import DataPlane
from tidelog.node.hearing import Hearing
from tidelog.node.log_level import LogLevel
from tidelog.node.topic_creation import TopicCreator
from tidelog.timer.host import Host
from tidelog.timer.slices import Slices
from tidelog.upkeep.moving import Moves


class Doors(NamedTuple):
    config: BrokerConfig
    host: Host
    cluster: ClusterView
    controller: ControllerDoor
    hearing: Hearing
    data: DataPlane
    topics: TopicCreator
    groups: GroupCoordination
    transactions: TransactionCoordination
    markers: Markers
    delays: Delays
    producer_ids: ProducerIds
    moves: Moves
    log_level: LogLevel
    #: long requests; and compressed records that unpack to some megabytes, or to far more: of each only one batch at a
    #: time is in memory, and those that unpack to little do not wait behind those that unpack to much
    slices: Slices
    unpacking: Slices
    unpacking_much: Slices
