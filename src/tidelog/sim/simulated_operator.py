"""A simulated operator, who decides what no broker may decide alone: that a log is to begin anew with what is left.

A topic may be created while a broker is dead and not yet known to be. It is in the ISR of a partition that it has never
heard of, and when the others die as well it is the last that is counted on. It comes back without that log, and cannot
know whether it ever had one: the partition has no leader until somebody says so. If anything acknowledged was in it
after all, the oracle will find it missing.
"""

from __future__ import annotations

from tidelog.control.model import NO_LEADER, Partition
from tidelog.peers.requester import Answered, Failure
from tidelog.sim.log_place import LogPlace
from tidelog.sim.oracle import Oracle
from tidelog.sim.simulated_client import SimulatedClient
from tidelog.sim.world import World
from tidelog.wire import messages
from tidelog.wire.errors import ErrorCode

LOOK_MS = 5_000
TIMEOUT_MS = 4_000
UNCLEAN = 1


class SimulatedOperator(SimulatedClient):
    """Looks for such partitions until the end of the run."""

    def __init__(self, world: World, oracle: Oracle) -> None:
        super().__init__(world, oracle, "operator")
        self.after(LOOK_MS, self._look)

    def _look(self) -> None:
        for topic in self.world.stored().topics.values():
            for state in topic.partitions:
                if self._waits_for_a_decision(state):
                    self._elect(LogPlace(topic.name, state.partition_index))
        self.after(LOOK_MS, self._look)

    def _waits_for_a_decision(self, state: Partition) -> bool:
        if state.leader != NO_LEADER or len(state.isr) != 1:
            return False
        broker = self.world.brokers[state.isr[0]].broker
        partition = (
            None if broker is None else broker.data.replicas.partitions.get((state.topic, state.partition_index))
        )
        return partition is not None and partition.log.notes.incomplete and not partition.log.log_end_offset

    def _elect(self, place: LogPlace) -> None:
        self.world.trace.add(self.name, f"elects a leader of {place}, though it has lost what it had")
        request = messages.ElectLeadersRequest
        which = [request.TopicPartitions(topic=place.topic, partitions=[place.partition])]
        wanted = request(election_type=UNCLEAN, topic_partitions=which, timeout_ms=TIMEOUT_MS // 2)
        self.ask(self.any_broker(), wanted, self._answered, TIMEOUT_MS)

    def _answered(self, outcome: Answered[messages.ElectLeadersResponse] | Failure) -> None:
        if isinstance(outcome, Failure):
            self.count("elect by hand", outcome.kind.value)
        else:
            for topic in outcome.message.replica_election_results:
                for each in topic.partition_result:
                    self.count("elect by hand", ErrorCode.of(each.error_code).name)
