"""One run: a cluster starts, clients write and read, things go wrong; then everything heals, and the oracle judges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

from tidelog.peers.requester import Answered, Failure
from tidelog.sim.clients import Clients
from tidelog.sim.faults import InjectedFault, Injector, plan_of
from tidelog.sim.invariants import Invariants
from tidelog.sim.log_place import LogPlace
from tidelog.sim.oracle import Oracle
from tidelog.sim.simulated_client import SimulatedClient
from tidelog.sim.simulated_operator import SimulatedOperator
from tidelog.sim.simulated_reader import SimulatedReader
from tidelog.sim.terms import Terms
from tidelog.sim.trace import Happening, text_of
from tidelog.sim.violation import Violation
from tidelog.sim.world import World
from tidelog.wire import messages
from tidelog.wire.errors import ErrorCode

#: until the brokers are ready, and until topics are created
START_MS: Final = 60_000
#: until everything has recovered at the end
RECOVERY_MS: Final = 120_000
#: between two looks whether what is waited for has come about
LOOK_MS: Final = 50
#: between two comparisons of the replicas
COMPARE_MS: Final = 5_000
NO_SETTINGS: Final[Mapping[str, str]] = {}


@dataclass(slots=True)
class RunOutcome:
    seed: int
    violation: Violation | None
    faults: list[InjectedFault]
    simulated_ms: int
    steps: int
    injected: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    operations: Counter[str] = field(default_factory=Counter)
    witnessed: Counter[str] = field(default_factory=Counter)
    happenings: list[Happening] = field(default_factory=list)

    @property
    def is_well(self) -> bool:
        return self.violation is None

    @property
    def trace(self) -> str:
        return text_of(self.happenings)


class Simulation:
    def __init__(self, seed: int, terms: Terms | None = None, faults: Sequence[InjectedFault] | None = None) -> None:
        self.terms = terms = terms or Terms.drawn(Random(f"terms {seed}"))
        log_dirs = ",".join(f"/data{number}" for number in range(terms.log_dirs))
        settings = {"log.dirs": log_dirs}
        if terms.is_flushed:
            settings["log.flush.interval.messages"] = "1"
        self.world = world = World(seed, terms.brokers, settings, terms.shared_brokers)
        plan = world.random("plan")
        self.faults = plan_of(plan, terms.length_ms, terms.most_faults, terms.kinds) if faults is None else list(faults)
        self.oracle = Oracle()
        self.invariants = Invariants(world, self.oracle)
        self.injector: Injector | None = None
        self._compared_ms = 0

    def run(self) -> RunOutcome:
        world = self.world
        began_ms = world.time.now_ms
        try:
            self._live()
        except Violation as violation:
            world.broken(violation)
        injector = self.injector
        return RunOutcome(
            world.seed,
            world.violation,
            self.faults,
            world.time.now_ms - began_ms,
            world.steps,
            Counter() if injector is None else injector.injected + world.network.injected,
            Counter() if injector is None else injector.left_out,
            self.oracle.operations,
            self.oracle.witnessed,
            world.trace.happenings,
        )

    def _live(self) -> None:
        world, terms = self.world, self.terms
        for site in world.brokers.values():
            site.start()
        self._until("start", START_MS, lambda: all(site.is_ready for site in world.brokers.values()))
        clients = Clients(world, self.oracle, terms, self._create)
        self.injector = Injector(world, self.faults)
        self.invariants.is_tainted = self.injector.is_tainted
        world.network.weather.longest_ms = world.random("weather").choice((1, 3, 20, 80))
        self._let(terms.length_ms)
        clients.stop()
        world.trace.add("fault", "everything heals")
        self.injector.heal()
        self._until("others have what is damaged", RECOVERY_MS, self.injector.is_repairable)
        self.injector.repair()
        SimulatedOperator(world, self.oracle)
        self._until("writes end", RECOVERY_MS, clients.are_done)
        self._until("replicas recover", RECOVERY_MS, self._is_whole)
        self._until("reads end", RECOVERY_MS, lambda: self._are_read(clients.readers))
        self._until("deliveries end", RECOVERY_MS, self.oracle.waiting.is_all_delivered)
        if clients.members:
            self._until("positions are committed", RECOVERY_MS, clients.are_committed)
        self._until("replicas recover again", RECOVERY_MS, self._is_whole)
        self._until("reads end again", RECOVERY_MS, lambda: self._are_read(clients.readers))
        self.invariants.check_replicas()
        self.invariants.check_end(clients.deleted_topics())
        self.oracle.judge()

    # --- time ---------------------------------------------------------------------------------------------

    def _step(self, end_ms: int) -> bool:
        world = self.world
        more = world.step(end_ms)
        if world.violation is not None:
            raise world.violation
        if world.unforeseen:
            who, what, error = world.unforeseen[0]
            raise Violation("foreseen", f"{who}: {what}: {error!r}") from error
        self.invariants.check()
        if world.time.now_ms >= self._compared_ms + COMPARE_MS:
            self._compared_ms = world.time.now_ms
            self.invariants.check_replicas()
        return more

    def _let(self, span_ms: int) -> None:
        end_ms = self.world.time.now_ms + span_ms
        while self._step(end_ms):
            pass

    def _until(self, what: str, most_ms: int, condition: Callable[[], bool]) -> None:
        time = self.world.time
        end_ms, look_ms = time.now_ms + most_ms, 0
        while time.now_ms < look_ms or not condition():
            if time.now_ms >= look_ms:
                look_ms = time.now_ms + LOOK_MS
            if not self._step(end_ms):
                raise Violation("recovery", f"after {most_ms} ms without a fault this has not come about: {what}")

    # --- what is waited for ---------------------------------------------------------------------------------

    def _create(self, topic: str, partitions: int, settings: Mapping[str, str] = NO_SETTINGS) -> list[LogPlace]:
        client = SimulatedClient(self.world, self.oracle, "admin")
        done: list[int] = []
        request = messages.CreateTopicsRequest
        configs = [request.CreatableTopicConfig(name=name, value=value) for name, value in settings.items()]
        wanted = request.CreatableTopic(name=topic, num_partitions=partitions, replication_factor=-1, configs=configs)

        def ask() -> None:
            client.ask(client.any_broker(), request(topics=[wanted], timeout_ms=5_000), answered, 10_000)

        def answered(outcome: Answered[messages.CreateTopicsResponse] | Failure) -> None:
            if isinstance(outcome, Failure):
                client.after(100, ask)
                return
            code = outcome.message.topics[0].error_code
            if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                done.append(code)
            else:
                client.after(100, ask)

        ask()
        self._until("topic creation", START_MS, lambda: bool(done))
        return [LogPlace(topic, index) for index in range(partitions)]

    def _is_whole(self) -> bool:
        """Every replica is in its ISR and has everything."""
        world = self.world
        if not all(site.is_ready for site in world.brokers.values()):
            return False
        image = world.stored()
        for topic in image.topics.values():
            for state in topic.partitions:
                if set(state.isr) != set(state.replicas) or state.is_reassigning:
                    return False
                ends = set()
                for broker_id in state.replicas:
                    broker = world.brokers[broker_id].broker
                    assert broker is not None
                    partition = broker.data.replicas.partitions.get((topic.name, state.partition_index))
                    if partition is None:
                        return False
                    ends |= {partition.high_watermark, partition.log.log_end_offset}
                if len(ends) != 1:
                    return False
        return all(site.broker is not None and site.broker.cluster.image == image for site in world.brokers.values())

    def _are_read(self, readers: Sequence[SimulatedReader]) -> bool:
        for reader in readers:
            for place, position in reader.positions.items():
                for site in self.world.brokers.values():
                    if site.broker is None:
                        return False
                    partition = site.broker.data.replicas.partitions.get((place.topic, place.partition))
                    if partition is not None and position < partition.log.log_end_offset:
                        return False
        return True


def simulate(seed: int, terms: Terms | None = None, faults: Sequence[InjectedFault] | None = None) -> RunOutcome:
    return Simulation(seed, terms, faults).run()
