"""The controller: one broker's view of the cluster, and, while that broker is elected, the decisions about it.

Every broker has one. It loads the image, registers the broker, runs for election, and then either decides or waits
until the elected controller is gone. `plan` describes how its plans reach the store. The arithmetic of partitions is in
`partitions`; topics, configurations, leadership and reassignment each have a module.

Work that nobody requests (a new leader after a broker has left, the first leaders of partitions, deletions in steps) is
not planned by whatever causes it. It follows from the image, where `work` finds it. So it happens in the same way after
a failover as during normal operation, and a plan that is too big for the store is simply finished later.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from random import Random
from types import MappingProxyType
from typing import Final, NamedTuple, TypeVar

from tidelog.control import nodes
from tidelog.control.configs import ConfigResult, ConfigRules, Configs, IncrementalChange, Replacement
from tidelog.control.draft import Draft, encode_topic
from tidelog.control.errors import NO_ERROR, ApiError
from tidelog.control.events import (
    BrokerRegistered,
    BrokerUnregistered,
    ConfigChanged,
    ControllerChanged,
    Event,
    PartitionChanged,
    PartitionsAdded,
    TopicCreated,
    TopicDeleted,
)
from tidelog.control.image import Image, NodeChange, changes_of_commit, changes_of_tree
from tidelog.control.leadership import UNCLEAN_KEY, ElectionResult, ElectionType, IsrChange, IsrResult, Leadership
from tidelog.control.model import NO_CONTROLLER, NO_STATE, Partition, ResourceType
from tidelog.control.parts import in_parts
from tidelog.control.plan import Plan
from tidelog.control.reassignment import Reassignment, ReassignmentResult, WantedReassignment
from tidelog.control.settings import ControllerSettings
from tidelog.control.topic_names import collision_key
from tidelog.control.topics import (
    NewPartitions,
    NewTopic,
    TopicCreation,
    TopicDeletion,
    TopicRef,
    TopicResult,
    Topics,
)
from tidelog.metadata.store import Committed, Create, Delete, Node, Op, SetData
from tidelog.wire.errors import ErrorCode

MAX_PRODUCER_ID = 2**63 - 1

T = TypeVar("T")


#: of so many damaged logs a registration tells, so that it fits into a node
MAX_DAMAGED: Final = 10_000


class Registration(NamedTuple):
    """`directories` are the ids of the log directories that the broker has locked."""

    endpoints: Sequence[nodes.Endpoint]
    rack: str | None = None
    features: Mapping[str, tuple[int, int]] = MappingProxyType({})
    directories: Sequence[bytes] = ()
    lost: nodes.LostLogs = nodes.LostLogs.NONE
    #: no log directory takes new partitions
    cordoned: bool = False
    #: the ids of topics, where they are known, and the numbers of partitions whose logs have lost their end, whenever
    #: it registers
    damaged: Callable[[], Collection[tuple[bytes | None, int]]] = tuple

    @property
    def again(self) -> Registration:
        """For the same process in another session: what it has lost it has told."""
        return self._replace(lost=nodes.LostLogs.NONE)

    def encode(self, now_ms: int) -> bytes:
        lost, damaged = self.lost, self.damaged()
        named = [(topic_id, partition) for topic_id, partition in damaged if topic_id is not None]
        if len(named) > MAX_DAMAGED or len(named) < len(damaged):
            lost, named = lost if lost is nodes.LostLogs.ALL else nodes.LostLogs.SOME, named[:MAX_DAMAGED]
        return nodes.encode_broker(
            self.endpoints, self.rack, now_ms, self.features, self.directories, lost, self.cordoned, named
        )


class ProducerIdBlock(NamedTuple):
    first: int = -1
    size: int = 0
    error: ApiError = NO_ERROR


class ShutdownReply(NamedTuple):
    """`remaining`: partitions that the broker still leads because no other replica is in sync."""

    remaining: Sequence[tuple[str, int]] = ()
    error: ApiError = NO_ERROR


def draw_id(new_id: Callable[[], bytes]) -> bytes:
    """A random (version 4) id that is none of the reserved ones, and whose base64 does not begin with '-', which
    command lines would take for an option."""
    while True:
        raw = bytearray(new_id())
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        if not nodes.to_base64(bytes(raw)).startswith("-"):
            return bytes(raw)


class Controller:
    """`new_id` gives sixteen random bytes, `random` places replicas: handed in, so that a seed repeats a run."""

    def __init__(
        self,
        broker_id: int,
        rules: ConfigRules,
        random: Random,
        new_id: Callable[[], bytes],
        settings: ControllerSettings | None = None,
    ) -> None:
        self.broker_id = broker_id
        self.settings = settings or ControllerSettings()
        self.image = Image()
        #: the controller epoch that this broker won, -1 while it did not
        self._won_epoch = -1
        #: brokers that said they are going; they lead nothing new. Forgotten with their registration
        self._shutting_down: set[int] = set()
        #: partitions that `work` has to look at
        self._unsettled: set[tuple[str, int]] = set()
        #: topics at whose nodes the store refuses what follows from the image: no other work waits for them
        self._aside: set[str] = set()
        #: topics that somebody made without giving them an id
        self._without_id: set[str] = set()
        self._draw_id = new_id
        image, active = self.image, self.is_broker_active
        self._topics = Topics(image, active, rules, random, self._new_id, self.settings)
        self._configs = Configs(image, rules)
        self._leadership = Leadership(image, active, self.settings)
        self._reassignment = Reassignment(image, self._topics, self._leadership)

    def _new_id(self) -> bytes:
        return draw_id(self._draw_id)

    # Knowing

    @property
    def is_active(self) -> bool:
        """Whether this broker is the controller, as far as it knows; a plan's first check finds out."""
        image = self.image
        return image.controller_id == self.broker_id and image.controller_epoch == self._won_epoch

    def is_broker_active(self, broker_id: int) -> bool:
        """Registered, and not about to stop: it may be given something to lead."""
        return broker_id in self.image.brokers and broker_id not in self._shutting_down

    def load(self, tree: Iterable[tuple[str, Node]]) -> list[Event]:
        """The image becomes what the store holds. The events are what that changes: everything at a start, and what
        was missed where the image had fallen behind."""
        self._unsettled.clear()
        events = self.replace(list(changes_of_tree(tree)))
        self._mark_all()
        return events

    def replace(self, whole: Sequence[NodeChange]) -> list[Event]:
        """The image becomes what these nodes describe: those that are not among them are gone."""
        found = {change.path for change in whole}
        gone = [NodeChange(path, None) for path in self.image.paths() if path not in found]
        return self.observe([*gone, *whole])

    def observe(self, changes: Iterable[NodeChange]) -> list[Event]:
        """Others changed these nodes."""
        events = self.image.apply(changes)
        self._note(events)
        return events

    def committed(self, plan: Plan[T], result: Committed) -> list[Event]:
        """The plan is in the store; now it is in the image."""
        changes = changes_of_commit(plan.ops, result)
        events = self.image.apply(changes)
        if any(isinstance(op, Create) and op.path == nodes.CONTROLLER for op in plan.ops):
            self._won_epoch = self.image.controller_epoch
        self._note(events)
        return events

    def recognise(self) -> None:
        """/controller belongs to this broker's session: its election happened, though the answer was lost."""
        self._won_epoch = self.image.controller_epoch

    def resign(self) -> None:
        """The session is over: whatever the image says, this broker is not the controller any more."""
        self._won_epoch = -1

    def _note(self, events: Iterable[Event]) -> None:
        """Remembers which partitions the events concern."""
        for event in events:
            if isinstance(event, (TopicCreated, TopicDeleted, PartitionsAdded, PartitionChanged)):
                self._aside.discard(event.topic.name)
            if isinstance(event, PartitionChanged):
                self._leadership.unable.changed(event.after)
                self._mark((event.after,))
            elif isinstance(event, TopicDeleted):
                self._leadership.unable.forget_topic(event.topic.name)
            elif isinstance(event, PartitionsAdded):
                self._mark(event.partitions)
            elif isinstance(event, TopicCreated):
                self._mark(event.topic.partitions)
                if not any(event.topic.topic_id):
                    self._without_id.add(event.topic.name)
            elif isinstance(event, BrokerRegistered):
                if event.before is None or event.before.epoch != event.broker.epoch:
                    self._shutting_down.discard(event.broker.broker_id)
                self._mark_all()
            elif isinstance(event, BrokerUnregistered):
                self._shutting_down.discard(event.broker.broker_id)
                self._mark_all()
            elif isinstance(event, ControllerChanged) or (
                isinstance(event, ConfigChanged)
                and event.resource.type in (ResourceType.TOPIC, ResourceType.BROKER)
                and event.before.get(UNCLEAN_KEY) != event.after.get(UNCLEAN_KEY)
            ):
                self._mark_all()

    def _mark_all(self) -> None:
        for topic in self.image.topics.values():
            self._mark(topic.partitions)

    def _mark(self, partitions: Iterable[Partition]) -> None:
        if not self.is_active:
            return
        needs_work = self._leadership.needs_work
        self._unsettled.update((p.topic, p.partition_index) for p in partitions if needs_work(p))

    # Starting

    def start(
        self, registration: Registration, now_ms: int, is_registered: bool = False, leftovers: Sequence[Delete] = ()
    ) -> Plan[ApiError]:
        """Everything that is missing, in one transaction: the persistent nodes, the cluster id, the registration
        (unless the one that is there is this session's), and the election if no one is elected. Where others were
        faster it is refused; look and ask again. `leftovers` take away what this broker's former process left behind
        (see `succession`)."""
        image = self.image
        if self.broker_id in image.brokers and not is_registered and not leftovers:
            error = ApiError(
                ErrorCode.DUPLICATE_BROKER_REGISTRATION,
                f"Another broker is registered with broker id {self.broker_id}, or its session has not expired yet.",
            )
            return Plan([], error, lambda failure: failure)
        ops: list[Op] = [Create(path) for path in nodes.PERSISTENT_PATHS if path not in image.persistent_paths]
        if image.cluster_id is None:
            ops.append(Create(nodes.CLUSTER_ID, nodes.encode_cluster_id(nodes.to_base64(self._new_id()))))
        ops += leftovers
        if not is_registered:
            ops.append(Create(nodes.broker_path(self.broker_id), registration.encode(now_ms), ephemeral=True))
        is_vacated = any(op.path == nodes.CONTROLLER for op in leftovers)
        ops += self._election(now_ms, is_vacated or image.controller_id == NO_CONTROLLER)
        return Plan(ops, NO_ERROR, lambda failure: failure)

    def run_for_controller(self, now_ms: int) -> Plan[ApiError]:
        """After the elected one has gone; without operations where there is one."""
        return Plan(
            self._election(now_ms, self.image.controller_id == NO_CONTROLLER), NO_ERROR, lambda failure: failure
        )

    def _election(self, now_ms: int, is_free: bool) -> list[Op]:
        image = self.image
        if not is_free:
            return []
        ops: list[Op] = [Create(nodes.CONTROLLER, nodes.encode_controller(self.broker_id, now_ms), ephemeral=True)]
        version = image.controller_epoch_version
        if version == NO_STATE:
            ops.append(Create(nodes.CONTROLLER_EPOCH, b"0"))
            version = 0
        ops.append(SetData(nodes.CONTROLLER_EPOCH, b"%d" % (image.controller_epoch + 1), version))
        return ops

    def bury(self, broker_id: int, broker_epoch: int) -> Plan[ApiError]:
        """The process that registered so is dead: it goes before its session expires."""
        broker = self.image.brokers.get(broker_id)
        draft = Draft(self.image)
        if broker is not None and broker.epoch == broker_epoch:
            draft.put(Delete(nodes.broker_path(broker_id), broker.version))
        return Plan(draft.finish(), NO_ERROR, lambda failure: failure)

    @property
    def start_paths(self) -> list[str]:
        """The nodes that `start` and `run_for_controller` decide by: a broker that is not elected reads no others."""
        return [
            *nodes.PERSISTENT_PATHS,
            nodes.CLUSTER_ID,
            nodes.CONTROLLER,
            nodes.CONTROLLER_EPOCH,
            nodes.broker_path(self.broker_id),
        ]

    # Working

    def work(self) -> Plan[None] | None:
        """The next plan that follows from the image without being asked for; None: nothing is to be done."""
        if not self.is_active:
            return None
        draft = Draft(self.image)
        # First and alone: other work may write the topic's node as well, and a plan writes a node once.
        self._work_on_ids(draft)
        if not draft.size:
            self._work_on_deletions(draft)
            self._work_on_partitions(draft)
        ops = draft.finish()
        return Plan(ops, None, lambda failure: None) if ops else None

    def set_aside(self, path: str) -> bool:
        """The store keeps refusing what follows for the topic of this node; whether it is one that is known. It is
        tried again when something about the topic changes, and from time to time."""
        topic = nodes.topic_of(path)
        if topic is None or topic in self._aside or topic not in {*self.image.topics, *self.image.deleting}:
            return False
        self._aside.add(topic)
        return True

    def _take_up_again(self) -> None:
        aside, self._aside = self._aside, set()
        for name in aside & self.image.topics.keys():
            self._mark(self.image.topics[name].partitions)

    def _work_on_deletions(self, draft: Draft) -> None:
        limit = self.settings.max_ops
        for name in sorted(self.image.deleting - self._aside):
            if draft.size >= limit:
                return
            if self.settings.delete_topic_enable:
                self._topics.continue_deletion(name, draft)
            else:
                draft.put(Delete(nodes.delete_topic_path(name)))

    def _work_on_ids(self, draft: Draft) -> None:
        for name in sorted(self._without_id - self._aside):
            topic = self.image.topics.get(name)
            if topic is None or any(topic.topic_id) or name in self.image.deleting:
                self._without_id.discard(name)
            else:
                data = encode_topic(self._new_id(), topic.partitions)
                draft.put(SetData(nodes.topic_path(name), data, topic.version))

    def _work_on_partitions(self, draft: Draft) -> None:
        max_ops, max_bytes = self.settings.max_ops, self.settings.max_bytes
        for key in sorted(self._unsettled):
            partition = self.image.partition(*key)
            after = None
            if partition is not None and not self._is_left_alone(partition):
                after = self._leadership.settle(partition)
            if after is None:
                self._unsettled.discard(key)
            elif draft.has_room_for(after, max_ops, max_bytes):
                draft.change(after)
            else:
                return

    def _is_left_alone(self, partition: Partition) -> bool:
        """Its topic is being deleted, or set aside, or somebody wrote a state for it that cannot be read."""
        topic, has_state = partition.topic, partition.partition_epoch != NO_STATE
        if topic in self.image.deleting or topic in self._aside:
            return True
        return not has_state and nodes.state_path(topic, partition.partition_index) in self.image.malformed

    # Deciding

    def create_topics(self, requests: Sequence[NewTopic], validate_only: bool = False) -> Plan[list[TopicCreation]]:
        draft = Draft(self.image)
        results = self._topics.create(requests, draft)
        return Plan(
            [] if validate_only else draft.finish(),
            results,
            lambda error: [TopicCreation(r.name, r.error if r.error.is_failure else error) for r in results],
        )

    def creation_parts(self, requests: Sequence[NewTopic], validate_only: bool = False) -> list[Sequence[NewTopic]]:
        """The parts in which topics may be created one after the other."""
        if self._topics.asks_too_much(requests):
            return [requests]
        # What is only validated is not there when the next part is looked at, so names that collide stay together.
        return in_parts(
            requests,
            lambda request: collision_key(request.name) if validate_only else request.name,
            self._topics.bytes_asked,
        )

    def delete_topics(self, refs: Sequence[TopicRef]) -> Plan[list[TopicDeletion]]:
        draft = Draft(self.image)
        results = self._topics.delete(refs, draft)
        return Plan(
            draft.finish(),
            results,
            lambda error: [
                TopicDeletion(r.name, r.topic_id, r.error if r.error.is_failure else error) for r in results
            ],
        )

    def create_partitions(
        self, requests: Sequence[NewPartitions], validate_only: bool = False
    ) -> Plan[list[TopicResult]]:
        draft = Draft(self.image)
        results = self._topics.add_partitions(requests, draft)
        return Plan(
            [] if validate_only else draft.finish(),
            results,
            lambda error: [TopicResult(r.name, r.error if r.error.is_failure else error) for r in results],
        )

    def incremental_alter_configs(
        self, changes: Sequence[IncrementalChange], validate_only: bool = False
    ) -> Plan[list[ConfigResult]]:
        draft = Draft(self.image)
        return self._config_plan(self._configs.change(changes, draft), draft, validate_only)

    def alter_configs(
        self, replacements: Sequence[Replacement], validate_only: bool = False
    ) -> Plan[list[ConfigResult]]:
        draft = Draft(self.image)
        return self._config_plan(self._configs.replace(replacements, draft), draft, validate_only)

    def _config_plan(self, results: list[ConfigResult], draft: Draft, validate_only: bool) -> Plan[list[ConfigResult]]:
        return Plan(
            [] if validate_only else draft.finish(),
            results,
            lambda error: [
                ConfigResult(r.resource_type, r.resource_name, r.error if r.error.is_failure else error)
                for r in results
            ],
        )

    def elect_leaders(
        self, election_type: int, partitions: Iterable[tuple[str, int]] | None
    ) -> Plan[list[ElectionResult]]:
        draft = Draft(self.image)
        results = self._leadership.elect(election_type, partitions, draft)
        return Plan(
            draft.finish(),
            results,
            lambda error: [
                ElectionResult(r.topic, r.partition, r.error if r.error.is_failure else error) for r in results
            ],
        )

    def balance_leaders(self) -> Plan[None]:
        """Asked for from time to time, every `leader.imbalance.check.interval.seconds`."""
        self._take_up_again()
        draft = Draft(self.image)
        self._leadership.balance(draft)
        return Plan(draft.finish(), None, lambda error: None)

    def alter_partition(self, broker_id: int, broker_epoch: int, changes: Sequence[IsrChange]) -> Plan[list[IsrResult]]:
        draft = Draft(self.image)
        stale = self._broker_error(broker_id, broker_epoch)
        if stale is not None:
            results = [IsrResult(c.topic_id, c.partition, stale) for c in changes]
        else:
            results = self._leadership.change_isr(broker_id, changes, draft)
        return Plan(
            draft.finish(),
            results,
            lambda error: [
                IsrResult(r.topic_id, r.partition, r.error if r.error.is_failure else error) for r in results
            ],
        )

    def _broker_error(self, broker_id: int, broker_epoch: int) -> ApiError | None:
        """-1 is an epoch that the sender does not know, which is let pass."""
        broker = self.image.brokers.get(broker_id)
        if broker is None or broker_epoch not in (-1, broker.epoch):
            known = "not registered" if broker is None else f"registered with epoch {broker.epoch}"
            return ApiError(ErrorCode.STALE_BROKER_EPOCH, f"Broker {broker_id} with epoch {broker_epoch} is {known}.")
        return None

    def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> Plan[ShutdownReply]:
        """Moves leaders away from a broker that is about to stop. That it is about to stop is remembered at once,
        whatever becomes of the plan: it is a fact about the broker, not about the store."""
        draft = Draft(self.image)
        if broker_id not in self.image.brokers:
            reply = ShutdownReply(
                error=ApiError(ErrorCode.BROKER_NOT_AVAILABLE, f"Broker id {broker_id} does not exist.")
            )
        elif (stale := self._broker_error(broker_id, broker_epoch)) is not None:
            reply = ShutdownReply(error=stale)
        else:
            self._shutting_down.add(broker_id)
            reply = ShutdownReply(self._leadership.move_away_from(broker_id, draft))
        return Plan(draft.finish(), reply, lambda error: ShutdownReply(error=error))

    def renew_leadership(self, broker_id: int, broker_epoch: int) -> Plan[ApiError]:
        """A higher leader epoch for everything that the broker leads. It asks for this when it finds at its start that
        it had not stopped cleanly: what its log lost can then be told from what is written in its place."""
        draft = Draft(self.image)
        stale = self._broker_error(broker_id, broker_epoch)
        if stale is None:
            self._leadership.renew(broker_id, draft)
        return Plan(draft.finish(), stale or NO_ERROR, lambda error: error)

    def alter_partition_reassignments(
        self, moves: Sequence[WantedReassignment], allow_replication_factor_change: bool = True
    ) -> Plan[list[ReassignmentResult]]:
        draft = Draft(self.image)
        results = self._reassignment.alter(moves, allow_replication_factor_change, draft)
        return Plan(
            draft.finish(),
            results,
            lambda error: [
                ReassignmentResult(r.topic, r.partition, r.error if r.error.is_failure else error) for r in results
            ],
        )

    def follow_reassignment(self, moves: Sequence[WantedReassignment], taking_away: Op) -> Plan[None]:
        """Moves that somebody wrote into the store; what is wrong with them nobody is told."""
        plan = self.alter_partition_reassignments(moves)
        return self._followed(plan.ops, taking_away)

    def follow_election(self, partitions: Sequence[tuple[str, int]], taking_away: Op) -> Plan[None]:
        plan = self.elect_leaders(ElectionType.PREFERRED, partitions)
        return self._followed(plan.ops, taking_away)

    def _followed(self, ops: list[Op], taking_away: Op) -> Plan[None]:
        draft = Draft(self.image)
        draft.put(taking_away)
        return Plan([*ops, taking_away] if ops else draft.finish(), None, lambda failure: None)

    def list_partition_reassignments(self, partitions: Iterable[tuple[str, int]] | None = None) -> list[Partition]:
        return self._reassignment.list(partitions)

    def allocate_producer_ids(self, broker_id: int, broker_epoch: int) -> Plan[ProducerIdBlock]:
        """A block of ids that no one was given before. It is asked for by any broker; written before it is used."""
        image = self.image
        first = image.last_producer_id + 1
        last = first + nodes.PRODUCER_ID_BLOCK_SIZE - 1
        ops: list[Op] = []
        stale = self._broker_error(broker_id, broker_epoch)
        if stale is not None:
            reply = ProducerIdBlock(error=stale)
        elif last > MAX_PRODUCER_ID:
            reply = ProducerIdBlock(
                error=ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "All producer IDs have been assigned.")
            )
        else:
            draft = Draft(image)
            data = nodes.encode_producer_id_block(broker_id, first, last)
            draft.put(SetData(nodes.PRODUCER_ID_BLOCK, data, image.producer_id_version))
            ops, reply = draft.finish(), ProducerIdBlock(first, nodes.PRODUCER_ID_BLOCK_SIZE)
        return Plan(ops, reply, lambda error: ProducerIdBlock(error=error))
