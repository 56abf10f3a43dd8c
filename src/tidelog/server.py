"""A broker with its sockets: what `tidelog serve` runs.

Start: the metadata store is opened (which locks it), the log directories are locked and recovered, the listeners are
bound, the broker registers and opens its partitions, and only then are connections accepted. When the ready line is
printed, clients can produce.

With `zookeeper.connect` the metadata is on ZooKeeper, and the broker is one of several. Connections are accepted before
it registers, since the controller tells it what it has to know; until then only that is answered.

Stop (SIGTERM, SIGINT): a broker among others has its leaders moved away first. Then no new connections are accepted,
requests in progress are answered, logs are flushed and closed, and the store is closed. A second signal does not wait
for the clients.
"""

from __future__ import annotations

import errno
import gc
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any, Final

from tidelog.api.dispatch import Dispatcher
from tidelog.broker import Broker
from tidelog.clock import SystemClock
from tidelog.config.broker_config import BrokerConfig
from tidelog.config.checks import connection_overrides
from tidelog.config.definitions import LISTENER_LIMITS
from tidelog.config.listeners import (
    ListenerEndpoint,
    advertised_listeners,
    bound_listeners,
    inter_broker_listener,
)
from tidelog.config.sources import read_flags
from tidelog.config.unkept import refuse_unkept
from tidelog.control.nodes import Endpoint
from tidelog.journal import Journal
from tidelog.log.disk import SystemDisk
from tidelog.log.errors import LogError
from tidelog.metadata.embedded import EmbeddedStore, StoreLocked
from tidelog.metadata.journal_format import CorruptMetadata
from tidelog.metadata.place import StoreMisplaced, find_store, point_to_store
from tidelog.metadata.store import Connection, StoreRefusal
from tidelog.net.limits import Limits, ListenerLimits
from tidelog.net.loop import Loop
from tidelog.net.server import Server as Sockets
from tidelog.node.adoption import written_by
from tidelog.timer.host import Host
from tidelog.timer.wheel import Timer
from tidelog.wire.errors import ErrorCode

if TYPE_CHECKING:
    from tidelog.config.sources import Settings
    from tidelog.config.zookeeper_settings import ZooKeeperSettings
    from tidelog.control.errors import ApiError
    from tidelog.metadata.zookeeper import ZooKeeperStore
    from tidelog.metrics.http_server import HttpServer
    from tidelog.net.link import ConnectTimes
    from tidelog.net.requester import PeerRequester

DRAIN_MS: Final = 10_000
#: of a broker that has taken its time to hand over its leaders, in all and for the drain alone
STOP_MS: Final = 12_000
LEAST_DRAIN_MS: Final = 2_000
#: how long a broker that stops waits for ZooKeeper to end its session
CLOSE_MS: Final = 3_000
SWITCH_INTERVAL_S: Final = 0.0005
#: what can be altered of the network's limits while the broker runs
LIMIT_NAMES: Final = (
    "max.connections",
    "max.connections.per.ip",
    "max.connections.per.ip.overrides",
    "max.connection.creation.rate",
)


class StartFailed(Exception):
    """The broker cannot start; the message says why and what to do."""


class BrokerServer:
    def __init__(self, config: BrokerConfig, journal: Journal | None = None) -> None:
        self.config = config
        self.journal = journal or Journal()
        self.clock = SystemClock()
        self.timer = Timer(self.clock.monotonic_ms(), lambda task, error: self.journal.error("a timer failed", error))
        self.loop = Loop(self.clock, self.timer, self.journal.error)
        #: while the broker starts, work is done at once: there is nobody to keep waiting
        self._started = False
        self._stopping = False
        self._raise_file_limit()
        self._keep_to_owner_and_group()
        #: why the broker stopped though nobody told it to
        self.failure: str | None = None
        self._zookeeper = _zookeeper_of(config)
        self._connection: Connection | None = None
        self._store_directory = "" if self._zookeeper else self._find_store()
        self.store: EmbeddedStore | ZooKeeperStore = self._open_zookeeper() if self._zookeeper else self._open_store()
        if self._zookeeper and config.get("broker.id") < 0:
            self._settle_broker_id()
        host = Host(self.clock, self.timer, self.loop, self.journal.error, self.journal.warning)
        #: the way to the other brokers, where there can be any
        self.requester = self._make_requester(host) if self._zookeeper else None
        self.broker = Broker(
            config,
            self.store,
            SystemDisk(),
            host,
            requester=self.requester,
            is_alone=self._zookeeper is None,
            open_store=self._open_zookeeper if self._zookeeper else None,
        )
        dispatcher = Dispatcher(self.broker.doors)
        self.sockets = Sockets(self.loop, limits_of(config), dispatcher, self.journal.warning)
        self._http = self._make_http(dispatcher)
        #: where metrics and the like are served, if they are
        self.http_address: tuple[str, int] | None = None
        self.broker.on_fatal = self._fail
        self.broker.log_level.on_change = self.journal.set_level
        config.on_change(_limit_names(config), lambda names: self._limit())
        self.addresses: list[tuple[str, int]] = []

    @staticmethod
    def _raise_file_limit() -> None:
        """As many open files as the system lets this process have: partitions and connections both take them."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft < hard:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

    @staticmethod
    def _keep_to_owner_and_group() -> None:
        """Directories are 0750 and files 0640 from now on, or less where the umask already allows less."""
        os.umask(os.umask(0o777) | 0o027)

    def _find_store(self) -> str:
        try:
            return find_store(self.config.log_dirs)
        except StoreMisplaced as error:
            raise StartFailed(str(error)) from None

    def _open_store(self) -> EmbeddedStore:
        directory = self._store_directory
        try:
            return EmbeddedStore(directory, self._execute, on_no_room=self._store_full)
        except StoreLocked:
            raise StartFailed(
                f"another broker uses the data directory {directory}. Stop it, or use another directory"
            ) from None
        except CorruptMetadata as error:
            raise StartFailed(f"the metadata in {directory} is damaged: {error}. Restore it from a backup") from error
        except OSError as error:
            raise StartFailed(f"the data directory {directory} cannot be used: {error.strerror}") from error

    def _open_zookeeper(self) -> ZooKeeperStore:
        """A new session, which is being made when this returns."""
        from tidelog.metadata.zookeeper import open_store  # only here: kazoo takes its time to import

        assert self._zookeeper is not None
        self.store = open_store(
            self._zookeeper,
            self.loop.call_soon_threadsafe,
            on_connection=self._connection_changed,
            notice=self.journal.warning,
        )
        return self.store

    def _make_requester(self, host: Host) -> PeerRequester:
        # Late: a broker that works alone starts sooner without.
        from tidelog.net.requester import PeerRequester
        from tidelog.net.socket_channel import SocketDialler

        dialler = SocketDialler(self.loop)
        return PeerRequester(self.config.broker_id, host, dialler, Random(), connect_times_of(self.config))

    def _connection_changed(self, connection: Connection) -> None:
        before, self._connection = self._connection, connection
        if connection is Connection.SUSPENDED:
            self.journal.warning(f"the connection to ZooKeeper at {self._zookeeper} is lost: connecting again")
        elif connection is Connection.UNREACHABLE and self._started:
            self.journal.warning(f"ZooKeeper at {self._zookeeper} cannot be reached: trying again")
        elif connection is Connection.CONNECTED and before in (Connection.SUSPENDED, Connection.UNREACHABLE):
            self.journal.warning(f"connected to ZooKeeper at {self._zookeeper} again")

    def _settle_broker_id(self) -> None:
        """A broker that was given no id has one in its log directories, or gets one from ZooKeeper."""
        from tidelog.node.founding import choose_broker_id

        found: list[int | StoreRefusal | str] = []
        choose_broker_id(self.store, self.config, SystemDisk(), found.append)
        self._turn_until(lambda: bool(found))
        if not isinstance(found[0], int):
            raise StartFailed(found[0] if isinstance(found[0], str) else self._unusable(found[0].path))
        self.config.settle("broker.id", str(found[0]))

    def _turn_until(self, ready: Callable[[], bool]) -> None:
        """Runs the loop while the broker starts. Raises StartFailed where ZooKeeper cannot be reached."""
        while not ready():
            if self.failure is not None:
                raise StartFailed(self.failure)
            if self._connection is Connection.UNREACHABLE:
                raise StartFailed(
                    f"ZooKeeper at {self._zookeeper} cannot be reached. Is it running, and is zookeeper.connect right?"
                )
            self.loop.turn(20)

    def _unusable(self, what: str | None) -> str:
        return f"the metadata store cannot be used: {what or 'no answer'}"

    def _store_full(self, error: OSError) -> None:
        """The log directory that the store lives in tells of it."""
        for directory in self.broker.data.logs.dirs:
            if directory.path == self._store_directory:
                directory.no_room = error

    def _execute(self, work: Callable[[], object], done: Callable[[object], None]) -> None:
        if self._started:
            self.loop.in_worker(work, lambda result, error: done(error if error is not None else result))
        else:
            done(work())

    # --- starting -----------------------------------------------------------------------------------

    def start(self) -> None:
        """Returns when the broker can serve; raises StartFailed where it cannot."""
        opened: list[str | None] = []
        try:
            self.broker.open(opened.append)
            if self._zookeeper:
                self._turn_until(lambda: bool(opened))
        except LogError as error:
            raise StartFailed(str(error)) from error
        if not opened or opened[0] is not None:
            raise StartFailed(self._unusable(opened[0] if opened else None))
        if self._zookeeper is None:
            self._point_to_store()
        bound: dict[str, int] = {}
        listeners = bound_listeners(self.config)
        between_brokers = inter_broker_listener(self.config)
        for listener in listeners:
            # One that clients use as well cannot be kept free of them.
            protected = listener.name == between_brokers and len(listeners) > 1
            try:
                host, port = self.sockets.listen(listener.host, listener.port, listener.name, protected)
            except OSError as error:
                where = f"{listener.host or '*'}:{listener.port}"
                raise StartFailed(f"cannot listen on {where}: {error.strerror}. {_how_to_listen(error)}") from error
            bound[listener.name] = port
            self.addresses.append((host, port))
        self._listen_http()
        outcome: list[ApiError] = []
        self.broker.join(self._endpoints(bound), outcome.append)
        if self._zookeeper:
            self._turn_until(lambda: bool(outcome))
        if not outcome or outcome[0].is_failure:
            raise StartFailed(self._why_not_joined(outcome))
        if isinstance(self.store, EmbeddedStore):
            self.store.started()
        self.broker.start_upkeep()
        self._started = True
        # What lives now lives as long as the broker: keep the cyclic collector from walking it again and again.
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 20, 100)
        # While a worker computes, the loop waits this long whenever it comes back from the system, several times for
        # each request; the default is ten times as long.
        sys.setswitchinterval(SWITCH_INTERVAL_S)

    def _point_to_store(self) -> None:
        working = [directory.path for directory in self.broker.data.logs.dirs if directory.failure is None]
        try:
            point_to_store(self._store_directory, working)
        except OSError as error:
            self.journal.warning(f"{error.filename} cannot be read to find the metadata: {error.strerror}")

    def _make_http(self, dispatcher: Dispatcher) -> HttpServer | None:
        if self.config.get("tidelog.http.port") is None:
            return None
        # Late: most brokers of tests, and those that nobody watches, start without it.
        from tidelog.metrics.collector import Collector
        from tidelog.metrics.endpoints import Endpoints
        from tidelog.metrics.http_server import HttpServer

        has_zookeeper = None if self._zookeeper is None else lambda: self._connection is Connection.CONNECTED
        collector = Collector(self.broker, dispatcher, self.sockets, lambda: self._stopping, has_zookeeper)
        return HttpServer(self.loop, Endpoints(self.broker, collector, self._why_not_ready).answer)

    def _listen_http(self) -> None:
        if self._http is None:
            return
        host, port = self.config.get("tidelog.http.host"), self.config.get("tidelog.http.port")
        try:
            self.http_address = self._http.listen(host, port)
        except OSError as error:
            hint = "Choose another with --http-port, or 0 for any free port"
            raise StartFailed(f"cannot serve metrics on {host or '*'}:{port}: {error.strerror}. {hint}") from error

    def _why_not_ready(self) -> str | None:
        if self._stopping:
            return "the broker is stopping"
        if not self._started or self.broker.cluster.broker_epoch < 0:
            return "the broker is not registered with the cluster"
        return None

    def _why_not_joined(self, outcome: list[ApiError]) -> str:
        if outcome and outcome[0].code == ErrorCode.KAFKA_STORAGE_ERROR and self._zookeeper is None:
            # What is kept for this case is used up, or was never made.
            return f"the disk of {self._store_directory} is full, but starting needs some space. Free some on it"
        return f"the broker cannot join the cluster: {outcome[0].message if outcome else 'no answer'}"

    def _endpoints(self, bound: dict[str, int]) -> list[Endpoint]:
        return [
            Endpoint(e.name, e.security_protocol, e.host, e.port or bound.get(e.name, 0))
            for e in advertised_listeners(self.config)
        ]

    # --- running ------------------------------------------------------------------------------------

    def run(self, on_ready: Callable[[BrokerServer], None]) -> None:
        """Serves until a signal comes. Call `start` first."""
        for number in (signal.SIGTERM, signal.SIGINT):
            self.loop.on_signal(number, self.stop)
        on_ready(self)
        self.loop.run()
        self._close()

    def stop(self) -> None:
        """Answers what is under way, then ends `run`. A second call does not wait."""
        if self._stopping:
            self.loop.stop()
            return
        self._stopping = True
        last_ms = self.clock.monotonic_ms() + STOP_MS

        def drain() -> None:
            now_ms = self.clock.monotonic_ms()
            self.sockets.drain(self.loop.stop, max(min(now_ms + DRAIN_MS, last_ms), now_ms + LEAST_DRAIN_MS))

        self.broker.leave(drain)

    def _fail(self, reason: str) -> None:
        """This broker cannot go on: clients are better served by its absence, which they know how to handle."""
        if self.failure is None:
            self.failure = reason
            self.journal.error(reason)
            self._stopping = True
            # Without a drain: what waits for the store, or for a disk that is gone, waits in vain.
            self.loop.stop()

    def _limit(self) -> None:
        """Limits of the network that were altered while the broker runs hold for what comes next."""
        fresh = limits_of(self.config)
        for name in Limits.__dataclass_fields__:
            setattr(self.sockets.limits, name, getattr(fresh, name))
        self.sockets.limits_changed()

    def _close(self) -> None:
        self._started = False
        if self.requester is not None:
            self.requester.close()
        if self._http is not None:
            self._http.close()
        self.broker.close()
        self._close_store()
        self.loop.close()

    def _close_store(self) -> None:
        if isinstance(self.store, EmbeddedStore):
            self.store.close()
            return
        # The ensemble is told, so that nobody waits until the session has expired.
        closed: list[bool] = []
        self.store.close(lambda: closed.append(True))
        deadline_ms = self.clock.monotonic_ms() + CLOSE_MS
        while not closed and self.clock.monotonic_ms() < deadline_ms:
            self.loop.turn(20)

    def describe(self) -> str:
        """The line that says where the broker can be reached."""
        host, port = self.addresses[0]
        shown = f"[{host}]" if ":" in host else host
        data = ",".join(os.path.abspath(path) for path in self.config.log_dirs)
        cluster = self.broker.cluster
        http = "" if self.http_address is None else f", http {self.http_address[0]}:{self.http_address[1]}"
        return f"tidelog ready on {shown}:{port} (broker {cluster.id}, cluster {cluster.cluster_id}{http}, data {data})"


def _limit_names(config: BrokerConfig) -> list[str]:
    """What can be altered of the network's limits while the broker runs, for all listeners and for one of them."""
    own = [endpoint.own_setting(name) for endpoint in bound_listeners(config) for name in LISTENER_LIMITS]
    return [*LIMIT_NAMES, *own]


def _listener_limits(config: BrokerConfig) -> dict[str, ListenerLimits]:
    def own(endpoint: ListenerEndpoint, name: str) -> int:
        setting = endpoint.own_setting(name)
        return int(config.get(setting)) if config.is_set(setting) else -1

    return {e.name: ListenerLimits(*(own(e, name) for name in LISTENER_LIMITS)) for e in bound_listeners(config)}


def _how_to_listen(error: OSError) -> str:
    if error.errno == errno.EADDRNOTAVAIL or isinstance(error, socket.gaierror):
        return "Set --host to an address of this machine: 127.0.0.1, or 0.0.0.0 for all"
    if error.errno == errno.EACCES:
        return "Ports below 1024 need privileges: choose another port with --port"
    return "Choose another port with --port, or 0 for any free port"


def limits_of(config: BrokerConfig) -> Limits:
    """The network's limits under Kafka's names; values that this broker leaves to its own defaults are not named."""
    values: Any = config.values
    return Limits(
        socket_request_max_bytes=values.socket_request_max_bytes,
        queued_max_request_bytes=values.queued_max_request_bytes,
        # Kafka's default is no limit at all; one process cannot hold that many descriptors.
        max_connections=values.max_connections if config.is_set("max.connections") else Limits().max_connections,
        max_connections_per_ip=values.max_connections_per_ip,
        max_connections_per_ip_overrides=connection_overrides(config),
        max_connection_creation_rate=(
            values.max_connection_creation_rate if config.is_set("max.connection.creation.rate") else -1
        ),
        of_listeners=_listener_limits(config),
        connections_max_idle_ms=values.connections_max_idle_ms,
        socket_listen_backlog_size=values.socket_listen_backlog_size,
        socket_send_buffer_bytes=values.socket_send_buffer_bytes,
        # Kafka's default of 100 KiB costs large requests several times the CPU: the system sizes it unless told.
        socket_receive_buffer_bytes=(
            values.socket_receive_buffer_bytes if config.is_set("socket.receive.buffer.bytes") else -1
        ),
    )


def _zookeeper_of(config: BrokerConfig) -> ZooKeeperSettings | None:
    if not config.get("zookeeper.connect"):
        return None
    from tidelog.config.zookeeper_settings import zookeeper_settings

    return zookeeper_settings(config)


def connect_times_of(config: BrokerConfig) -> ConnectTimes:
    """How long this broker waits for its connections to others."""
    from tidelog.net.link import ConnectTimes

    values: Any = config.values
    return ConnectTimes(
        setup_ms=values.socket_connection_setup_timeout_ms,
        setup_max_ms=values.socket_connection_setup_timeout_max_ms,
    )


def configure(settings: Settings, data_dir: str | None, host: str | None, port: int | None) -> BrokerConfig:
    """The configuration of a broker that starts: what asks for more than it has is refused.

    That comes first, because the short options of the command line replace a part of the settings.
    """
    refuse_unkept(settings.by_name, settings.ignored)
    return combine(settings, data_dir, host, port)


def combine(settings: Settings, data_dir: str | None, host: str | None, port: int | None) -> BrokerConfig:
    """The configuration of a broker from its settings and the short options of the command line.

    Without any address given it listens on the loopback interface only: a broker without authentication is not
    offered to the network unless somebody says so.
    """
    flags = []
    if data_dir is not None:
        flags.append(f"log.dirs={os.path.abspath(data_dir)}")
    elif not {"log.dirs", "log.dir"} & set(settings.by_name):
        flags.append(f"log.dirs={os.path.abspath('tidelog-data')}")
    is_placed = host is not None or port is not None
    for name, effect in (("listeners", "is replaced by"), ("advertised.listeners", "is advertised to clients despite")):
        if is_placed and name in settings.by_name:
            given = settings.by_name[name]
            settings.warnings.append(f"{given.where}: {name}={given.text} {effect} --host and --port")
    if is_placed or "listeners" not in settings.by_name:
        shown = f"[{host}]" if host and ":" in host else host if host is not None else "127.0.0.1"
        flags.append(f"listeners=PLAINTEXT://{shown}:{9092 if port is None else port}")
    settings.overlay(read_flags(flags))
    config = BrokerConfig(settings)
    if config.get("broker.id") < 0:
        found = written_by(SystemDisk(), config.log_dirs)
        if found is not None:
            # The directory has an owner already: this broker is that one.
            config.settle("broker.id", str(found.node_id))
    return config
