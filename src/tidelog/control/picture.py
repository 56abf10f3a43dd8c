"""An image as the nodes that it rests on: what the controller tells a broker that knows nothing yet.

The nodes are written anew from what the image knows of them. What it does not know (the time of a registration, who
took the last block of producer ids) is not in them: they are for `Image.apply`, not for the store.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tidelog.control import nodes
from tidelog.control.draft import encode_topic
from tidelog.control.image import Image, NodeChange
from tidelog.control.model import NO_CONTROLLER, NO_STATE, ConfigNode, Partition, Topic

NO_BROKER = -1


def changes_of_image(image: Image) -> Iterator[NodeChange]:
    """Applied to an empty image these make one that is equal; parents come before their children."""
    for path in nodes.PERSISTENT_PATHS:
        if path in image.persistent_paths and path != nodes.PRODUCER_ID_BLOCK:
            yield NodeChange(path, b"", 0)
    if image.producer_id_version != NO_STATE:
        last = image.last_producer_id
        data = b"" if last < 0 else nodes.encode_producer_id_block(NO_BROKER, last, last)
        yield NodeChange(nodes.PRODUCER_ID_BLOCK, data, image.producer_id_version)
    if image.cluster_id is not None:
        yield NodeChange(nodes.CLUSTER_ID, nodes.encode_cluster_id(image.cluster_id), 0)
    if image.controller_epoch_version != NO_STATE:
        yield NodeChange(nodes.CONTROLLER_EPOCH, b"%d" % image.controller_epoch, image.controller_epoch_version)
    if image.controller_id != NO_CONTROLLER:
        yield NodeChange(nodes.CONTROLLER, nodes.encode_controller(image.controller_id, 0), 0)
    for broker in image.brokers.values():
        data = nodes.encode_broker(
            broker.endpoints, broker.rack, 0, {}, (), broker.lost, broker.cordoned, broker.damaged
        )
        yield NodeChange(nodes.broker_path(broker.broker_id), data, broker.version, broker.epoch)
    for resource, config in image.configs.items():
        yield _config(resource.path, config)
    for entity, config in image.quotas.items():
        yield _config(f"/config/{entity}", config)
    for topic in image.topics.values():
        yield from _topic(topic)
    for name in sorted(image.deleting):
        yield NodeChange(nodes.delete_topic_path(name), b"", 0)
    # Last: what the image knows of them otherwise comes first. The path of a topic is before those below it.
    for path in sorted(image.malformed):
        yield image.malformed[path].change


def _config(path: str, config: ConfigNode) -> NodeChange:
    return NodeChange(path, nodes.encode_config(config.values), config.version)


def _topic(topic: Topic) -> Iterator[NodeChange]:
    yield NodeChange(nodes.topic_path(topic.name), encode_topic(topic.topic_id, topic.partitions), topic.version)
    if topic.has_partitions_node:
        yield NodeChange(nodes.partitions_path(topic.name), b"", 0)
    for index in sorted(topic.bare):
        yield NodeChange(nodes.partition_path(topic.name, index), b"", 0)
    for partition in topic.partitions:
        if partition.partition_epoch != NO_STATE:
            yield _state(partition)


def _state(p: Partition) -> NodeChange:
    data = nodes.encode_state(nodes.StateNode(p.leader, p.leader_epoch, p.isr, p.controller_epoch, p.recovering))
    return NodeChange(nodes.state_path(p.topic, p.partition_index), data, p.partition_epoch, 0, p.state_zxid)


def in_pieces(changes: Iterable[NodeChange], most_bytes: int) -> list[Sequence[NodeChange]]:
    """The changes in lists of about this size; at least one list."""
    pieces: list[list[NodeChange]] = [[]]
    size = 0
    for change in changes:
        if size >= most_bytes:
            pieces.append([])
            size = 0
        pieces[-1].append(change)
        size += size_of(change)
    return list(pieces)


def size_of(change: NodeChange) -> int:
    """About what it takes in a message."""
    return len(change.path) + len(change.data or b"") + 24
