"""What goes wrong in a simulation, and when: a plan that is drawn from the seed before anything happens.

A fault names whom it hits by a role or a number, and its target is found when its time comes. A plan with some of its
faults left out is a plan, too: that is how a failure is shrunk.

Not everything may be broken at once. The promise is that acknowledged records survive as long as one member of the ISR
keeps its disk, so a fault that costs a disk something is left out where no other member is well, and until the broker
that it hit has left every ISR that it was in, nobody else is hit.
"""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Final, NamedTuple

from tidelog.sim.world import SimulatedBroker, World

#: kind -> (how often, shortest and longest span in ms)
KINDS: Final[dict[str, tuple[int, int, int]]] = {
    "kill": (10, 100, 9_000),
    "kill within the session": (6, 20, 600),
    "stop": (6, 500, 5_000),
    "pause": (6, 200, 10_000),
    "cut from one broker": (5, 200, 8_000),
    "cut one way": (5, 200, 8_000),
    "cut from all brokers": (3, 200, 8_000),
    "broken connections": (5, 0, 0),
    "cut from the ensemble": (6, 100, 10_000),
    "ensemble down": (2, 500, 10_000),
    "session expires": (3, 0, 0),
    "bad weather": (3, 500, 5_000),
    "power loss": (6, 100, 8_000),
    "power loss within the session": (4, 20, 600),
    "disk lost": (2, 500, 8_000),
    "black-out": (2, 100, 4_000),
    "black-out with a lost disk": (2, 100, 4_000),
    "wall clock jumps": (2, 0, 0),
    "slow workers": (2, 500, 5_000),
    "bit flip": (4, 100, 3_000),
    "disk full": (3, 200, 5_000),
    "I/O error": (4, 0, 0),
}
#: of these the broker loses what it had promised to keep
COSTLY: Final = frozenset(
    ("power loss", "power loss within the session", "disk lost", "black-out with a lost disk", "bit flip")
)
#: what may fail on a disk
DISK_OPERATIONS: Final = ("write", "sync", "pread", "open", "truncate", "rename", "sync_dir")
ROLES: Final = ("any", "any", "leader", "leader", "controller")


class InjectedFault(NamedTuple):
    at_ms: int
    kind: str
    role: str
    number: int
    span_ms: int

    def __str__(self) -> str:
        return f"{self.at_ms / 1000:.3f} s: {self.kind} ({self.role} {self.number}) for {self.span_ms} ms"


def plan_of(random: Random, length_ms: int, most: int, only: Sequence[str] = ()) -> list[InjectedFault]:
    """`only`: of these kinds."""
    kinds = list(only or KINDS)
    shares = [KINDS[kind][0] for kind in kinds]
    faults: list[InjectedFault] = []
    wanted = random.randint(0, most)
    while len(faults) < wanted:
        # Troubles do not come singly: what goes wrong while something else does finds more.
        begins_ms = random.randint(0, length_ms)
        for _ in range(random.choice((1, 2, 3, 4))):
            kind = random.choices(kinds, shares)[0]
            _, least_ms, most_ms = KINDS[kind]
            at_ms, span_ms = begins_ms + random.randint(0, 1_500), random.randint(least_ms, most_ms)
            faults.append(InjectedFault(at_ms, kind, random.choice(ROLES), random.randrange(1 << 16), span_ms))
    return sorted(faults)


class Injector:
    """Carries a plan out. `injected` counts what happened, `left_out` what was not allowed to."""

    def __init__(self, world: World, faults: Sequence[InjectedFault]) -> None:
        self._world = world
        self._random = world.random("faults")
        self._is_over = False
        self.injected: Counter[str] = Counter()
        self.left_out: Counter[str] = Counter()
        #: what each fault has to do to end, while it lasts
        self._lasting: dict[InjectedFault, Callable[[], None]] = {}
        #: the broker that lost something of its disk, and the partitions in whose ISR it has been since
        self._tainted: tuple[int, set[tuple[str, int]]] | None = None
        for fault in faults:
            world.later(fault.at_ms, lambda fault=fault: self._begin(fault))  # type: ignore[misc]

    def heal(self) -> None:
        """Everything that lasts ends, every broker runs, and nothing more goes wrong."""
        self._is_over = True
        for end in list(self._lasting.values()):
            end()
        self._lasting.clear()
        self._world.network.weather.lost_share = 0.0
        for site in self._world.brokers.values():
            for operation in DISK_OPERATIONS:
                site.disk.fail(operation, None)
            site.clock.wall_error_ms = 0
            site.go_on()
            if site.has_failed_directory or site.has_unopened_log:
                site.kill()  # its disk is mended, and is looked at when it starts
            if site.process is None and site.is_held_down:
                site.start()

    def repair(self) -> None:
        """Whatever was damaged gets an empty disk; where others have everything."""
        for site in self._world.brokers.values():
            if site.is_damaged:
                self._taint(site)
                site.lose_disk()
                site.start()

    def is_repairable(self) -> bool:
        """Whether all brokers run and know what the store says, by which others have what is damaged."""
        sites, image = self._world.brokers.values(), self._world.stored()
        damaged = {site.id for site in sites if site.is_damaged}
        if not damaged:
            return True
        if not all(site.is_ready and site.broker is not None and site.broker.cluster.image == image for site in sites):
            return False
        return all(set(p.isr) - damaged for topic in image.topics.values() for p in topic.partitions)

    # --- who ----------------------------------------------------------------------------------------------

    def _target(self, fault: InjectedFault) -> SimulatedBroker:
        sites = list(self._world.brokers.values())
        image = self._world.stored()
        if fault.role == "controller" and image.controller_id in self._world.brokers:
            return self._world.brokers[image.controller_id]
        if fault.role == "leader":
            leaders = [p.leader for topic in image.topics.values() for p in topic.partitions if p.leader >= 0]
            if leaders:
                return self._world.brokers[leaders[fault.number % len(leaders)]]
        return sites[fault.number % len(sites)]

    def _peer(self, fault: InjectedFault, target: SimulatedBroker) -> SimulatedBroker:
        others = [site for site in self._world.brokers.values() if site is not target]
        return others[(fault.number >> 4) % len(others)]

    # --- what may be ----------------------------------------------------------------------------------------

    def _is_allowed(self, fault: InjectedFault, target: SimulatedBroker) -> bool:
        if self._is_tainted():
            return False
        if fault.kind not in COSTLY:
            return True
        if self._lasting or not all(site.is_ready and site.is_running for site in self._world.brokers.values()):
            return False
        if any(site.is_damaged or site.has_failed_directory for site in self._world.brokers.values()):
            return False  # nobody may know of it: it may lead, or be the only one in sync
        # The others are well: each partition must have one of them in its ISR.
        states = [p for topic in self._world.stored().topics.values() for p in topic.partitions]
        return all(set(p.isr) - {target.id} for p in states)

    def is_tainted(self, broker_id: int) -> bool:
        return self._is_tainted() and self._tainted is not None and self._tainted[0] == broker_id

    def _is_tainted(self) -> bool:
        if self._tainted is None:
            return False
        broker_id, places = self._tainted
        image = self._world.stored()
        for topic, index in list(places):
            state = image.partition(topic, index)
            if state is None or broker_id not in state.isr:
                places.discard((topic, index))
        if places:
            return True
        self._tainted = None
        return False

    def _taint(self, target: SimulatedBroker) -> None:
        topics = self._world.stored().topics.values()
        places = {(t.name, p.partition_index) for t in topics for p in t.partitions if target.id in p.isr}
        self._tainted = target.id, places

    # --- what -----------------------------------------------------------------------------------------------

    def _begin(self, fault: InjectedFault) -> None:
        if self._is_over:
            return
        target = self._target(fault)
        if not self._is_allowed(fault, target):
            self.left_out[fault.kind] += 1
            return
        end = self._inflict(fault, target)
        if end is None:
            self.left_out[fault.kind] += 1
            return
        self.injected[fault.kind] += 1
        self._world.trace.add("fault", f"{fault.kind}: {target!r} for {fault.span_ms} ms")
        if fault.span_ms:
            self._lasting[fault] = end
            self._world.later(fault.span_ms, lambda: self._end(fault))

    def _end(self, fault: InjectedFault) -> None:
        end = self._lasting.pop(fault, None)
        if end is not None:
            self._world.trace.add("fault", f"{fault.kind} is over")
            end()

    def _inflict(self, fault: InjectedFault, target: SimulatedBroker) -> Callable[[], None] | None:
        """Does it; returns what ends it, or None where it cannot be done."""
        world = self._world
        if fault.kind.startswith("black-out"):
            return self._black_out(fault, target)
        if fault.kind in COSTLY or fault.kind in ("kill", "kill within the session", "stop"):
            return self._end_process(fault, target)
        if fault.kind == "pause":
            if not target.is_running:
                return None
            target.pause()
            return target.go_on
        if fault.kind.startswith("cut from one") or fault.kind in ("cut one way", "cut from all brokers"):
            return self._cut(fault, target)
        if fault.kind == "broken connections":
            world.network.break_connections(target.machine, self._peer(fault, target).machine)
        elif fault.kind == "cut from the ensemble":
            target.cut_from_ensemble()
            return target.mend_ensemble
        elif fault.kind == "ensemble down":
            if world.ensemble.is_down:
                return None
            world.ensemble.go_down()
            return world.ensemble.come_up
        elif fault.kind == "session expires":
            if target.store is None or world.ensemble.is_down:
                return None
            world.ensemble.expire(target.store)
        elif fault.kind == "bad weather":
            return self._worsen()
        elif fault.kind == "wall clock jumps":
            target.clock.set_wall(self._random.choice((-3_000_000, -1_000, 0, 1_000, 3_000_000)))
        elif fault.kind == "slow workers":
            return self._slow(target)
        elif fault.kind == "disk full":
            return self._fill(target)
        elif fault.kind == "I/O error":
            target.disk.fail(self._random.choice(DISK_OPERATIONS), errno.EIO, self._random.randint(1, 30))
        return lambda: None

    def _end_process(self, fault: InjectedFault, target: SimulatedBroker) -> Callable[[], None] | None:
        if target.process is None:
            return None
        if fault.kind == "stop":
            if not target.is_ready or not target.is_running:
                return None
            target.stop()
        elif fault.kind.startswith("power loss"):
            self._taint(target)
            target.lose_power(self._random)
        elif fault.kind == "disk lost":
            self._taint(target)
            target.lose_disk()
        elif fault.kind == "bit flip":
            self._taint(target)
            # After a clean stop nobody looks at what was written long before.
            if fault.number & 1:
                target.stop()
            else:
                target.kill()
        else:
            target.kill()

        def start() -> None:
            if target.process is None:
                if fault.kind == "bit flip" and not self._is_over:
                    target.damage(self._random)
                target.start()
            elif target.is_held_down:  # it is about to stop
                self._world.later(500, start)

        return start

    def _black_out(self, fault: InjectedFault, target: SimulatedBroker) -> Callable[[], None]:
        """All processes die at once. They come back in any order, and one of them perhaps without its disk.

        Then, and where a disk is damaged, their sessions have ended by that time: one that seems to live where all
        others have left it the ISR is waited for. If it has lost its disk, only an operator can decide who leads; if
        its disk is damaged, it leads what it has left.
        """
        sites = list(self._world.brokers.values())
        for site in sites:
            site.kill()
        if fault.kind in COSTLY:
            self._taint(target)
            target.lose_disk()
        if fault.kind in COSTLY or any(site.is_damaged for site in sites):
            for store in [store for site in sites for store in self._world.ensemble.of(site.machine)]:
                self._world.ensemble.expire(store)

        def start() -> None:
            for site in self._random.sample(sites, len(sites)):
                self._world.later(self._random.choice((0, 0, 500, 3_000)), partial(light, site))

        def light(site: SimulatedBroker) -> None:
            if site.process is None:
                site.start()

        return start

    def _cut(self, fault: InjectedFault, target: SimulatedBroker) -> Callable[[], None]:
        network, here = self._world.network, target.machine
        peer = self._peer(fault, target).machine
        if fault.kind == "cut one way":
            ways = [(here, peer) if fault.number & 1 else (peer, here)]
        elif fault.kind == "cut from one broker":
            ways = [(here, peer), (peer, here)]
        else:
            others = [site.machine for site in self._world.brokers.values() if site is not target]
            ways = [way for other in others for way in ((here, other), (other, here))]
        for way in ways:
            network.cut(*way)

        def mend() -> None:
            for way in ways:
                network.mend(*way)

        return mend

    def _worsen(self) -> Callable[[], None]:
        weather = self._world.network.weather
        usual_ms = weather.longest_ms
        weather.longest_ms = self._random.choice((10, 50, 300))
        weather.lost_share = self._random.choice((0.0, 0.05, 0.3))
        weather.breaking_share = self._random.choice((0.0, 0.01, 0.1))

        def calm() -> None:
            weather.longest_ms, weather.lost_share, weather.breaking_share = usual_ms, 0.0, 0.0

        return calm

    def _fill(self, target: SimulatedBroker) -> Callable[[], None]:
        disk = target.disk
        disk.fail_writes_after(self._random.randint(0, 3_000))

        def empty() -> None:
            disk.room_bytes = None

        return empty

    def _slow(self, target: SimulatedBroker) -> Callable[[], None] | None:
        process = target.process
        if process is None:
            return None
        process.slowest_work_ms = self._random.choice((50, 500, 2_000))

        def recover() -> None:
            process.slowest_work_ms = 2

        return recover
