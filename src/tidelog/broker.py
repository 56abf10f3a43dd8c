"""A broker without its sockets: the rooms, put together.

    the view of the cluster ─▶ what is assigned to this broker ─▶ the data plane
    coordinators, upkeep    ─▶ over the data plane

Nothing is decided here. `server` gives a broker its sockets, and everything runs on one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from random import Random
from typing import TYPE_CHECKING, Final

from tidelog.api.doors import Doors
from tidelog.config.broker_config import BrokerConfig
from tidelog.control.controller import Registration
from tidelog.control.errors import ApiError
from tidelog.control.image import NodeChange
from tidelog.control.nodes import Endpoint, LostLogs
from tidelog.coordinator.delays import Delays
from tidelog.coordinator.groups import GroupCoordination
from tidelog.coordinator.marker_delivery import MarkerDelivery
from tidelog.coordinator.markers import Markers
from tidelog.coordinator.producer_ids import ProducerIds
from tidelog.coordinator.sizing import partitions_of
from tidelog.coordinator.transactions import TransactionCoordination
from tidelog.log.directories.directory_set import OLD_VERSION
from tidelog.log.directories.judging import judge
from tidelog.log.disk import Disk
from tidelog.log.errors import LogError
from tidelog.log.log import Log
from tidelog.metadata.store import MetadataStore, StoreRefusal, TreeResult
from tidelog.node import adoption
from tidelog.node.assignments import Assignments
from tidelog.node.cluster_view import ClusterView
from tidelog.node.controller_door import ControllerDoor
from tidelog.node.data_plane import DataPlane
from tidelog.node.generations import Generations
from tidelog.node.hearing import Hearing
from tidelog.node.internal_topics import COORDINATOR_TOPICS, internal_topic, overrides_of
from tidelog.node.log_level import LogLevel
from tidelog.node.offline_replicas import OfflineReplicas
from tidelog.node.replication import Replication
from tidelog.node.topic_creation import TopicCreator
from tidelog.node.unfit_replicas import UnfitReplicas
from tidelog.peers.requester import NoPeers, Requester
from tidelog.timer.host import Host
from tidelog.timer.slices import Slices
from tidelog.upkeep.cleaning import Cleaning
from tidelog.upkeep.housekeeping import Housekeeping
from tidelog.upkeep.moving import Moves

if TYPE_CHECKING:
    from tidelog.node.liveness import Liveness
    from tidelog.node.rejoining import Rejoining
    from tidelog.node.voice import Voice

#: imported when such a broker starts, for use at other times: by then it may have run out of descriptors, or its files
#: may have been replaced by those of another version
NEEDED_AMONG_OTHERS: Final = (
    "tidelog.node.founding",
    "tidelog.node.joining",
    "tidelog.node.leaving",
    "tidelog.replica.fetcher",
)
#: what the requests that wait for their turn among the long ones may hold in memory
LONG_REQUESTS_BYTES: Final = 64 * 1024 * 1024
#: `clean_broker_epoch` of directories that were not stopped in good order
NOT_CLEAN: Final = -1


class Broker:
    def __init__(
        self,
        config: BrokerConfig,
        store: MetadataStore,
        disk: Disk,
        host: Host,
        random: Random | None = None,
        requester: Requester | None = None,
        is_alone: bool = True,
        open_store: Callable[[], MetadataStore] | None = None,
    ) -> None:
        """`is_alone`: nobody else uses the store, and what it knows is what is found in the log directories. A broker
        among others shares the store, hears from the controller, and asks it. `open_store` begins a new session when
        that of the store is over; without it the broker stops."""
        random = random or Random()
        self.config = config
        self.id = config.broker_id
        self.host = host
        self._store = store
        self._disk = disk
        #: whether the logs that were found were compared with what the cluster assigns
        self._is_judged = is_alone
        #: told once, with the reason, when this broker cannot go on: whoever runs it stops it
        self.on_fatal: Callable[[str], None] = lambda reason: None
        #: the way to the other brokers
        self.requester: Requester = requester or NoPeers()
        peers = None if is_alone else self.requester

        self.cluster = ClusterView(config, store, host, random, is_shared=not is_alone)
        self.controller = ControllerDoor(self.cluster, peers, host)
        self.hearing = Hearing(self.cluster, host)
        self.data = DataPlane(self.cluster, disk, host, random)
        self.generations = Generations(self.id, self.data.logs)
        self.log_level = LogLevel()
        self._add_coordinators(peers)
        self._add_assignments()
        self._add_upkeep()
        self._add_membership(peers, open_store)
        self.doors = self._doors()

    def _add_coordinators(self, peers: Requester | None) -> None:
        """What runs on partitions of internal topics, and of delay topics."""
        config, cluster, data, host = self.config, self.cluster, self.data, self.host
        self.groups = GroupCoordination(config, data, host, cluster.new_id)
        self.producer_ids = ProducerIds(self.controller.allocate_producer_ids)
        self.markers = Markers(config, data, self.groups, host)
        self.transactions = TransactionCoordination(
            config,
            self.producer_ids,
            MarkerDelivery(cluster, self.markers, peers),
            _pattern,
            cluster,
            peers,
            data,
            host,
        )
        self.delays = Delays(cluster, data, self.producer_ids, peers, host)

    def _add_assignments(self) -> None:
        """What carries out the cluster's decisions on the data plane: who leads, who follows, what goes."""
        cluster, data, host = self.cluster, self.data, self.host
        alter_partition = self.controller.alter_partition
        residents = {each.topic: each for each in (self.groups, self.transactions)}
        unfit = UnfitReplicas(cluster, data, alter_partition, host)
        self.replication = Replication(cluster, data, self.requester, alter_partition, host)
        self.assignments = Assignments(
            cluster, data, residents, self.groups, self.delays, self.replication, unfit, host
        )
        cluster.on_events = self.assignments.carry_out
        self._offline = OfflineReplicas(data, self.assignments.take_offline, unfit, host)
        self.topics = TopicCreator(cluster, self.controller, self.assignments.placing, host.notice)

    def _add_upkeep(self) -> None:
        """What runs from time to time, whether or not there are requests."""
        self.moves = Moves(self.config, self.data, self.host)
        self.housekeeping = Housekeeping(
            self.cluster,
            self.data,
            self.assignments.placing,
            self._offline,
            self.generations,
            self.host,
            self._fail,
        )
        self.cleaning = Cleaning(self.config, self.data, self.host)

    def _add_membership(self, peers: Requester | None, open_store: Callable[[], MetadataStore] | None) -> None:
        """What only a broker among others needs: the controller's voice, and a way back when its session has ended."""
        cluster, host = self.cluster, self.host
        cluster.on_store_failed = self._fail
        self.voice: Voice | None = None
        self.liveness: Liveness | None = None
        self.rejoining: Rejoining | None = None
        if peers is None:
            return
        # Late, as whatever else only such a broker does: one that works alone starts sooner without.
        from tidelog.node.liveness import Liveness
        from tidelog.node.rejoining import Rejoining
        from tidelog.node.voice import Voice

        for name in NEEDED_AMONG_OTHERS:
            import_module(name)
        self.voice = Voice(cluster, peers, host)
        cluster.on_image = self._image_changed
        cluster.when_heard = self.voice.when_heard
        self.liveness = Liveness(cluster, self.voice, self.hearing, peers, host)
        if open_store is None:
            cluster.on_session_lost = lambda: self._fail("the session of the metadata store is over")
        else:
            self.rejoining = Rejoining(cluster, self.voice, self.assignments, open_store, peers, host, self._fail)
            cluster.on_session_lost = self.rejoining.session_lost

    def _doors(self) -> Doors:
        return Doors(
            config=self.config,
            host=self.host,
            cluster=self.cluster,
            controller=self.controller,
            hearing=self.hearing,
            data=self.data,
            topics=self.topics,
            groups=self.groups,
            transactions=self.transactions,
            markers=self.markers,
            delays=self.delays,
            producer_ids=self.producer_ids,
            moves=self.moves,
            log_level=self.log_level,
            slices=Slices(self.host, LONG_REQUESTS_BYTES),
            unpacking=Slices(self.host, LONG_REQUESTS_BYTES),
            unpacking_much=Slices(self.host, LONG_REQUESTS_BYTES),
        )

    def _fail(self, reason: str) -> None:
        self.on_fatal(reason)

    def _image_changed(self, changes: Sequence[NodeChange] | None) -> None:
        """Before anything is carried out, so that no partition that moved away is taken for one that belongs here."""
        if not self._is_judged and self.cluster.driver.has_picture:
            self._is_judged = True
            image, logs = self.cluster.image, self.data.logs
            version = OLD_VERSION if adoption.is_behind(image, logs.logs) else self.cluster.metadata_version
            for notice in judge(logs, adoption.placement_in(image, self.id)._replace(version=version)):
                self.host.notice(notice)
        if self.voice is not None:
            self.voice.image_changed(changes)

    # --- life ---------------------------------------------------------------------------------------

    def open(self, done: Callable[[str | None], None]) -> None:
        """Locks and recovers the log directories; `done` when the store knows the cluster and what is in them.

        It gets the reason where the store cannot be used, None where all is well. A broker among others reads no more
        than the cluster id: what belongs in the directories it hears from the controller.
        """
        if not self._is_judged:
            self._open_among_others(done)
            return

        def loaded(tree: TreeResult) -> None:
            if isinstance(tree, StoreRefusal):
                done(tree.path)
                return
            logs, new_id = self.data.logs, self.cluster.new_id
            known = adoption.known_cluster_id(tree)
            found = adoption.written_by(self._disk, self.config.log_dirs)
            cluster_id = known or (found.cluster_id if found else adoption.new_cluster_id(new_id))
            placement = None if known is None else adoption.placement_of(tree, self.id, whole=not self._store.losses)
            self.cluster.configs_found = adoption.topic_configs(tree)
            logs.open(self.id, cluster_id, self.host.clock.wall_ms(), placement)
            self.data.writing.begin()
            self.cluster.configs_found = None
            taking = adoption.Adoption(
                self.id,
                new_id,
                self._disk,
                lambda topic: overrides_of(topic, self.config, brokers=1),
                self._partitions_of,
                [key for directory in logs.dirs for key in directory.unopened],
            )
            if known is None:
                ops = taking.all_of(cluster_id, logs.logs.values())
            else:
                ops = taking.missing_from(tree, logs.logs.values()) if self._store.losses else []
            for notice in [*self._store.losses, *logs.take_notices(), *taking.notices]:
                self.host.notice(notice)
            if ops:
                self._store.submit(ops, lambda result: done(result.path if isinstance(result, StoreRefusal) else None))
            else:
                done(None)

        self._store.tree("/", loaded)

    def _open_among_others(self, done: Callable[[str | None], None]) -> None:
        from tidelog.node.founding import find_cluster

        known = adoption.written_by(self._disk, self.config.log_dirs)

        def found(cluster_id: str | StoreRefusal | None) -> None:
            if isinstance(cluster_id, StoreRefusal):
                done(cluster_id.path)
                return
            if cluster_id is None:
                assert known is not None, "a cluster is founded where none is known"
                # Everything in the directories would be taken for deleted.
                done(
                    f"the log directories belong to cluster {known.cluster_id}, and the metadata store knows no "
                    "cluster. Restore the store, or connect to the right one; to begin anew, use empty directories"
                )
                return
            logs = self.data.logs
            try:
                logs.open(self.id, cluster_id, self.host.clock.wall_ms(), is_judged_later=True)
                self.data.writing.begin()
            except LogError as error:
                done(str(error))
                return
            for notice in [*logs.take_notices(), *self.generations.compare()]:
                self.host.notice(notice)
            done(None)

        def compared(refusal: StoreRefusal | None) -> None:
            if refusal is not None:
                done(refusal.path)
            else:
                known_id = None if known is None else known.cluster_id
                find_cluster(self._store, known_id, self.cluster.new_id, self.host.notice, found)

        self.generations.read(self._store, compared)

    def _partitions_of(self, topic: str, logs: Mapping[int, Log], found: int) -> int:
        """Of a topic that is taken up from its directories, which speak of so many."""
        if topic not in COORDINATOR_TOPICS:
            return found
        return partitions_of(topic, logs, found, internal_topic(topic, self.config, brokers=1).num_partitions)

    def join(self, endpoints: list[Endpoint], done: Callable[[ApiError], None]) -> None:
        """Registers with the cluster and takes up what it assigns; `done` when this broker can serve."""
        if self.voice is not None:
            from tidelog.node.joining import JoiningCluster

            registration = self._registration(endpoints)
            joining = JoiningCluster(self.cluster, self.requester, self.host)
            joining.join(registration, self._joined(registration, done), replaces_former=True)
            return
        cluster, logs = self.cluster, self.data.logs

        def ready(error: ApiError) -> None:
            self.assignments.others_are_served = True
            done(error)

        def joined(error: ApiError) -> None:
            if error.is_failure:
                done(error)
                return
            logs.remember(cluster.metadata_version)
            self.moves.resume()
            if logs.clean_broker_epoch == NOT_CLEAN:
                # What the logs lost in a crash must be told from what is written in its place: by a new leader epoch.
                epoch = cluster.broker_epoch
                cluster.decide(lambda controller: controller.renew_leadership(self.id, epoch), ready)
            else:
                ready(error)

        cluster.driver.start(self._registration(endpoints), joined)

    def _registration(self, endpoints: list[Endpoint]) -> Registration:
        locked = [each.directory_id for each in self.data.logs.dirs if each.failure is None]
        return Registration(
            endpoints,
            self.config.get("broker.rack"),
            directories=locked,
            lost=self._lost(),
            damaged=self._damaged,
            # As the controller cannot know what stands in this broker's own files.
            cordoned=self.data.logs.cordoned.issuperset(self.config.log_dirs),
        )

    def _lost(self) -> LostLogs:
        logs = self.data.logs
        wanting = [log for log in logs.logs.values() if log.notes.incomplete]
        if not logs.is_incomplete and len(wanting) == len(logs.logs):
            return LostLogs.ALL
        return LostLogs.SOME if logs.is_incomplete or wanting else LostLogs.NONE

    def _damaged(self) -> list[tuple[bytes | None, int]]:
        return [(log.topic_id, log.partition) for log in self.data.logs.logs.values() if log.notes.damaged]

    def _joined(self, registration: Registration, done: Callable[[ApiError], None]) -> Callable[[ApiError], None]:
        def joined(error: ApiError) -> None:
            if not error.is_failure:
                if self.rejoining is not None:
                    self.rejoining.registration = registration.again
                self.data.logs.remember(self.cluster.metadata_version)
                self.generations.count(self.cluster.store)
                self.moves.resume()
                self.assignments.others_are_served = True
            done(error)

        return joined

    def start_upkeep(self) -> None:
        self.housekeeping.start()
        self.cleaning.start()
        self.replication.start()
        if self.liveness is not None:
            self.liveness.start()

    def leave(self, done: Callable[[], None]) -> None:
        """Before a clean stop: has other brokers take over what this one leads; `done` when they have, or cannot."""
        if self.voice is None:
            done()
        else:
            from tidelog.node.leaving import LeavingCluster

            LeavingCluster(self.cluster, self.controller, self.host).leave(done)

    def close(self) -> None:
        """A clean stop: everything is on the device, and the next start need not look."""
        if self.rejoining is not None:
            self.rejoining.is_stopped = True
        if self.liveness is not None:
            self.liveness.stop()
        self.replication.stop()
        self.housekeeping.stop()
        self.cleaning.stop()
        self.moves.stop()
        self.cluster.driver.close()
        self.controller.close()
        self.transactions.close()
        self.delays.close()
        if self.voice is not None:
            self.voice.close()
        self.data.close()


def _pattern(expression: str) -> Callable[[str], bool]:
    # Late: of all that is asked of transactions, only a list by pattern needs it.
    from tidelog.group.regex import pattern

    return pattern(expression)
