"""Collects the operations of a plan while it is made.

The first operation checks /controller_epoch, so that a replaced controller changes nothing. A topic's node holds the
replicas of all its partitions: it is written once, however many of them change.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

from tidelog.control import nodes
from tidelog.control.image import Image
from tidelog.control.model import NO_LEADER, NO_STATE, ConfigResource, Partition, Topic
from tidelog.control.plan import AROUND_OP_BYTES, bytes_of
from tidelog.metadata.store import Check, Create, Delete, Op, SetData

#: about what a broker's id takes in a topic's node
REPLICA_BYTES: Final = 6


class Draft:
    def __init__(self, image: Image) -> None:
        self._image = image
        self._ops: list[Op] = []
        self._partitions: dict[str, dict[int, Partition]] = {}
        #: topics whose own nodes are to be written
        self._reassigned: set[str] = set()
        #: about what all of it takes in a transaction
        self.bytes = 0

    @property
    def size(self) -> int:
        """How many operations there are so far, roughly."""
        return len(self._ops) + sum(map(len, self._partitions.values()))

    def has_room_for(self, partition: Partition, max_ops: int, max_bytes: int) -> bool:
        """Whether this partition can be changed in the same transaction; there is always room for the first."""
        size = self.size
        return not size or (size < max_ops and self.bytes + self._bytes_of(partition) <= max_bytes)

    def _bytes_of(self, partition: Partition) -> int:
        size = state_bytes(partition)
        topic = self._image.topics[partition.topic]
        before = topic.partitions[partition.partition_index]
        if partition.topic not in self._reassigned and _assignment(partition) != _assignment(before):
            size += topic_bytes(partition.topic, topic.partitions)
        return size

    def finish(self) -> list[Op]:
        """Nothing to do gives no operations at all."""
        for name, changed in self._partitions.items():
            self._write_partitions(self._image.topics[name], changed)
        self._partitions = {}
        if not self._ops:
            return []
        return [Check(nodes.CONTROLLER_EPOCH, self._image.controller_epoch_version), *self._ops]

    def put(self, op: Op) -> None:
        self._ops.append(op)
        self.bytes += bytes_of(op)

    def put_config(self, resource: ConfigResource, values: dict[str, str]) -> None:
        before = self._image.configs.get(resource)
        data = nodes.encode_config(values)
        if before is None:
            self.put(Create(resource.path, data))
        else:
            self.put(SetData(resource.path, data, before.version))

    # Partitions

    def change(self, partition: Partition) -> None:
        """The partition is to be like this; its replicas and state are written as far as they differ."""
        self.bytes += self._bytes_of(partition)
        before = self._image.topics[partition.topic].partitions[partition.partition_index]
        if _assignment(partition) != _assignment(before):
            self._reassigned.add(partition.topic)
        self._partitions.setdefault(partition.topic, {})[partition.partition_index] = partition

    def changed(self, partition: Partition) -> Partition:
        """The partition as this draft has it so far."""
        return self._partitions.get(partition.topic, {}).get(partition.partition_index, partition)

    def _write_partitions(self, topic: Topic, changed: dict[int, Partition]) -> None:
        """States first: where a plan is cut in two, no state may name replicas that the topic does not have."""
        before = topic.partitions
        fresh = [p for p in changed.values() if before[p.partition_index].partition_epoch == NO_STATE]
        self.create_states(topic.name, fresh, topic.has_partitions_node, topic.bare)
        for index, partition in sorted(changed.items()):
            assert partition.leader_epoch >= before[index].leader_epoch, f"{partition} after {before[index]}"
            assert partition.partition_epoch >= before[index].partition_epoch, f"{partition} after {before[index]}"
            if before[index].partition_epoch != NO_STATE:
                data = self._encode_state(partition)
                self.put(SetData(nodes.state_path(topic.name, index), data, before[index].partition_epoch))
        if any(_assignment(p) != _assignment(before[index]) for index, p in changed.items()):
            after = [changed.get(p.partition_index, p) for p in before]
            self.put(SetData(nodes.topic_path(topic.name), encode_topic(topic.topic_id, after), topic.version))

    def create_states(
        self, topic: str, partitions: Sequence[Partition], has_partitions_node: bool, bare: set[int]
    ) -> None:
        """States for partitions that have none; `bare` are those whose own node exists already."""
        if partitions and not has_partitions_node:
            self.put(Create(nodes.partitions_path(topic)))
        for partition in partitions:
            if partition.partition_index not in bare:
                self.put(Create(nodes.partition_path(topic, partition.partition_index)))
            self.put(Create(nodes.state_path(topic, partition.partition_index), self._encode_state(partition)))

    def _encode_state(self, p: Partition) -> bytes:
        assert p.leader in p.isr or p.leader == NO_LEADER, f"{p}: the leader is not in sync"
        assert set(p.isr) <= set(p.replicas), f"{p}: the ISR has others than the replicas"
        assert p.controller_epoch <= self._image.controller_epoch, f"{p} was written by a newer controller"
        return nodes.encode_state(
            nodes.StateNode(p.leader, p.leader_epoch, p.isr, self._image.controller_epoch, p.recovering)
        )

    # Deletion

    def delete_topic(self, topic: Topic, limit: int = sys.maxsize) -> bool:
        """Removes the topic's nodes, children first; False if `limit` operations did not suffice for all of them."""
        for partition in topic.partitions:
            if self.size >= limit:
                return False
            has_state = partition.partition_epoch != NO_STATE
            if has_state:
                self.put(Delete(nodes.state_path(topic.name, partition.partition_index)))
            if has_state or partition.partition_index in topic.bare:
                self.put(Delete(nodes.partition_path(topic.name, partition.partition_index)))
        if topic.has_partitions_node:
            self.put(Delete(nodes.partitions_path(topic.name)))
        self.put(Delete(nodes.topic_path(topic.name), topic.version))
        return True


def encode_topic(topic_id: bytes, partitions: Sequence[Partition]) -> bytes:
    return nodes.encode_topic(
        nodes.TopicNode(
            topic_id if any(topic_id) else None,
            [p.replicas for p in partitions],
            {p.partition_index: p.adding for p in partitions if p.adding},
            {p.partition_index: p.removing for p in partitions if p.removing},
        )
    )


def state_bytes(partition: Partition) -> int:
    """About what the nodes of one partition take in a transaction."""
    return 2 * (AROUND_OP_BYTES + len(nodes.state_path(partition.topic, 0)) + 5) + 100 + 6 * len(partition.isr)


def topic_bytes(name: str, partitions: Sequence[Partition]) -> int:
    """About what a topic's own node takes: the replicas of each partition, by its number."""
    replicas = sum(len(p.replicas) + len(p.adding) + len(p.removing) for p in partitions)
    return AROUND_OP_BYTES + len(nodes.topic_path(name)) + 150 + 12 * len(partitions) + REPLICA_BYTES * replicas


def _assignment(partition: Partition) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    return partition.replicas, partition.adding, partition.removing
