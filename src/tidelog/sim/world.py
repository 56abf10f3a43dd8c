"""The world of a simulation: its time, its network, its metadata ensemble, and the brokers on their machines."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from typing import Any, Final, cast

from tidelog.api.dispatch import Dispatcher
from tidelog.broker import Broker
from tidelog.config.broker_config import BrokerConfig
from tidelog.config.sources import load
from tidelog.control.errors import ApiError
from tidelog.control.image import Image, changes_of_commit, changes_of_tree
from tidelog.control.nodes import Endpoint
from tidelog.log.memory_disk import MemoryDisk
from tidelog.log.shared.commit_log import COMMIT
from tidelog.log.shared.commit_walk import walk_file
from tidelog.net.memory_network import MemoryNetwork, Weather
from tidelog.net.requester import PeerRequester
from tidelog.sim.ensemble import SimulatedEnsemble, SimulatedStore
from tidelog.sim.process import MachineClock, Process, TrueTime
from tidelog.sim.trace import Trace
from tidelog.sim.violation import Violation
from tidelog.timer.host import Host
from tidelog.timer.wheel import Timer
from tidelog.wire.batch import ATTRIBUTES_AT, iter_headers
from tidelog.wire.errors import CodedError, ErrorCode

PORT: Final = 9092
#: a process that failed is started again after so long
RESTART_MS: Final = 1_000
#: how fast a clock runs, for a million of the true one
RATES_PPM: Final = (990_000, 1_010_000)
SETTINGS: Final = {
    "log.dirs": "/data0",
    "zookeeper.session.timeout.ms": "6000",
    "replica.lag.time.max.ms": "3000",
    "replica.fetch.backoff.ms": "200",
    "log.index.size.max.bytes": "4096",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "group.initial.rebalance.delay.ms": "0",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "auto.create.topics.enable": "false",
}
#: files of the commit log are small, and checkpoints, rolls and reclaiming happen within a run
SHARED_SETTINGS: Final = {
    "log.layout": "shared",
    "shared.segment.bytes": "16384",
    "log.flush.offset.checkpoint.interval.ms": "1500",
    "log.roll.ms": "4000",
    "log.initial.task.delay.ms": "2000",
    "log.retention.check.interval.ms": "2500",
    "log.segment.delete.delay.ms": "1000",
}


class World:
    """`seed` decides everything that happens by chance."""

    def __init__(
        self, seed: int, brokers: int, settings: Mapping[str, str] | None = None, shared_brokers: int = 0
    ) -> None:
        """`shared_brokers`: so many, the first ones, are in the shared layout."""
        self.seed = seed
        self.time = TrueTime()
        self.timer = Timer(self.time.now_ms, lambda task, error: self._unforeseen("the world", "a timer failed", error))
        self.trace = Trace(self.time)
        self.network = MemoryNetwork(self.time, self.timer, self.random("network"), Weather(0, 3))
        self.ensemble = SimulatedEnsemble(self.time, self.timer, self.random("ensemble"))
        self.settings = {**SETTINGS, **(settings or {})}
        #: what was not foreseen: (who, what, error)
        self.unforeseen: list[tuple[str, str, BaseException | None]] = []
        #: the first promise that was broken
        self.violation: Violation | None = None
        self.steps = 0
        self._stored = self.read_store()
        self.ensemble.on_commit = lambda ops, result, session: self._stored.apply(changes_of_commit(ops, result))
        self.brokers = {
            broker_id: SimulatedBroker(self, broker_id, SHARED_SETTINGS if broker_id < shared_brokers else {})
            for broker_id in range(brokers)
        }
        self._machines = frozenset(site.machine for site in self.brokers.values())

    def random(self, purpose: str) -> Random:
        """A source of chance of its own for each purpose, so that one use more here changes nothing there."""
        return Random(f"{purpose} {self.seed}")

    def _unforeseen(self, who: str, what: str, error: BaseException | None) -> None:
        if isinstance(error, Violation):
            self.broken(error)
        elif error is None or (isinstance(error, CodedError) and error.code == ErrorCode.KAFKA_STORAGE_ERROR):
            # What comes without an exception was foreseen, and disks fail only because the simulation has them fail.
            self.trace.add(who, f"{what}: {error}" if error else what)
        else:
            self.unforeseen.append((who, what, error))
            self.trace.add(who, f"UNFORESEEN {what}: {error!r}")

    def broken(self, violation: Violation) -> None:
        if self.violation is None:
            self.violation = violation
            self.trace.add("oracle", str(violation))

    def host(self, who: str, clock: MachineClock, random: Random) -> tuple[Process, Host]:
        """A new process on a machine."""
        process = Process(
            self.time,
            self.timer,
            clock,
            random,
            lambda error: self._unforeseen(who, "a callback failed", error),
            partial(self.network.reached.add, who),
        )
        host = Host(
            clock,
            cast(Timer, process),
            process,
            lambda what, error: None if process.is_over else self._unforeseen(who, what, error),
            lambda text: self.trace.add(who, text),
        )
        return process, host

    # --- time ---------------------------------------------------------------------------------------------

    def take_reached(self) -> list[SimulatedBroker]:
        """The brokers that have done something since the last call."""
        reached = self.network.reached
        if reached.isdisjoint(self._machines):
            reached.clear()
            return []
        found = [site for site in self.brokers.values() if site.machine in reached]
        reached.clear()
        return found

    def step(self, end_ms: int) -> bool:
        """Moves to the next moment at which something happens; False where there is none until `end_ms`."""
        time, due_ms = self.time, self.timer.next_deadline_ms()
        if due_ms is None or due_ms > end_ms:
            time.now_ms = max(time.now_ms, end_ms)
            return False
        if due_ms > time.now_ms:
            time.now_ms = due_ms
        self.steps += 1
        self.timer.advance(time.now_ms)
        return True

    def later(self, span_ms: int, callback: Callable[[], object]) -> None:
        """Something that the world does."""
        self.timer.add(self.time.now_ms + span_ms, callback)

    # --- looking ------------------------------------------------------------------------------------------

    def stored(self) -> Image:
        """What the metadata ensemble holds, kept up to date."""
        return self._stored

    def read_store(self) -> Image:
        """The same, read as somebody reads it who knows nothing."""
        image = Image()
        image.apply(changes_of_tree(self.ensemble.tree.walk("/")))
        return image


class SimulatedBroker:
    """A machine on which a broker runs, however often its process is killed and started again."""

    def __init__(self, world: World, broker_id: int, settings: Mapping[str, str]) -> None:
        self.world = world
        self._settings = settings
        self.id = broker_id
        self.machine = f"b{broker_id}"
        self.disk = MemoryDisk(64)
        self.clock = MachineClock(world.time)
        self.lives = 0
        #: None while no process runs
        self.process: Process | None = None
        self.broker: Broker | None = None
        self.store: SimulatedStore | None = None
        self.is_ready = False
        #: why its processes ended though nobody killed them
        self.failures: list[str] = []
        #: something that it had synced is no longer what it was
        self.is_damaged = False
        #: it stays dead until somebody starts it
        self.is_held_down = False

    def __repr__(self) -> str:
        return self.machine

    @property
    def has_failed_directory(self) -> bool:
        return self.broker is not None and any(each.failure is not None for each in self.broker.data.logs.dirs)

    @property
    def has_unopened_log(self) -> bool:
        """Of which it could make nothing when it started, for want of room or by an error of the disk."""
        return self.broker is not None and any(each.unopened for each in self.broker.data.logs.dirs)

    @property
    def is_running(self) -> bool:
        return self.process is not None and not self.process.is_paused

    # --- life ---------------------------------------------------------------------------------------------

    def start(self) -> None:
        world = self.world
        self.lives += 1
        life = f"{self.machine} {self.lives}"
        self.is_held_down = False
        self.clock.drift(world.random(f"clock of {life}").randint(*RATES_PPM))
        process, host = world.host(self.machine, self.clock, world.random(f"workers of {life}"))
        settings = {
            "broker.id": str(self.id),
            "listeners": f"PLAINTEXT://{self.machine}:{PORT}",
            **world.settings,
            **self._settings,
        }
        config = BrokerConfig(load(flags=[f"{name}={value}" for name, value in settings.items()]))
        timeout_ms: int = config.values.zookeeper_session_timeout_ms

        def open_store() -> SimulatedStore:
            self.store = world.ensemble.connect(self.machine, process, timeout_ms)
            return self.store

        requester = PeerRequester(
            self.id, host, world.network.dialler(self.machine), world.random(f"requester of {life}")
        )
        broker = Broker(
            config,
            open_store(),
            self.disk,
            host,
            world.random(f"broker of {life}"),
            requester,
            is_alone=False,
            open_store=open_store,
        )
        broker.on_fatal = self._fail
        self.process, self.broker, self.is_ready = process, broker, False
        world.trace.add(self.machine, "starts")
        process.call_soon(lambda: self._open(broker, host))

    def _open(self, broker: Broker, host: Host) -> None:
        network = self.world.network

        def opened(failure: str | None) -> None:
            if failure is not None:
                self._fail(failure)
                return
            network.listen((self.machine, PORT), cast(Any, Dispatcher(broker.doors)), host)
            broker.join([Endpoint("PLAINTEXT", "PLAINTEXT", self.machine, PORT)], joined)

        def joined(error: ApiError) -> None:
            if error.is_failure:
                self._fail(f"cannot join: {error.message or error.code.name}")
                return
            self.is_ready = True
            self.world.trace.add(self.machine, "is ready")
            broker.start_upkeep()

        broker.open(opened)

    def _fail(self, reason: str) -> None:
        """The process ends of its own accord, and is started again after a while."""
        if self.process is None:
            return  # it has ended already, within the same callback
        self.failures.append(reason)
        self.world.trace.add(self.machine, f"fails: {reason}")
        self._end()
        lives = self.lives
        self.world.later(RESTART_MS, lambda: self.start() if self._may_restart(lives) else None)

    def _may_restart(self, lives: int) -> bool:
        return self.lives == lives and self.process is None and not self.is_held_down

    def kill(self) -> None:
        """The process dies; its machine, and what it wrote, are still there."""
        if self.process is not None:
            self.world.trace.add(self.machine, "is killed")
            self._end()
        self.is_held_down = True

    def _end(self) -> None:
        assert self.process is not None
        self.process.end()
        self.process, self.broker, self.is_ready = None, None, False
        self.world.network.stop(self.machine)
        for store in self.world.ensemble.of(self.machine):
            store.lose_connection()
            store.be_silent()
        self.disk.outlive()

    def stop(self) -> None:
        """A clean stop."""
        broker, process = self.broker, self.process
        if broker is None or process is None or not self.is_ready:
            self.kill()
            return
        # It may take seconds, and join once more meanwhile: nothing has settled before it is back.
        self.is_held_down, self.is_ready = True, False
        self.world.trace.add(self.machine, "stops")

        def left() -> None:
            if self.process is process:
                broker.close()
            if self.process is process:  # and its disk did not fail meanwhile
                for store in self.world.ensemble.of(self.machine):
                    self.world.ensemble.expire(store)
                self._end()
                self.world.trace.add(self.machine, "has stopped")

        broker.leave(left)

    def pause(self) -> None:
        if self.process is not None:
            self.world.trace.add(self.machine, "is paused")
            self.process.pause()
            self.world.network.pause(self.machine)
            for store in self.world.ensemble.of(self.machine):
                store.be_silent()

    def go_on(self) -> None:
        if self.process is not None and self.process.is_paused:
            self.world.trace.add(self.machine, "goes on")
            self.process.go_on()
            self.world.network.resume(self.machine)
            for store in self.world.ensemble.of(self.machine):
                if store.is_connected:
                    store.be_heard()

    def lose_power(self, random: Random) -> None:
        """The process dies, and with it what was not synced."""
        self.kill()
        self.disk.crash(random)
        self.world.trace.add(self.machine, "loses what was not synced")

    def lose_disk(self) -> None:
        self.kill()
        self.disk = MemoryDisk(64)
        self.is_damaged = False
        self.world.trace.add(self.machine, "loses its disk")

    def damage(self, random: Random) -> None:
        """One bit of what its process wrote, which has ended, is turned over, where a checksum can tell."""
        batches = []
        for path in self.disk.paths(".log"):
            content = bytes(self.disk.content(path))
            batches += [(path, at, header.size_bytes) for at, header in iter_headers(content)]
        for path in self.disk.paths(COMMIT):
            base = int(os.path.basename(path)[: -len(COMMIT)])
            for piece in walk_file(self.disk.open(path), base):
                placed = piece.entry.batches if piece.entry is not None else ()
                batches += [(path, place - base, header.size_bytes) for place, header in placed]
        if not batches:
            return
        path, at, size_bytes = random.choice(batches)
        position, bit = at + random.randrange(ATTRIBUTES_AT, size_bytes), random.randrange(8)
        self.disk.flip(path, position, bit)
        self.is_damaged = True
        self.world.trace.add(self.machine, f"has bit {bit} at {position} of {path} turned over")

    def cut_from_ensemble(self) -> None:
        for store in self.world.ensemble.of(self.machine):
            store.is_cut = True
            store.lose_connection()

    def mend_ensemble(self) -> None:
        store = self.store
        if store is not None:
            store.is_cut = False
            store.find_connection()
