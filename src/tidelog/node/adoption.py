"""Taking over a data directory that Apache Kafka wrote: its cluster ID, its topics, their configurations.

A directory without a metadata store of Tidelog is either new or Kafka's. Its contents are added to the store in one
transaction, before the broker starts: the cluster ID from `meta.properties`, a topic for each partition directory with
the ID in its `partition.metadata`, this broker as the leader of each partition in the next leader epoch, and the
configurations of the topics from Kafka's own metadata log (`__cluster_metadata-0`), if it exists.

A store that has lost its end (`store.losses`) may not know the newest topics any more, although their records still
exist: they are restored in the same way.

A directory that has a complete store belongs to Tidelog, and the store says what belongs in it (`placement_of`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from tidelog.control import nodes
from tidelog.control.controller import draw_id
from tidelog.log.checkpoints import META_PROPERTIES, MalformedCheckpoint, MetaProperties
from tidelog.log.directories.directory_set import MetadataVersion, Placement
from tidelog.log.disk import read_file
from tidelog.metadata.store import Create, Node, Op
from tidelog.wire.batch import InvalidBatch
from tidelog.wire.codec import stored_codec
from tidelog.wire.malformed import WireError
from tidelog.wire.partitions import TopicPartition
from tidelog.wire.records import iter_records
from tidelog.wire.varint import read_uvarint

if TYPE_CHECKING:
    from tidelog.control.image import Image
    from tidelog.log.disk import Disk
    from tidelog.log.log import Log

KRAFT_LOG: Final = "__cluster_metadata-0"
CONFIG_RECORD: Final = 4
TOPIC_RESOURCE: Final = 2
NO_CONTROLLER_EPOCH: Final = 0
#: for a topic whose own configuration is lost: it must not cost records that were to be kept
KEEP_ALL: Final = {"retention.ms": "-1", "retention.bytes": "-1"}
_KEPT: Final = "and their configuration is lost: nothing is deleted from them until you set retention.ms"


def written_by(disk: Disk, paths: Iterable[str]) -> MetaProperties | None:
    """Whose directories these are, as the first of them says that has been used before."""
    for path in paths:
        file = f"{path}/{META_PROPERTIES}"
        if disk.exists(file):
            try:
                return MetaProperties.parse(read_file(disk, file), file)
            except (MalformedCheckpoint, OSError):
                # Opening the directory says so.
                continue
    return None


def known_cluster_id(tree: Iterable[tuple[str, Node]]) -> str | None:
    for path, node in tree:
        if path == nodes.CLUSTER_ID:
            return nodes.decode_cluster_id(node.data)
    return None


def placement_of(tree: Iterable[tuple[str, Node]], broker_id: int, whole: bool = True) -> Placement:
    """What a store says of the partitions of a broker."""
    topic_ids: dict[TopicPartition, bytes | None] = {}
    known = set()
    version = 0
    for path, node in tree:
        if path == nodes.CONTROLLER_EPOCH:
            version = int(node.data)
        elif path.startswith(f"{nodes.TOPICS}/") and path.count("/") == 3:
            topic = nodes.decode_topic(node.data)
            if topic.topic_id is not None:
                known.add(topic.topic_id)
            for index, replicas in enumerate(topic.replicas):
                if broker_id in replicas:
                    topic_ids[TopicPartition(path.rpartition("/")[2], index)] = topic.topic_id
    return Placement(topic_ids, frozenset(known), MetadataVersion(version), whole)


def placement_in(image: Image, broker_id: int) -> Placement:
    """What an image says of the partitions of a broker."""
    topic_ids: dict[TopicPartition, bytes | None] = {
        TopicPartition(topic.name, partition.partition_index): topic.topic_id if any(topic.topic_id) else None
        for topic in image.topics.values()
        for partition in topic.partitions
        if broker_id in partition.replicas
    }
    # A topic whose node cannot be read is unknown, and yet there.
    is_whole = not any(path.startswith(f"{nodes.TOPICS}/") for path in image.malformed)
    return Placement(topic_ids, frozenset(image.topic_names), MetadataVersion(image.controller_epoch), is_whole)


def is_behind(image: Image, logs: Mapping[TopicPartition, Log]) -> bool:
    """Whether a log knows of a later leader epoch than the image: its store was restored from an old copy."""
    for (topic, index), log in logs.items():
        known = image.partition(topic, index)
        if known is None or image.topics[topic].topic_id != log.topic_id:
            continue
        if log.leader_epochs.latest > known.leader_epoch:
            return True
    return False


def topic_configs(tree: Iterable[tuple[str, Node]]) -> dict[str, dict[str, str]]:
    """The configurations of topics that have any of their own."""
    return {
        path.rpartition("/")[2]: nodes.decode_config(node.data)
        for path, node in tree
        if path.rpartition("/")[0] == nodes.TOPIC_CONFIGS
    }


def new_cluster_id(new_id: Callable[[], bytes]) -> str:
    return nodes.to_base64(draw_id(new_id))


class Adoption:
    """`defaults_of` gives the overrides of a topic that lives without any word of its own, as internal topics do.

    `partitions_of` says how many partitions a topic has, given its logs and how many its directories speak of, and
    `unopened` are those whose directories are there, but cannot be opened.
    """

    def __init__(
        self,
        broker_id: int,
        new_id: Callable[[], bytes],
        disk: Disk,
        defaults_of: Callable[[str], Mapping[str, str]],
        partitions_of: Callable[[str, Mapping[int, Log], int], int],
        unopened: Collection[TopicPartition],
    ) -> None:
        self._broker_id = broker_id
        self._new_id = new_id
        self._disk = disk
        self._defaults_of = defaults_of
        self._partitions_of = partitions_of
        self._unopened = unopened
        #: what somebody should hear of
        self.notices: list[str] = []

    def all_of(self, cluster_id: str, logs: Collection[Log]) -> list[Op]:
        """The transaction that makes an empty store know everything that was found."""
        ops: list[Op] = [Create(path) for path in nodes.PERSISTENT_PATHS]
        ops.append(Create(nodes.CLUSTER_ID, nodes.encode_cluster_id(cluster_id)))
        by_topic = _by_topic(logs)
        directories = dict.fromkeys(log.directory.path for log in logs)
        configs = kafka_topic_configs(self._disk, directories)
        if by_topic and not any(self._disk.exists(f"{path}/{KRAFT_LOG}") for path in directories):
            self.notices.append(
                f"no metadata was found for {len(by_topic)} topics in {', '.join(directories)}: they are restored "
                f"from their files, {_KEPT}. To get their configuration back, restore tidelog-metadata.journal and "
                "tidelog-metadata.snapshot from a backup"
            )
            configs = dict.fromkeys(by_topic, KEEP_ALL)
        for topic, found in by_topic.items():
            ops += self._take_up(topic, found, configs.get(topic))
        return ops

    def missing_from(self, tree: Iterable[tuple[str, Node]], logs: Collection[Log]) -> list[Op]:
        """The transaction that gives topics back to a store that has lost them; none where it knows all."""
        known = {path for path, _ in tree}
        ops: list[Op] = []
        for topic, found in _by_topic(logs).items():
            if nodes.topic_path(topic) not in known:
                ops += self._take_up(topic, found, KEEP_ALL)
                self.notices.append(f"topic {topic}, unknown to the metadata, is restored from its files, {_KEPT}")
        return ops

    def _take_up(self, topic: str, found: dict[int, Log], config: Mapping[str, str] | None) -> Iterator[Op]:
        indexes = [*found, *(key.partition for key in self._unopened if key.topic == topic)]
        count = self._partitions_of(topic, found, max(indexes) + 1)
        yield from _topic(topic, found, count, self._broker_id, self._new_id)
        config = self._defaults_of(topic) or config
        if config:
            yield Create(nodes.config_path("topics", topic), nodes.encode_config(dict(config)))


def _by_topic(logs: Iterable[Log]) -> dict[str, dict[int, Log]]:
    by_topic: dict[str, dict[int, Log]] = {}
    for log in logs:
        by_topic.setdefault(log.topic, {})[log.partition] = log
    return by_topic


def _topic(
    topic: str, found: Mapping[int, Log], count: int, broker_id: int, new_id: Callable[[], bytes]
) -> Iterator[Op]:
    topic_id = next((log.topic_id for log in found.values() if log.topic_id), None) or draw_id(new_id)
    yield Create(nodes.topic_path(topic), nodes.encode_topic(nodes.TopicNode(topic_id, [(broker_id,)] * count, {}, {})))
    yield Create(nodes.partitions_path(topic))
    for index in range(count):
        log = found.get(index)
        # Epochs never go back: the first one of ours follows the last one that the log knows.
        epoch = 0 if log is None else max(0, log.leader_epochs.latest + 1)
        state = nodes.StateNode(broker_id, epoch, (broker_id,), NO_CONTROLLER_EPOCH, False)
        yield Create(nodes.partition_path(topic, index))
        yield Create(nodes.state_path(topic, index), nodes.encode_state(state))


def kafka_topic_configs(disk: Disk, directories: Iterable[str]) -> dict[str, dict[str, str]]:
    """Topic -> its overrides, as Kafka's metadata log tells them; what cannot be read is left out."""
    configs: dict[str, dict[str, str]] = {}
    for directory in directories:
        path = f"{directory}/{KRAFT_LOG}"
        if not disk.exists(path):
            continue
        # Snapshots hold what came before the log that follows them; both are named by an offset.
        names = sorted(entry.name for entry in disk.list(path) if entry.name.endswith((".checkpoint", ".log")))
        for name in names:
            try:
                _read_configs(read_file(disk, f"{path}/{name}"), configs)
            except (InvalidBatch, WireError):
                continue
    return configs


def _read_configs(data: bytes, configs: dict[str, dict[str, str]]) -> None:
    for record in iter_records(data):
        if record.value is None:
            continue
        _, at = read_uvarint(record.value, 0)
        kind, at = read_uvarint(record.value, at)
        version, at = read_uvarint(record.value, at)
        if kind != CONFIG_RECORD:
            continue
        config, _ = stored_codec("ConfigRecord", version).decode(record.value, at)
        if config.resource_type != TOPIC_RESOURCE:
            continue
        overrides = configs.setdefault(config.resource_name, {})
        if config.value is None:
            overrides.pop(config.name, None)
        else:
            overrides[config.name] = config.value
