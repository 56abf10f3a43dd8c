"""The state of the cluster as its nodes describe it, and the only way in which it changes: `Image.apply`.

The image is a function of the nodes. A start applies every node of the store to an empty image, a committed plan
applies the nodes it wrote, and a watch applies what others wrote. All three use the same code, so an image that has
existed for a year equals one that was just loaded.

`apply` takes the changes of one transaction and returns the events that tell a broker what to do. Events are produced
after all changes are in: a new topic is reported once, with its leaders, not as a node and then its states.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tidelog.control import nodes
from tidelog.control.events import (
    BrokerRegistered,
    BrokerUnregistered,
    ConfigChanged,
    ControllerChanged,
    Event,
    PartitionChanged,
    PartitionsAdded,
    QuotaChanged,
    TopicCreated,
    TopicDeleted,
    TopicMarked,
)
from tidelog.control.malformed_nodes import MALFORMED, MalformedNode, reason_of
from tidelog.control.model import (
    NO_CONTROLLER,
    NO_LEADER,
    NO_STATE,
    RESOURCE_TYPES,
    Broker,
    ConfigNode,
    ConfigResource,
    Partition,
    ResourceType,
    Topic,
)
from tidelog.control.topic_names import collision_key, why_invalid
from tidelog.metadata.store import NO_VERSION, Committed, Create, Delete, Node, Op, SetData


class NodeChange(NamedTuple):
    """A node as a transaction left it; `data` None: deleted. `czxid` 0: as it was."""

    path: str
    data: bytes | None
    version: int = NO_VERSION
    czxid: int = 0
    mzxid: int = 0


def changes_of_tree(tree: Iterable[tuple[str, Node]]) -> Iterable[NodeChange]:
    return (NodeChange(path, node.data, node.version, node.czxid, node.mzxid) for path, node in tree)


def changes_of_commit(ops: Sequence[Op], committed: Committed) -> list[NodeChange]:
    changes = []
    for op, path, version in zip(ops, committed.paths, committed.versions, strict=True):
        if isinstance(op, Create):
            changes.append(NodeChange(path, op.data, version, committed.zxid, committed.zxid))
        elif isinstance(op, SetData):
            changes.append(NodeChange(path, op.data, version, 0, committed.zxid))
        elif isinstance(op, Delete):
            changes.append(NodeChange(path, None))
    return changes


@dataclass(slots=True)
class Image:
    cluster_id: str | None = None
    controller_id: int = NO_CONTROLLER
    controller_epoch: int = 0
    #: version of /controller_epoch, NO_STATE before the node exists: every plan of a controller checks it
    controller_epoch_version: int = NO_STATE
    brokers: dict[int, Broker] = field(default_factory=dict)
    topics: dict[str, Topic] = field(default_factory=dict)
    topic_names: dict[bytes, str] = field(default_factory=dict)
    #: names of topics by their collision key
    collisions: dict[str, set[str]] = field(default_factory=dict)
    #: topics marked for deletion
    deleting: set[str] = field(default_factory=set)
    configs: dict[ConfigResource, ConfigNode] = field(default_factory=dict)
    quotas: dict[str, ConfigNode] = field(default_factory=dict)
    #: the last producer id given out, and the version of its node
    last_producer_id: int = -1
    producer_id_version: int = NO_STATE
    #: nodes that cannot be read, by their paths
    malformed: dict[str, MalformedNode] = field(default_factory=dict)
    #: which of PERSISTENT_PATHS exist
    persistent_paths: set[str] = field(default_factory=set)
    #: leaders that were seen to be elected, and those of them that were not in sync: what happened, not what is
    elections: int = field(default=0, compare=False)
    unclean_elections: int = field(default=0, compare=False)

    # Reading

    def topic_by_id(self, topic_id: bytes) -> Topic | None:
        name = self.topic_names.get(topic_id)
        return None if name is None else self.topics[name]

    def partition(self, topic: str, index: int) -> Partition | None:
        found = self.topics.get(topic)
        return found.partitions[index] if found is not None and 0 <= index < len(found.partitions) else None

    def config(self, resource: ConfigResource) -> dict[str, str]:
        """What was set by hand for the resource; not the defaults."""
        node = self.configs.get(resource)
        return {} if node is None else node.values

    def paths(self) -> Iterator[str]:
        """The nodes that the image rests on: what is not there any more when the store is read again has gone."""
        yield from self.persistent_paths
        yield from self.malformed
        if self.controller_id != NO_CONTROLLER:
            yield nodes.CONTROLLER
        yield from map(nodes.broker_path, self.brokers)
        yield from map(nodes.delete_topic_path, self.deleting)
        yield from (resource.path for resource in self.configs)
        yield from (f"/config/{entity}" for entity in self.quotas)
        for topic in self.topics.values():
            yield nodes.topic_path(topic.name)
            if topic.has_partitions_node:
                yield nodes.partitions_path(topic.name)
            yield from (nodes.partition_path(topic.name, index) for index in topic.bare)
            yield from (
                nodes.state_path(topic.name, p.partition_index)
                for p in topic.partitions
                if p.partition_epoch != NO_STATE
            )

    # Changing

    def apply(self, changes: Iterable[NodeChange]) -> list[Event]:
        return _Application(self).run(changes)


_PERSISTENT: Final = frozenset(nodes.PERSISTENT_PATHS)


class _Application:
    """One transaction on its way into the image: what was touched, as it was before."""

    __slots__ = (
        "_before_partitions",
        "_before_topics",
        "_controller_before",
        "_events",
        "_identified",
        "_image",
        "_stateless",
    )

    def __init__(self, image: Image) -> None:
        self._image = image
        self._events: list[Event] = []
        #: topic: the object, or None where there was none, and how many partitions it had
        self._before_topics: dict[str, tuple[Topic | None, int]] = {}
        self._before_partitions: dict[tuple[str, int], Partition] = {}
        #: topics that were there without an id, and have one now
        self._identified: set[str] = set()
        #: states that were deleted; where the topic is deleted too, nothing more is made of it
        self._stateless: list[tuple[Topic, int]] = []
        self._controller_before = (image.controller_id, image.controller_epoch)

    def run(self, changes: Iterable[NodeChange]) -> list[Event]:
        malformed = self._image.malformed
        for change in changes:
            try:
                self._take(change)
            except MALFORMED as error:
                malformed[change.path] = MalformedNode(change, reason_of(error))
            else:
                if malformed:
                    self._well_formed(change)
        return self._told()

    def _take(self, change: NodeChange) -> None:
        """Decodes before it changes anything: what is malformed leaves the image as it is, but for versions."""
        parts = change.path.split("/")
        if change.path in _PERSISTENT:  # it is there, whatever is in it
            (self._image.persistent_paths.discard if change.data is None else self._image.persistent_paths.add)(
                change.path
            )
        if parts[1] == "brokers":
            if parts[2:3] == ["topics"] and len(parts) > 3:
                self._topic(parts, change)
            elif parts[2:3] == ["ids"] and len(parts) == 4:
                self._broker(int(parts[3]), change)
        elif parts[1] == "config" and len(parts) > 3:
            self._config(parts[2], "/".join(parts[3:]), change)
        else:
            self._single(change)

    def _well_formed(self, change: NodeChange) -> None:
        malformed = self._image.malformed
        malformed.pop(change.path, None)
        if change.data is None:  # and with it all that was below
            for path in [path for path in malformed if path.startswith(f"{change.path}/")]:
                del malformed[path]

    def _single(self, change: NodeChange) -> None:
        image, path, data = self._image, change.path, change.data
        if path == nodes.CONTROLLER:
            image.controller_id = NO_CONTROLLER if data is None else nodes.decode_controller(data)
        elif path == nodes.CONTROLLER_EPOCH and data is not None:
            self._controller_epoch(data, change.version)
        elif path == nodes.CLUSTER_ID and data is not None:
            image.cluster_id = nodes.decode_cluster_id(data)
        elif path == nodes.PRODUCER_ID_BLOCK and data is not None:
            self._producer_id_block(data, change.version)
        elif path.startswith(nodes.DELETE_TOPICS + "/"):
            name = path[len(nodes.DELETE_TOPICS) + 1 :]
            if data is None:
                image.deleting.discard(name)
            else:
                image.deleting.add(name)
                self._events.append(TopicMarked(name))

    def _controller_epoch(self, data: bytes, version: int) -> None:
        image = self._image
        image.controller_epoch_version = version
        try:
            image.controller_epoch = int(data)
        except ValueError:
            # Every election writes the node once, so no epoch was higher than this: the next one is, and is written.
            image.controller_epoch = max(image.controller_epoch, version + 1)
            raise

    def _producer_id_block(self, data: bytes, version: int) -> None:
        image = self._image
        image.producer_id_version = version
        try:
            image.last_producer_id = nodes.decode_producer_id_block_end(data)
        except MALFORMED:
            # Every block was written once, so none was given out that ends later: the next one is beyond.
            image.last_producer_id = max(image.last_producer_id, nodes.PRODUCER_ID_BLOCK_SIZE * version - 1)
            raise

    # Topics

    def _topic(self, parts: list[str], change: NodeChange) -> None:
        name = parts[3]
        if len(parts) == 4:
            if change.data is None:
                self._topic_gone(name)
            else:
                self._topic_node(name, self._decoded_topic(name, change), change.version)
            return
        topic = self._image.topics.get(name)
        if topic is None:
            if change.data is not None and nodes.topic_path(name) in self._image.malformed:
                raise ValueError("its topic cannot be read")
            return
        if parts[4] != "partitions":
            return
        if len(parts) == 5:
            topic.has_partitions_node = change.data is not None
        elif len(parts) == 6:
            (topic.bare.discard if change.data is None else topic.bare.add)(int(parts[5]))
        elif parts[6] == "state":
            self._state(topic, int(parts[5]), change)

    def _decoded_topic(self, name: str, change: NodeChange) -> nodes.TopicNode:
        assert change.data is not None
        known = self._image.topics.get(name)
        if known is None and (invalid := why_invalid(name)) is not None:
            raise ValueError(invalid)
        try:
            return nodes.decode_topic(change.data)
        except MALFORMED:
            if known is not None:
                known.version = change.version  # what is known is written over it when the topic changes
            raise

    def _topic_node(self, name: str, node: nodes.TopicNode, version: int) -> None:
        image = self._image
        topic = image.topics.get(name)
        if topic is not None and any(topic.topic_id) and node.topic_id not in (None, topic.topic_id):
            self._topic_gone(name)  # deleted and created again since the image was last brought up to date
            topic = None
        if topic is None:
            self._before_topics.setdefault(name, (None, 0))
            topic = Topic(name, bytes(16), version, [])
            image.topics[name] = topic
            key = collision_key(name)
            if key is not None:
                image.collisions.setdefault(key, set()).add(name)
        else:
            self._before_topics.setdefault(name, (topic, len(topic.partitions)))
        topic.version = version
        if node.topic_id is not None and node.topic_id != topic.topic_id:  # an old Kafka's topics get theirs later
            topic.topic_id = node.topic_id
            image.topic_names[node.topic_id] = name
            self._identified.add(name)
        partitions = topic.partitions
        for index, replicas in enumerate(node.replicas):
            adding, removing = node.adding.get(index, ()), node.removing.get(index, ())
            if index == len(partitions):
                partitions.append(Partition(name, index, replicas, adding, removing))
                continue
            before = partitions[index]
            if (before.replicas, before.adding, before.removing) != (replicas, adding, removing):
                self._before_partitions.setdefault((name, index), before)
                partitions[index] = before._replace(replicas=replicas, adding=adding, removing=removing)

    def _topic_gone(self, name: str) -> None:
        image = self._image
        topic = image.topics.pop(name, None)
        if topic is None:
            return
        self._before_topics.setdefault(name, (topic, len(topic.partitions)))
        image.topic_names.pop(topic.topic_id, None)
        key = collision_key(name)
        if key is not None:
            image.collisions[key].discard(name)
            if not image.collisions[key]:
                del image.collisions[key]

    def _state(self, topic: Topic, index: int, change: NodeChange) -> None:
        if not 0 <= index < len(topic.partitions):
            return
        before = topic.partitions[index]
        if change.data is None:
            topic.bare.add(index)
            self._stateless.append((topic, index))
            return
        self._before_partitions.setdefault((topic.name, index), before)
        topic.bare.discard(index)
        try:
            leader, leader_epoch, isr, controller_epoch, recovering = nodes.decode_state(change.data)
            if not isr or not set(isr) <= set(before.replicas) or leader not in (NO_LEADER, *isr):
                raise ValueError(f"leader {leader} and ISR {list(isr)} do not go with replicas {list(before.replicas)}")
        except MALFORMED:
            if before.partition_epoch != NO_STATE:
                # What is known is written over it when the partition changes.
                topic.partitions[index] = before._replace(partition_epoch=change.version)
            raise
        topic.partitions[index] = Partition(
            topic.name,
            index,
            before.replicas,
            before.adding,
            before.removing,
            leader,
            isr,
            leader_epoch,
            change.version,
            controller_epoch,
            recovering,
            change.mzxid,
        )

    # Brokers and configurations

    def _broker(self, broker_id: int, change: NodeChange) -> None:
        brokers = self._image.brokers
        before = brokers.get(broker_id)
        if change.data is None:
            if before is not None:
                del brokers[broker_id]
                self._events.append(BrokerUnregistered(before))
            return
        endpoints, rack = nodes.decode_broker(change.data)
        epoch = change.czxid or (before.epoch if before else 0)
        lost, cordoned = nodes.decode_lost(change.data), nodes.decode_cordoned(change.data)
        damaged = nodes.decode_damaged(change.data)
        after = brokers[broker_id] = Broker(broker_id, epoch, endpoints, rack, change.version, lost, cordoned, damaged)
        if after != before:
            self._events.append(BrokerRegistered(after, before))

    def _config(self, entity_type: str, entity: str, change: NodeChange) -> None:
        image = self._image
        after: dict[str, str] = {}
        unreadable: Exception | None = None
        try:
            after = {} if change.data is None else nodes.read_config(change.data)
        except MALFORMED as error:
            unreadable = error  # it sets nothing; see `nodes.decode_config`
        kind = RESOURCE_TYPES.get(entity_type)
        if kind is not None:
            name = "" if entity == nodes.DEFAULT_ENTITY else nodes.desanitize(entity)
            resource = ConfigResource(kind, name)
            before = image.config(resource)
            if change.data is None:
                image.configs.pop(resource, None)
            else:
                image.configs[resource] = ConfigNode(after, change.version)
            # To a broker the same value again means: read the file that it names once more.
            if after != before or kind is ResourceType.BROKER:
                self._events.append(ConfigChanged(resource, before, after))
        elif entity_type != "changes":
            quota = image.quotas.pop(f"{entity_type}/{entity}", ConfigNode({}, 0))
            if change.data is not None:
                image.quotas[f"{entity_type}/{entity}"] = ConfigNode(after, change.version)
            if after != quota.values:
                self._events.append(QuotaChanged(f"{entity_type}/{entity}", quota.values, after))
        if unreadable is not None:
            raise unreadable

    # Telling

    def _told(self) -> list[Event]:
        """Controller and brokers first, topics last: whoever turns an event into work finds the rest in place."""
        image, told = self._image, self._events
        self._drop_states()
        controller = (image.controller_id, image.controller_epoch)
        if controller != self._controller_before:
            told.insert(0, ControllerChanged(*controller))
        for name, (before, count) in self._before_topics.items():
            topic = image.topics.get(name)
            if before is not None and topic is not before:
                told.append(TopicDeleted(before))
            if topic is not None and (topic is not before or name in self._identified):
                told.append(TopicCreated(topic))
            elif topic is not None and len(topic.partitions) > count:
                told.append(PartitionsAdded(topic, topic.partitions[count:]))
        for (name, index), partition in self._before_partitions.items():
            topic = image.topics.get(name)
            before, count = self._before_topics.get(name, (topic, index + 1))
            # A partition of a new topic, or a new partition, has been told of already.
            if topic is not None and topic is before and index < count and topic.partitions[index] != partition:
                told.append(PartitionChanged(topic, partition, topic.partitions[index]))
                self._count_election(partition, topic.partitions[index])
        return told

    def _count_election(self, before: Partition, after: Partition) -> None:
        if after.leader not in (before.leader, NO_LEADER):
            self._image.elections += 1
            # One that was not in sync before may have come into sync by the same change, which completed a move.
            self._image.unclean_elections += after.recovering and after.leader not in before.isr

    def _drop_states(self) -> None:
        for topic, index in self._stateless:
            if self._image.topics.get(topic.name) is topic:  # else it went with its states, and is told of as it was
                before = topic.partitions[index]
                self._before_partitions.setdefault((topic.name, index), before)
                topic.partitions[index] = Partition(topic.name, index, before.replicas, before.adding, before.removing)
