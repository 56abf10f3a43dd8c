"""What a broker knows about its cluster: its brokers, its topics and their configurations.

Requests are answered from the image that the controller's driver keeps. Every change to the cluster goes to the
controller (`decide`), and comes back as events once the store has it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from tidelog.config.broker_config import BrokerConfig
from tidelog.config.listeners import inter_broker_listener
from tidelog.config.topic_config import fields
from tidelog.control.config_rules import Rules
from tidelog.control.controller import Controller
from tidelog.control.driver import Driver, Then
from tidelog.control.events import Event
from tidelog.control.image import Image, NodeChange
from tidelog.control.model import ConfigResource, Partition, ResourceType
from tidelog.control.plan import Plan
from tidelog.control.settings import ControllerSettings
from tidelog.control.steps import always
from tidelog.control.topic_names import why_invalid
from tidelog.log.config import LogConfig
from tidelog.log.directories.directory_set import MetadataVersion
from tidelog.metadata.store import Connection, MetadataStore, RefusedByEnsemble, SessionExpired, StoreRefusal
from tidelog.peers.requester import PeerAddress
from tidelog.timer.host import Host
from tidelog.wire.errors import ErrorCode
from tidelog.wire.ids import ZERO_UUID

R = TypeVar("R")
Item = TypeVar("Item")
LOG_FIELDS: Final = frozenset(LogConfig.__dataclass_fields__)
MAX_LOG_CONFIGS: Final = 1_000
NO_EPOCH: Final = -1
#: of one transaction on a shared store: ZooKeeper takes a megabyte, in which there must be room for the chroot as well
MAX_OPS: Final = 1_000
MAX_BYTES: Final = 800_000
WILDCARD_HOSTS: Final = frozenset(("", "0.0.0.0", "::"))


class AdvertisedBroker(NamedTuple):
    """A broker as a client on some listener is told of it."""

    id: int
    host: str
    port: int
    rack: str | None


class Asker(Protocol):
    """The connection that a request came on, as far as metadata depends on it."""

    @property
    def listener_name(self) -> str: ...

    @property
    def local_host(self) -> str:
        """The address of this machine that the client connected to."""


class ClusterView:
    """`is_shared`: other brokers, and people, use the store as well."""

    def __init__(
        self, config: BrokerConfig, store: MetadataStore, host: Host, random: Random, is_shared: bool = False
    ) -> None:
        self.id = config.broker_id
        self.config = config
        self.is_shared = is_shared
        self._host = host
        self.new_id: Callable[[], bytes] = lambda: random.randbytes(16)
        self.controller = Controller(
            self.id, Rules(config, lambda other: other in self.image.brokers), random, self.new_id, self._settings()
        )
        #: told of everything that the store has committed; see `Driver`
        self.on_events: Callable[[list[Event]], Callable[[Then], None] | None] = lambda events: None
        #: calls what it is given when the other brokers know what was decided; see `tidelog.node.voice`
        self.when_heard: Callable[[Then], None] = lambda then: then()
        #: names of topics some partitions of which are still to be made on this broker
        self.unplaced: set[str] = set()
        #: told once, with the reason, when the store answers nothing more
        self.on_store_failed: Callable[[str], None] = lambda reason: None
        #: told of what goes into the image; see `Driver.on_image`
        self.on_image: Callable[[Sequence[NodeChange] | None], None] = lambda changes: None
        #: told when the session of a shared store is over, once for each
        self.on_session_lost: Callable[[], None] = lambda: None
        #: of the present session
        self.store = store
        self.driver = self._driver(store)
        #: what a topic's own settings come to: most topics have the same, and a topic many partitions
        self._log_configs: dict[tuple[tuple[str, str], ...], LogConfig] = {}
        #: while the logs are opened: the configurations of topics, which the image does not know yet
        self.configs_found: Mapping[str, Mapping[str, str]] | None = None
        config.on_change(["unclean.leader.election.enable"], lambda names: self._refresh_settings())

    def _driver(self, store: MetadataStore) -> Driver:
        driver = Driver(
            self.controller, store, self._host.clock.wall_ms, lambda events: self.on_events(events), self._store_failed
        )
        driver.is_shared = self.is_shared
        driver.on_rival = self._rival_registered
        driver.notice = self._host.notice
        if self.is_shared:
            driver.on_image = lambda changes: self.on_image(changes)
        return driver

    def go_on_with(self, store: MetadataStore) -> None:
        """A new session takes the place of one that is over. The image stays, to see by what changed meanwhile."""
        self.driver.close()
        self.store = store
        self.driver = self._driver(store)

    def _settings(self) -> ControllerSettings:
        values = self.config.values
        settings = ControllerSettings(
            num_partitions=values.num_partitions,
            default_replication_factor=values.default_replication_factor,
            delete_topic_enable=values.delete_topic_enable,
            unclean_leader_election_enable=values.unclean_leader_election_enable,
            leader_imbalance_per_broker_percentage=values.leader_imbalance_per_broker_percentage,
            renews_returned_leaders=self.is_shared,
        )
        if self.is_shared:
            settings.max_ops, settings.max_bytes = MAX_OPS, MAX_BYTES
        return settings

    def _refresh_settings(self) -> None:
        fresh = self._settings()
        for name in ControllerSettings.__dataclass_fields__:
            setattr(self.controller.settings, name, getattr(fresh, name))

    def _store_failed(self, refusal: StoreRefusal) -> None:
        """The store answers nothing more, so nothing that needs it can be decided, and another may rule by now."""
        if self.is_shared and isinstance(refusal, SessionExpired):
            self.on_session_lost()
            return
        why = "it could not be written"
        if isinstance(refusal, SessionExpired | RefusedByEnsemble):
            why = "its session has expired" if isinstance(refusal, SessionExpired) else "it refused to be read"
        self.on_store_failed(f"the metadata store has failed ({why}, at {refusal.path}): the broker stops. Restart it")

    def _rival_registered(self, reason: str) -> None:
        self.on_store_failed(f"{reason}: this broker stops. Give each broker a broker.id of its own")

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

    @property
    def broker_epoch(self) -> int:
        """Of this broker's registration; -1 before it has one in its present session."""
        return self.driver.broker_epoch

    def is_of_before(self, assigned: Partition) -> bool:
        """Whether a partition's state was decided before this process had registered."""
        return self.is_shared and (self.broker_epoch == NO_EPOCH or assigned.state_zxid < self.broker_epoch)

    @property
    def known_epoch(self) -> int:
        """Of the newest registration of this broker that is known, be its session over or not."""
        registered = self.image.brokers.get(self.id)
        return NO_EPOCH if registered is None else registered.epoch

    @property
    def metadata_version(self) -> MetadataVersion:
        """How far the metadata is, as this broker was told: what it knows of a shared store ends with its own
        registration, and whatever happened to partitions since."""
        life = self.image.controller_epoch
        if not self.is_shared:
            return MetadataVersion(life)
        topics = self.image.topics.values()
        newest = max((p.state_zxid for topic in topics for p in topic.partitions), default=0)
        return MetadataVersion(life, max(newest, self.known_epoch))

    @property
    def is_last(self) -> bool:
        """Nobody else is there to hand anything over to."""
        return self.image.brokers.keys() <= {self.id}

    def nodes(self, asker: Asker) -> list[AdvertisedBroker]:
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
                    found.append(AdvertisedBroker(broker.broker_id, host, endpoint.port, broker.rack))
        return found

    def peer(self, broker_id: int) -> PeerAddress | None:
        """Where that broker is reached by the others; None where it does not live, or not for them."""
        broker = self.image.brokers.get(broker_id)
        if broker is None:
            return None
        listener = inter_broker_listener(self.config)
        return next(
            (PeerAddress(broker_id, each.host, each.port) for each in broker.endpoints if each.listener == listener),
            None,
        )

    def topic_name(self, topic_id: bytes) -> str:
        """The name of a topic, "" where there is none with this id."""
        return self.image.topic_names.get(topic_id, "")

    def topic_id(self, name: str) -> bytes:
        topic = self.image.topics.get(name)
        return ZERO_UUID if topic is None else topic.topic_id

    def leader_of(self, topic: str, index: int) -> tuple[int, int] | None:
        """(leader, leader epoch) of a partition that exists."""
        partition = self.image.partition(topic, index)
        return None if partition is None else (partition.leader, partition.leader_epoch)

    def unknown_topic_error(self, name: str) -> int:
        invalid = why_invalid(name) is not None
        return ErrorCode.INVALID_TOPIC_EXCEPTION if invalid else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def why_missing(self, topic: str, index: int) -> ErrorCode:
        """What a client is told of a partition that has no replica on this broker which could serve it."""
        assigned = self.image.partition(topic, index)
        if assigned is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if topic in self.unplaced:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        # Assigned here and yet not there: its log directory has failed.
        return ErrorCode.KAFKA_STORAGE_ERROR if self.id in assigned.replicas else ErrorCode.NOT_LEADER_OR_FOLLOWER

    # --- asking the controller ----------------------------------------------------------------------

    @property
    def is_cut_off(self) -> bool:
        """There is no connection to the store: nothing can be decided."""
        return self.store.connection is not Connection.CONNECTED

    def decide(
        self,
        plan: Callable[[Controller], Plan[R]],
        done: Callable[[R], None],
        is_wanted: Callable[[], bool] = always,
    ) -> None:
        """Has the controller decide and the decision carried out; `done` gets what to answer, when the other brokers
        know of it. What is not wanted any more when its turn comes is not decided, and nobody is told."""
        self.driver.request(
            lambda: plan(self.controller), lambda reply: self.when_heard(lambda: done(reply)), is_wanted
        )

    def decide_at_once(self, plan: Callable[[Controller], Plan[R]], done: Callable[[R], None]) -> None:
        """As `decide`, but the answer does not wait until the other brokers know."""
        self.driver.request(lambda: plan(self.controller), done)

    def decide_in_parts(
        self,
        parts: Sequence[Sequence[Item]],
        plan: Callable[[Controller, Sequence[Item]], Plan[list[R]]],
        done: Callable[[list[R]], None],
        is_wanted: Callable[[], bool] = always,
    ) -> None:
        """As `decide`, one part after the other; others have their turn in between. `done` gets all results."""
        results: list[R] = []
        left = deque(parts)

        def decide_next() -> None:
            part = left.popleft()
            self.decide(lambda controller: plan(controller, part), decided, is_wanted)

        def decided(some: list[R]) -> None:
            results.extend(some)
            if left:
                self._host.workers.call_soon(decide_next)
            else:
                done(results)

        decide_next()

    # --- configurations -----------------------------------------------------------------------------

    def load_dynamic(self, values: Mapping[str, str], per_broker: bool) -> tuple[bool, list[str]]:
        """Takes the broker's dynamic settings; whether the defaults of topics changed, and what to warn of."""
        defaults = self.config.topic_defaults()
        warnings = list(self.config.load_dynamic(values, per_broker=per_broker))
        self._log_configs.clear()
        return self.config.topic_defaults() != defaults, warnings

    def log_config(self, topic: str) -> LogConfig:
        """What a topic's logs are configured with: its own overrides over the broker's values."""
        if self.configs_found is not None:
            overrides: Mapping[str, str] = self.configs_found.get(topic, {})
        else:
            overrides = self.image.config(ConfigResource(ResourceType.TOPIC, topic))
        key = tuple(sorted(overrides.items()))
        found = self._log_configs.get(key)
        if found is None:
            known = fields(overrides, self.config)
            values: dict[str, Any] = {name: value for name, value in known.items() if name in LOG_FIELDS}
            found = LogConfig(**values, max_unpacked_bytes=self.config.values.tidelog_max_decompressed_bytes)
            if len(self._log_configs) >= MAX_LOG_CONFIGS:
                self._log_configs.clear()
            self._log_configs[key] = found
        return found
