"""Topics are created, deleted and given more partitions.

Each function reads the image, checks one item after the other as Apache Kafka does, and puts what passed into the
draft; an item that fails is answered with its error and leaves no trace there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from types import MappingProxyType
from typing import Final, NamedTuple

from tidelog.control import nodes
from tidelog.control.configs import ConfigRules, check_config
from tidelog.control.draft import Draft, encode_topic, state_bytes
from tidelog.control.errors import NO_ERROR, ApiError, Rejected
from tidelog.control.image import Image
from tidelog.control.model import ConfigResource, Partition, ResourceType, Topic
from tidelog.control.partition_changes import first_state
from tidelog.control.placement import place_replicas
from tidelog.control.settings import ControllerSettings
from tidelog.control.topic_names import CLUSTER_METADATA, collision_key, why_invalid
from tidelog.metadata.store import Create, Delete, SetData
from tidelog.wire.errors import ErrorCode
from tidelog.wire.ids import ZERO_UUID

CORDON_KEY: Final = "cordoned.log.dirs"
MAX_PARTITIONS_PER_REQUEST: Final = 10_000


NO_CONFIGS: Final[Mapping[str, str | None]] = MappingProxyType({})


class NewTopic(NamedTuple):
    """-1 partitions or replicas: the default. `assignments` (partition index and its brokers) replaces both."""

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    assignments: Sequence[tuple[int, Sequence[int]]] = ()
    configs: Mapping[str, str | None] = NO_CONFIGS


class TopicCreation(NamedTuple):
    name: str
    error: ApiError = NO_ERROR
    topic_id: bytes = ZERO_UUID
    num_partitions: int = -1
    replication_factor: int = -1


class TopicRef(NamedTuple):
    """A topic by its name or by its id, not both."""

    name: str | None = None
    topic_id: bytes = ZERO_UUID


class TopicDeletion(NamedTuple):
    name: str | None
    topic_id: bytes
    error: ApiError = NO_ERROR


class NewPartitions(NamedTuple):
    """`num_partitions` is how many the topic is to have in all; `assignments` the brokers of each new one."""

    name: str
    num_partitions: int
    assignments: Sequence[Sequence[int]] | None = None


class TopicResult(NamedTuple):
    name: str
    error: ApiError = NO_ERROR


class Topics:
    """The decisions about topics, over an image that someone else changes."""

    def __init__(
        self,
        image: Image,
        is_active: Callable[[int], bool],
        rules: ConfigRules,
        random: Random,
        new_id: Callable[[], bytes],
        settings: ControllerSettings,
    ) -> None:
        self._image = image
        self._is_active = is_active
        self._rules = rules
        self._random = random
        self._new_id = new_id
        self._settings = settings

    # Creating

    def create(self, requests: Sequence[NewTopic], draft: Draft) -> list[TopicCreation]:
        if self.asks_too_much(requests):
            error = ApiError(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")
            return [TopicCreation(name, error) for name in dict.fromkeys(r.name for r in requests)]
        times = Counter(request.name for request in requests)
        #: names that this request creates: they collide as existing ones do
        taken: dict[str, str] = {}
        results: dict[str, TopicCreation] = {}
        for request in requests:
            if request.name in results:
                continue
            try:
                if times[request.name] > 1:
                    raise Rejected(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
                results[request.name] = self._create_one(request, taken, draft)
            except Rejected as rejected:
                results[request.name] = TopicCreation(request.name, rejected.error)
        return list(results.values())

    def asks_too_much(self, requests: Sequence[NewTopic]) -> bool:
        return sum(map(self._partitions_asked, requests)) > MAX_PARTITIONS_PER_REQUEST

    def _partitions_asked(self, request: NewTopic) -> int:
        if request.assignments:
            return len(request.assignments)
        return self._settings.num_partitions if request.num_partitions == -1 else max(0, request.num_partitions)

    def bytes_asked(self, request: NewTopic) -> int:
        """About what a new topic takes in the store, apart from the states of its partitions."""
        factor = request.replication_factor
        if factor == -1:
            by_hand = request.assignments
            factor = len(by_hand[0][1]) if by_hand else self._settings.default_replication_factor
        values = sum(len(name) + len(value or "") for name, value in request.configs.items())
        return 400 + 2 * len(request.name) + values + self._partitions_asked(request) * (12 + 6 * max(0, factor))

    def _create_one(self, request: NewTopic, taken: dict[str, str], draft: Draft) -> TopicCreation:
        name = request.name
        self._check_name(name, taken)
        configs = self._checked_configs(request)
        if request.assignments:
            replicas = self._checked_assignments(request)
        else:
            replicas = self._placed(request)
        partitions = self._first_states(name, replicas, 0, bool(request.assignments))
        topic_id = self._new_id()
        data = encode_topic(topic_id, partitions)
        self.check_node(name, len(data) + len(nodes.encode_config(configs)))
        draft.put_config(ConfigResource(ResourceType.TOPIC, name), configs)
        draft.put(Create(nodes.topic_path(name), data))
        if self._fits(partitions, draft):
            draft.create_states(name, partitions, False, set())
        key = collision_key(name)
        if key is not None:
            taken[key] = name
        return TopicCreation(name, NO_ERROR, topic_id, len(partitions), len(replicas[0]))

    def check_node(self, topic: str, size: int) -> None:
        """What the store does not take is refused before anything is written."""
        if size > self._settings.max_bytes:
            raise Rejected(
                ErrorCode.INVALID_PARTITIONS,
                f"The replicas of all partitions of {topic} would take {size} bytes in the metadata store, which takes "
                f"{self._settings.max_bytes} for a topic. Use fewer partitions or replicas, or several topics.",
            )

    def _fits(self, partitions: Sequence[Partition], draft: Draft) -> bool:
        """Whether the first states of these partitions can be written with the rest; else they are work."""
        settings = self._settings
        size = sum(map(state_bytes, partitions))
        return draft.size + 2 * len(partitions) <= settings.max_ops and draft.bytes + size <= settings.max_bytes

    def _check_name(self, name: str, taken: Mapping[str, str]) -> None:
        if name == CLUSTER_METADATA:
            raise Rejected(ErrorCode.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited.")
        reason = why_invalid(name)
        if reason is not None:
            raise Rejected(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
        if name in self._image.topics:
            raise Rejected(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        if name in self._image.deleting:
            raise Rejected(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' is marked for deletion.")
        key = collision_key(name)
        if key is not None:
            other = next(iter(sorted(self._image.collisions.get(key, ()))), None) or taken.get(key)
            if other is not None:
                raise Rejected(
                    ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {other}"
                )

    def _checked_configs(self, request: NewTopic) -> dict[str, str]:
        nulls = [name for name, value in request.configs.items() if value is None]
        if nulls:
            raise Rejected(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {','.join(nulls)}")
        values = {name: value for name, value in request.configs.items() if value is not None}
        check_config(self._rules, ConfigResource(ResourceType.TOPIC, request.name), values, {})
        return values

    def _placed(self, request: NewTopic) -> list[tuple[int, ...]]:
        if request.replication_factor < -1 or request.replication_factor == 0:
            raise Rejected(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                "Replication factor must be larger than 0, or -1 to use the default value.",
            )
        if request.num_partitions < -1 or request.num_partitions == 0:
            raise Rejected(
                ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value."
            )
        count = self._settings.num_partitions if request.num_partitions == -1 else request.num_partitions
        factor = (
            self._settings.default_replication_factor
            if request.replication_factor == -1
            else request.replication_factor
        )
        return self._place(count, factor)

    def _place(self, partitions: int, factor: int, first_partition: int = 0) -> list[tuple[int, ...]]:
        """On brokers that are there to stay, and not cordoned."""
        active = {b.broker_id: b.rack for b in self._image.brokers.values() if self._is_active(b.broker_id)}
        open_ = {broker: rack for broker, rack in active.items() if not self._is_cordoned(broker)}
        if len(open_) < min(factor, len(active)):
            raise Rejected(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"Unable to replicate the partition {factor} time(s): only {len(open_)} of {len(active)} brokers take "
                "new partitions. All log directories of the others are cordoned (cordoned.log.dirs=*).",
            )
        return place_replicas(open_, partitions, factor, self._random, first_partition)

    def _is_cordoned(self, broker: int) -> bool:
        """Whether somebody said, for this broker or for all or in its own settings, that it is to get nothing new."""
        for name in (str(broker), ""):
            value = self._image.config(ConfigResource(ResourceType.BROKER, name)).get(CORDON_KEY)
            if value is not None:
                return value.strip() == "*"
        return self._image.brokers[broker].cordoned

    def _checked_assignments(self, request: NewTopic) -> list[tuple[int, ...]]:
        for value, name in (
            (request.replication_factor, "replication factor"),
            (request.num_partitions, "numPartitions"),
        ):
            if value != -1:
                raise Rejected(
                    ErrorCode.INVALID_REQUEST,
                    f"A manual partition assignment was specified, but {name} was not set to -1.",
                )
        by_index: dict[int, tuple[int, ...]] = {}
        factor: int | None = None
        for index, brokers in request.assignments:
            if index in by_index:
                raise Rejected(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"Found multiple manual partition assignments for partition {index}",
                )
            self.check_assignment(brokers, factor)
            factor = len(brokers)
            by_index[index] = tuple(brokers)
        if set(by_index) != set(range(len(by_index))):
            raise Rejected(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions should be a consecutive 0-based integer sequence"
            )
        return [by_index[index] for index in range(len(by_index))]

    def check_assignment(self, brokers: Sequence[int], factor: int | None) -> None:
        """Brokers that a client chose by hand: all registered, none twice, as many as in the other partitions."""
        if not brokers:
            raise Rejected(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT, "The manual partition assignment includes an empty replica list."
            )
        for broker in sorted(brokers):
            if broker not in self._image.brokers:
                raise Rejected(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"The manual partition assignment includes broker {broker}, but no such broker is registered.",
                )
            if brokers.count(broker) > 1:
                raise Rejected(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"The manual partition assignment includes the broker {broker} more than once.",
                )
        if factor is not None and len(brokers) != factor:
            raise Rejected(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"The manual partition assignment includes a partition with {len(brokers)} replica(s), but this is not "
                f"consistent with previous partitions, which have {factor} replica(s).",
            )

    def _first_states(
        self, topic: str, replicas: Iterable[tuple[int, ...]], first: int, by_hand: bool
    ) -> list[Partition]:
        partitions = []
        for index, brokers in enumerate(replicas, first):
            partition = first_state(Partition(topic, index, brokers), self._is_active)
            if partition is None:
                if by_hand:
                    raise Rejected(
                        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                        f"All brokers specified in the manual partition assignment for partition {index} are fenced or "
                        "in controlled shutdown.",
                    )
                raise Rejected(
                    ErrorCode.INVALID_REPLICATION_FACTOR,
                    f"Unable to replicate the partition {len(brokers)} time(s): All brokers are currently fenced or in "
                    "controlled shutdown.",
                )
            partitions.append(partition)
        return partitions

    # Deleting

    def delete(self, refs: Sequence[TopicRef], draft: Draft) -> list[TopicDeletion]:
        if not self._settings.delete_topic_enable:
            error = ApiError(ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled.")
            return [TopicDeletion(ref.name, ref.topic_id, error) for ref in refs]
        times = Counter(refs)
        found: dict[str, Topic] = {}
        #: by name where the topic is known, so that one that is named by both its name and its id is answered once
        results: dict[TopicRef | str, TopicDeletion] = {}
        for ref in times:
            try:
                if times[ref] > 1:
                    kind = "name" if ref.name is not None else "id"
                    raise Rejected(ErrorCode.INVALID_REQUEST, f"Duplicate topic {kind}.")
                topic = self._find(ref)
            except Rejected as rejected:
                results[ref] = TopicDeletion(ref.name, ref.topic_id, rejected.error)
                continue
            if topic.name in results:
                # Whoever says it twice in different words may mean two topics: neither is deleted.
                found.pop(topic.name, None)
                error = ApiError(
                    ErrorCode.INVALID_REQUEST, "The provided topic name maps to an ID that was already supplied."
                )
                results[topic.name] = TopicDeletion(topic.name, topic.topic_id, error)
            else:
                found[topic.name] = topic
                results[topic.name] = TopicDeletion(topic.name, topic.topic_id)
        for topic in found.values():
            self.delete_one(topic, draft)
        return list(results.values())

    def _find(self, ref: TopicRef) -> Topic:
        has_id = ref.topic_id != ZERO_UUID
        if ref.name is None and not has_id:
            raise Rejected(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
        if ref.name is not None and has_id:
            raise Rejected(ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id.")
        topic = self._image.topics.get(ref.name) if ref.name is not None else self._image.topic_by_id(ref.topic_id)
        if topic is None or topic.name in self._image.deleting:
            raise Rejected(ErrorCode.UNKNOWN_TOPIC_ID if has_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return topic

    def delete_one(self, topic: Topic, draft: Draft) -> None:
        """At once where the store takes it at once; else the topic is marked, and `continue_deletion` is work."""
        if draft.size + 2 * len(topic.partitions) + 4 > self._settings.max_ops:
            draft.put(Create(nodes.delete_topic_path(topic.name)))
            return
        draft.delete_topic(topic)
        self._delete_config(topic.name, draft)

    def continue_deletion(self, name: str, draft: Draft) -> None:
        """A step for a topic that is marked for deletion; the mark goes with the last one."""
        topic = self._image.topics.get(name)
        if topic is not None and not draft.delete_topic(topic, self._settings.max_ops):
            return
        self._delete_config(name, draft)
        draft.put(Delete(nodes.delete_topic_path(name)))

    def _delete_config(self, name: str, draft: Draft) -> None:
        resource = ConfigResource(ResourceType.TOPIC, name)
        if resource in self._image.configs:
            draft.put(Delete(resource.path))

    # More partitions

    def add_partitions(self, requests: Sequence[NewPartitions], draft: Draft) -> list[TopicResult]:
        times = Counter(request.name for request in requests)
        results: dict[str, TopicResult] = {}
        for request in requests:
            if request.name in results:
                continue
            try:
                if times[request.name] > 1:
                    raise Rejected(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
                self._add_to_one(request, draft)
                results[request.name] = TopicResult(request.name)
            except Rejected as rejected:
                results[request.name] = TopicResult(request.name, rejected.error)
        return list(results.values())

    def _add_to_one(self, request: NewPartitions, draft: Draft) -> None:
        name = request.name
        topic = self._image.topics.get(name)
        if topic is None or name in self._image.deleting:
            raise Rejected(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        present = len(topic.partitions)
        if request.num_partitions == present:
            raise Rejected(ErrorCode.INVALID_PARTITIONS, f"Topic already has {present} partition(s).")
        if request.num_partitions < present:
            raise Rejected(
                ErrorCode.INVALID_PARTITIONS,
                f"The topic {name} currently has {present} partition(s); {request.num_partitions} would not be an "
                "increase.",
            )
        if request.num_partitions - present > MAX_PARTITIONS_PER_REQUEST:
            raise Rejected(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")
        replicas = self._new_replicas(request, topic)
        fresh = self._first_states(name, replicas, present, request.assignments is not None)
        data = encode_topic(topic.topic_id, [*topic.partitions, *fresh])
        self.check_node(name, len(data))
        draft.put(SetData(nodes.topic_path(name), data, topic.version))
        if self._fits(fresh, draft):
            draft.create_states(name, fresh, topic.has_partitions_node, topic.bare)

    def _new_replicas(self, request: NewPartitions, topic: Topic) -> list[tuple[int, ...]]:
        present = len(topic.partitions)
        more = request.num_partitions - present
        factor = topic.partitions[0].target_factor
        if request.assignments is None:
            return self._place(more, factor, present)
        if len(request.assignments) != more:
            raise Rejected(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Attempted to add {more} additional partition(s), but only {len(request.assignments)} assignment(s) "
                "were specified.",
            )
        for brokers in request.assignments:
            self.check_assignment(brokers, factor)
        return [tuple(brokers) for brokers in request.assignments]
