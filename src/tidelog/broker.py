"""The broker: joins the rooms. It carries out what the deciding rooms decided, and asks them what is next.

    controller's events  -> logs created and deleted, leaders changed, configurations loaded
    an append            -> parked fetches and produces woken
    a request for topics -> the controller's driver, one plan at a time

It owns no socket: `server` gives it an executor for blocking work, and `api` calls it. Everything here runs on one
thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar

from tidelog import adoption
from tidelog.carrying import Carrying
from tidelog.config.definitions import BROKER_KEYS
from tidelog.config.group_config import effective_group
from tidelog.config.topic_config import fields
from tidelog.control.controller import Controller, ProducerIdBlock, Registration
from tidelog.control.driver import Driver
from tidelog.control.events import ConfigChanged
from tidelog.control.image import Image
from tidelog.control.model import ConfigResource, ResourceType, Topic
from tidelog.control.model import Partition as Assignment
from tidelog.control.names import INTERNAL_TOPICS, why_invalid
from tidelog.control.nodes import Endpoint
from tidelog.control.settings import Settings
from tidelog.control.topics import NewTopic, TopicCreation
from tidelog.coordination import Coordination, GroupCoordination
from tidelog.flushing import Flushing
from tidelog.group.config import GroupConfig
from tidelog.group.groups import Groups
from tidelog.group.regex import matching
from tidelog.group.turn import Refusal as GroupRefusal
from tidelog.log.config import LogConfig
from tidelog.log.errors import LogError
from tidelog.log.log_dirs import LogDirs
from tidelog.log.producers import AppendOrigin
from tidelog.metadata.store import Refusal, SessionExpired
from tidelog.moving import Moves
from tidelog.placing import Placing
from tidelog.producer_ids import ProducerIds
from tidelog.replica.fetch_sessions import FetchSessions
from tidelog.replica.partition import Partition
from tidelog.replica.replicas import Replicas
from tidelog.rules import Rules
from tidelog.slices import Slices
from tidelog.timer.parking import Parking
from tidelog.timer.wheel import Timer
from tidelog.transacting import TransactionCoordination, marker_error
from tidelog.txn.config import TxnConfig
from tidelog.txn.transaction import TopicPartition
from tidelog.txn.transactions import Transactions
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.records import ABORT, COMMIT, EndTxnMarker, build_end_txn_marker

if TYPE_CHECKING:
    from tidelog.clock import Clock
    from tidelog.config.broker_config import BrokerConfig
    from tidelog.control.errors import ApiError
    from tidelog.control.plan import Plan
    from tidelog.log.disk import Disk
    from tidelog.metadata.store import MetadataStore, TreeResult

R = TypeVar("R")
#: a fetch session that was not used for so long makes room for others
FETCH_SESSION_EVICTION_MS: Final = 120_000
LOG_FIELDS: Final = frozenset(LogConfig.__dataclass_fields__)
MAX_LOG_CONFIGS: Final = 1_000
OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTIONS_TOPIC: Final = "__transaction_state"
MARKER_TIMEOUT_MS: Final = 5_000
#: kinds of coordinators, as FindCoordinator numbers them
GROUP_KEY: Final = 0
TRANSACTION_KEY: Final = 1
#: what the requests that wait for their turn among the long ones may hold in memory
LONG_REQUESTS_BYTES: Final = 64 * 1024 * 1024
#: `clean_broker_epoch` of directories that were not stopped in good order
NOT_CLEAN: Final = -1
WILDCARD_HOSTS: Final = frozenset(("", "0.0.0.0", "::"))


class Node(NamedTuple):
    """A broker as a client on some listener is told of it."""

    id: int
    host: str
    port: int
    rack: str | None


class Workers(Protocol):
    """Where work goes that would keep others waiting."""

    def in_worker(self, work: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        """On another thread; `done(result, error)` is called on the broker's."""

    def call_soon(self, callback: Callable[[], object]) -> None:
        """In the next turn of the loop."""


class Asker(Protocol):
    """The connection that a request came on, as far as metadata depends on it."""

    @property
    def listener_name(self) -> str: ...

    @property
    def local_host(self) -> str:
        """The address of this machine that the client connected to."""


class Properties(Mapping[str, Any]):
    """A broker's configuration as a mapping of Kafka's names to typed values."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config

    def __getitem__(self, name: str) -> Any:
        if name not in BROKER_KEYS:
            raise KeyError(name)
        return self._config.get(name)

    def __iter__(self) -> Iterator[str]:
        return iter(BROKER_KEYS)

    def __len__(self) -> int:
        return len(BROKER_KEYS)


class Broker:
    def __init__(
        self,
        config: BrokerConfig,
        store: MetadataStore,
        disk: Disk,
        clock: Clock,
        timer: Timer,
        workers: Workers,
        report: Callable[[str, BaseException | None], None],
        notice: Callable[[str], None] = lambda message: None,
        random: Random | None = None,
    ) -> None:
        self.config = config
        self.values = config.values
        self.id = config.broker_id
        self.clock = clock
        self.timer = timer
        self.workers = workers
        #: what was not foreseen, with its exception; and what an operator may want to know
        self.report = report
        self.notice = notice
        self.internal_topics = INTERNAL_TOPICS
        self._store = store
        self._disk = disk
        random = random or Random()
        self._new_id: Callable[[], bytes] = lambda: random.randbytes(16)
        self.flushing = Flushing(workers, report)
        #: long requests; and compressed records that unpack to some megabytes, or to far more: of each only one batch
        #: at a time is in memory, and those that unpack to little do not wait behind those that unpack to much
        self.slices = Slices(workers, report, LONG_REQUESTS_BYTES)
        self.unpacking = Slices(workers, report, LONG_REQUESTS_BYTES)
        self.unpacking_much = Slices(workers, report, LONG_REQUESTS_BYTES)
        self.parking = Parking(timer, lambda parked, error: report("a parked request failed", error))
        self.controller = Controller(self.id, Rules(config), random, self._new_id, self._settings())
        self.carrying = Carrying(self)
        self.driver = Driver(self.controller, store, clock.wall_ms, self.carrying.carry_out, self._store_failed)
        #: what a topic's own settings come to: most topics have the same, and a topic many partitions
        self._log_configs: dict[tuple[tuple[str, str], ...], LogConfig] = {}
        self.logs = LogDirs(config.log_dirs, disk, self.log_config)
        self.moves = Moves(self)
        self.replicas = Replicas(self.id)
        properties = Properties(config)
        self.groups = Groups(GroupConfig.from_properties(properties))
        self.group_coordination = GroupCoordination(
            self, OFFSETS_TOPIC, self.groups, lambda: self.values.offsets_commit_timeout_ms
        )
        self.producer_ids = ProducerIds(self._allocate_producer_ids)
        self.transactions = Transactions(TxnConfig.from_properties(properties), self.producer_ids.take, pattern)
        self.transaction_coordination = TransactionCoordination(
            self, TRANSACTIONS_TOPIC, self.transactions, lambda: MARKER_TIMEOUT_MS
        )
        #: what lives on internal topics, by topic
        self._coordinations: dict[str, Coordination] = {
            OFFSETS_TOPIC: self.group_coordination,
            TRANSACTIONS_TOPIC: self.transaction_coordination,
        }
        self.fetch_sessions = FetchSessions(
            self.values.max_incremental_fetch_session_cache_slots,
            FETCH_SESSION_EVICTION_MS,
            lambda: random.randrange(1, 2**31),
        )
        #: told once, with the reason, when this broker cannot go on: whoever runs it stops it
        self.on_fatal: Callable[[str], None] = lambda reason: None
        #: told when the level is altered below which nothing is said
        self.on_log_level: Callable[[str], None] = lambda level: None
        self._log_level = "INFO"
        self.placing = Placing(self)
        #: told when a log left files to sync or to remove
        self.on_housekeeping_due: Callable[[], None] = lambda: None
        config.on_change(["num.partitions", "default.replication.factor"], lambda names: self._refresh_settings())
        config.on_change(["group.consumer.assignment.interval.ms"], lambda names: self._refresh_groups())

    def _settings(self) -> Settings:
        values = self.values
        return Settings(
            num_partitions=values.num_partitions,
            default_replication_factor=values.default_replication_factor,
            delete_topic_enable=values.delete_topic_enable,
            unclean_leader_election_enable=values.unclean_leader_election_enable,
            leader_imbalance_per_broker_percentage=values.leader_imbalance_per_broker_percentage,
        )

    def _refresh_settings(self) -> None:
        fresh = self._settings()
        for name in Settings.__dataclass_fields__:
            setattr(self.controller.settings, name, getattr(fresh, name))

    @property
    def log_level(self) -> str:
        """The least level of what is said, as Apache Kafka names it; it lasts as long as this broker runs."""
        return self._log_level

    @log_level.setter
    def log_level(self, level: str) -> None:
        self._log_level = level
        self.on_log_level(level)

    def _refresh_groups(self) -> None:
        self.groups.configure(GroupConfig.from_properties(Properties(self.config)))

    # --- life ---------------------------------------------------------------------------------------

    def open(self, done: Callable[[str | None], None]) -> None:
        """Locks and recovers the log directories; `done` when the store knows the cluster and what is in them.

        It gets the reason where the store cannot be used, None where all is well.
        """

        def loaded(tree: TreeResult) -> None:
            if isinstance(tree, Refusal):
                done(tree.path)
                return
            known = adoption.known_cluster_id(tree)
            found = adoption.written_by(self._disk, self.config.log_dirs)
            cluster_id = known or (found.cluster_id if found else adoption.new_cluster_id(self._new_id))
            placement = None if known is None else adoption.placement_of(tree, self.id, whole=not self._store.losses)
            self.logs.open(self.id, cluster_id, self.clock.wall_ms(), placement)
            taking = adoption.Adoption(self.id, self._new_id, self._disk, self._internal_config)
            found_logs = self.logs.logs.values()
            if known is None:
                ops = taking.all_of(cluster_id, found_logs)
            else:
                ops = taking.missing_from(tree, found_logs) if self._store.losses else []
            for notice in [*self._store.losses, *self.logs.take_notices(), *taking.notices]:
                self.notice(notice)
            if ops:
                self._store.submit(ops, lambda result: done(result.path if isinstance(result, Refusal) else None))
            else:
                done(None)

        self._store.tree("/", loaded)

    def join(self, endpoints: list[Endpoint], done: Callable[[ApiError], None]) -> None:
        """Registers with the cluster and takes up what it assigns; `done` when this broker can serve."""

        def ready(error: ApiError) -> None:
            self.carrying.others_are_served = True
            done(error)

        def joined(error: ApiError) -> None:
            if error.is_failure:
                done(error)
                return
            self.logs.remember(self.image.controller_epoch)
            self.moves.resume()
            if self.logs.clean_broker_epoch == NOT_CLEAN:
                # What the logs lost in a crash must be told from what is written in its place: by a new leader epoch.
                epoch = self.image.brokers[self.id].epoch
                self.decide(lambda controller: controller.renew_leadership(self.id, epoch), ready)
            else:
                ready(error)

        self.driver.start(Registration(endpoints, self.config.get("broker.rack")), joined)

    def _store_failed(self, refusal: Refusal) -> None:
        """The store answers nothing more, so nothing that needs it can be decided, and another may rule by now."""
        why = "its session has expired" if isinstance(refusal, SessionExpired) else "it could not be written"
        self.on_fatal(f"the metadata store has failed ({why}, at {refusal.path}): the broker stops. Start it again")

    def close(self) -> None:
        """A clean stop: everything is on the device, and the next start need not look."""
        self.moves.stop()
        self.driver.close()
        broker_epoch = self.image.brokers[self.id].epoch if self.id in self.image.brokers else -1
        self.logs.close(broker_epoch, self.replicas.high_watermarks())

    # --- what the cluster looks like ----------------------------------------------------------------

    @property
    def image(self) -> Image:
        return self.controller.image

    @property
    def cluster_id(self) -> str | None:
        return self.image.cluster_id

    @property
    def controller_id(self) -> int:
        return self.image.controller_id

    def nodes(self, asker: Asker) -> list[Node]:
        """The brokers that live, at the addresses of the listener that the asker came by.

        A broker that listens everywhere and was not told what to advertise names the address that the asker reached
        it at, which is one that works.
        """
        found = []
        for broker in self.image.brokers.values():
            for endpoint in broker.endpoints:
                if endpoint.listener == asker.listener_name:
                    wild = endpoint.host in WILDCARD_HOSTS and broker.broker_id == self.id
                    host = asker.local_host if wild else endpoint.host
                    found.append(Node(broker.broker_id, host, endpoint.port, broker.rack))
        return found

    def topic_name(self, topic_id: bytes) -> str:
        """The name of a topic, "" where there is none with this id."""
        return self.image.topic_names.get(topic_id, "")

    def topic_id(self, name: str) -> bytes:
        topic = self.image.topics.get(name)
        return bytes(16) if topic is None else topic.topic_id

    def leader_of(self, topic: str, index: int) -> tuple[int, int] | None:
        """(leader, leader epoch) of a partition that exists."""
        partition = self.image.partition(topic, index)
        return None if partition is None else (partition.leader, partition.leader_epoch)

    def unknown_topic_error(self, name: str) -> int:
        invalid = why_invalid(name) is not None
        return ErrorCode.INVALID_TOPIC_EXCEPTION if invalid else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def partition(self, topic: str, index: int) -> Partition:
        """The replica of a partition on this broker, or the error that a client is answered with."""
        partition = self.replicas.partitions.get((topic, index))
        if partition is not None:
            return partition
        raise KafkaError(self.why_missing(topic, index))

    def why_missing(self, topic: str, index: int) -> ErrorCode:
        """What a client is told of a partition that has no replica on this broker which could serve it."""
        assigned = self.image.partition(topic, index)
        if assigned is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if self.carrying.is_placing(topic):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        # Assigned here and yet not there: its log directory has failed.
        return ErrorCode.KAFKA_STORAGE_ERROR if self.id in assigned.replicas else ErrorCode.NOT_LEADER_OR_FOLLOWER

    # --- asking the controller ----------------------------------------------------------------------

    def decide(self, plan: Callable[[Controller], Plan[R]], done: Callable[[R], None]) -> None:
        """Has the controller decide and the decision carried out; `done` gets what to answer."""
        self.driver.request(lambda: plan(self.controller), done)

    @property
    def auto_create_topics(self) -> bool:
        return bool(self.values.auto_create_topics_enable)

    @property
    def max_partitions_per_page(self) -> int:
        return int(self.values.max_request_partition_size_limit)

    def auto_create(self, names: list[str], done: Callable[[dict[str, int]], None]) -> None:
        """Creates topics with the broker's defaults; `done` gets an error code for each that could not be.

        An internal topic is made as its coordinator needs it, whoever asks first.
        """
        invalid = {name: int(ErrorCode.INVALID_TOPIC_EXCEPTION) for name in names if why_invalid(name) is not None}
        internal = self._coordinations
        wanted = [
            self._internal_topic(name) if name in internal else NewTopic(name) for name in names if name not in invalid
        ]
        if not wanted:
            done(invalid)
            return

        def created(results: list[TopicCreation]) -> None:
            errors = {result.name: result.error.code for result in results if result.error.is_failure}
            done({**invalid, **{name: _auto_create_error(code) for name, code in errors.items()}})

        self.placing.create_topics(wanted, created)

    def coordination_of(self, key_type: int) -> tuple[str, Callable[[str], int]] | None:
        """The topic that coordinators of this kind live on, and the partition of it that a key belongs to."""
        if key_type == GROUP_KEY:
            return OFFSETS_TOPIC, self.groups.partition_for
        if key_type == TRANSACTION_KEY:
            return TRANSACTIONS_TOPIC, self.transactions.partition_for
        return None

    def ensure_internal_topic(self, name: str, done: Callable[[], None]) -> None:
        """Creates an internal topic where it does not exist; `done` when it does, or could not be created."""
        if name in self.image.topics:
            done()
            return
        self.placing.create_topics([self._internal_topic(name)], lambda results: done())

    def _internal_config(self, name: str) -> Mapping[str, str]:
        configs = self._internal_topic(name).configs if name in self._coordinations else {}
        return {key: value for key, value in configs.items() if value is not None}

    def _internal_topic(self, name: str) -> NewTopic:
        alive = max(len(self.image.brokers), 1)
        config, values = self.config, self.values
        if name == TRANSACTIONS_TOPIC:
            factor = config.internal_topic("transaction.state.log.replication.factor", alive)
            return NewTopic(
                name,
                values.transaction_state_log_num_partitions,
                factor,
                configs={
                    "cleanup.policy": "compact",
                    "compression.type": "uncompressed",
                    "segment.bytes": str(values.transaction_state_log_segment_bytes),
                    "min.insync.replicas": str(config.internal_topic("transaction.state.log.min.isr", factor)),
                    "unclean.leader.election.enable": "false",
                },
            )
        return NewTopic(
            name,
            values.offsets_topic_num_partitions,
            config.internal_topic("offsets.topic.replication.factor", alive),
            configs={
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(values.offsets_topic_segment_bytes),
            },
        )

    def _allocate_producer_ids(self, done: Callable[[ProducerIdBlock], None]) -> None:
        epoch = self.image.brokers[self.id].epoch
        self.decide(lambda controller: controller.allocate_producer_ids(self.id, epoch), done)

    # --- carrying out what the controller decided ---------------------------------------------------

    def coordination_on(self, topic: str) -> Coordination | None:
        """What lives on a topic, where it is an internal one."""
        return self._coordinations.get(topic)

    def place(self, topic: Topic, assigned: Assignment) -> None:
        """Brings a partition that is assigned to this broker into service; raises LogError where it cannot."""
        key = (topic.name, assigned.partition_index)
        partition = self.replicas.partitions.get(key)
        if partition is None and key in self.logs.offline:
            return
        if partition is None:
            log = self.logs.create(key, self.clock.wall_ms(), topic.topic_id)
            checkpointed = self.logs.high_watermarks.get(key, log.log_start_offset)
            partition = self.replicas.place(topic.topic_id, log, checkpointed)
        self.replicas.follow_assignment(partition, assigned, self.clock.monotonic_ms())
        coordination = self._coordinations.get(topic.name)
        if coordination is not None:
            coordination.leadership_changed(partition)
        self.parking.wake(key)

    def drop(self, topic: str, index: int) -> None:
        """Takes a partition out of service whose topic was deleted."""
        key = (topic, index)
        self.placing.forget(key)
        coordination = self._coordinations.get(topic)
        if coordination is not None:
            coordination.removed(index)
        self.logs.offline.discard(key)
        if self.replicas.remove(*key) is not None and key in self.logs.logs:
            try:
                self.logs.delete(key)
            except LogError as error:
                self.report(f"the files of {topic}-{index} could not be removed", error)
        self.parking.wake(key)

    def configure(self, event: ConfigChanged) -> None:
        """Takes up settings that were altered."""
        resource = event.resource
        if resource.type == ResourceType.TOPIC:
            topic = self.image.topics.get(resource.name)
            if topic is not None:
                self._reconfigure_logs([topic])
        elif resource.type == ResourceType.GROUP:
            self.groups.configure_group(resource.name, effective_group(event.after, self.config) if event.after else {})
        elif resource.type == ResourceType.BROKER and resource.name in ("", str(self.id)):
            defaults = self.config.topic_defaults()
            for warning in self.config.load_dynamic(event.after, per_broker=bool(resource.name)):
                self.notice(warning)
            self._log_configs.clear()
            if self.config.topic_defaults() != defaults:
                self._reconfigure_logs(self.image.topics.values())

    def _reconfigure_logs(self, topics: Any) -> None:
        for topic in topics:
            config = self.log_config(topic.name)
            for assigned in topic.partitions:
                log = self.logs.get(topic.name, assigned.partition_index)
                if log is not None:
                    log.config = config

    def log_config(self, topic: str) -> LogConfig:
        """What a topic's logs are configured with: its own overrides over the broker's values."""
        overrides: Mapping[str, str] = self.image.config(ConfigResource(ResourceType.TOPIC, topic))
        key = tuple(sorted(overrides.items()))
        found = self._log_configs.get(key)
        if found is None:
            known = fields(overrides, self.config)
            values: dict[str, Any] = {name: value for name, value in known.items() if name in LOG_FIELDS}
            found = LogConfig(**values, max_unpacked_bytes=self.values.tidelog_max_decompressed_bytes)
            if len(self._log_configs) >= MAX_LOG_CONFIGS:
                self._log_configs.clear()
            self._log_configs[key] = found
        return found

    # --- appends ------------------------------------------------------------------------------------

    def appended(self, partition: Partition) -> None:
        """Something was appended: whoever waits for the partition looks again."""
        self.parking.wake(partition.key)
        if partition.log.directory.flushes:
            self.on_housekeeping_due()

    def write_marker(self, at: TopicPartition, marker: Any) -> int:
        """Ends a producer's transaction on a partition that this broker leads; an error code, 0 when it is written."""

        def write(partition: Partition) -> None:
            now_ms = self.clock.wall_ms()
            end = EndTxnMarker(COMMIT if marker.commit else ABORT, marker.coordinator_epoch)
            batch = build_end_txn_marker(end, marker.producer_id, marker.producer_epoch, now_ms)
            partition.append(
                memoryview(batch),
                -1,
                now_ms,
                origin=AppendOrigin.COORDINATOR,
                transaction_version=marker.transaction_version,
            )
            if at.topic == OFFSETS_TOPIC:
                self.groups.transaction_ended(at.partition, marker.producer_id, marker.commit)
            self.appended(partition)

        return marker_error(self, at, write)


def _auto_create_error(code: int) -> int:
    """What Metadata says of a topic that is not there yet: most failures pass, and the client asks again."""
    if code in (ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.INVALID_REPLICATION_FACTOR):
        return code
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def pattern(expression: str) -> Callable[[str], bool]:
    """A test for whole names from a regular expression in RE2's syntax; ValueError where it is none."""
    try:
        matching(expression, ())
    except GroupRefusal as refusal:
        raise ValueError(str(refusal)) from None
    return lambda name: name in matching(expression, (name,))
