"""A simulated member of a consumer group whose broker assigns the partitions (KIP-848)."""

from __future__ import annotations

from tidelog.peers.requester import Answered, Failure
from tidelog.sim.log_place import LogPlace
from tidelog.sim.oracle import Oracle
from tidelog.sim.simulated_client import RETRIABLE
from tidelog.sim.simulated_member import BEAT_MS, OUTCAST, REBALANCE_MS, TIMEOUT_MS, SimulatedMember
from tidelog.sim.violation import Violation
from tidelog.sim.world import World
from tidelog.wire import messages
from tidelog.wire.errors import ErrorCode


class SimulatedConsumer(SimulatedMember):
    def __init__(self, world: World, oracle: Oracle, name: str, group: str, topic: str, partitions: int) -> None:
        super().__init__(world, oracle, name, group, topic, partitions)
        self._member_id = f"{name}-{self.random.getrandbits(64):016x}"
        self._is_changed = True
        #: an answer was lost: told everything, the coordinator tells everything
        self._must_tell_all = False
        self.refresh(topic, self._beat)

    def _beat(self) -> None:
        if self.is_stopped:
            return
        if self._coordinator is None:
            self._find(self._beat)
            return
        request = messages.ConsumerGroupHeartbeatRequest
        is_full = self._epoch == 0 or self._must_tell_all
        owned = self._owned() if is_full or self._is_changed else None
        self.ask(
            self._coordinator,
            request(
                group_id=self.group,
                member_id=self._member_id,
                member_epoch=self._epoch,
                rebalance_timeout_ms=REBALANCE_MS if is_full else -1,
                subscribed_topic_names=[self._topic] if is_full else None,
                topic_partitions=owned,
            ),
            self._beaten,
            TIMEOUT_MS,
        )

    def _owned(self) -> list[messages.ConsumerGroupHeartbeatRequest.TopicPartitions]:
        kind = messages.ConsumerGroupHeartbeatRequest.TopicPartitions
        (topic_id,) = self.topic_names or (bytes(16),)
        indexes = [place.partition for place in self.positions]
        return [kind(topic_id=topic_id, partitions=indexes)] if indexes else []

    def _beaten(self, outcome: Answered[messages.ConsumerGroupHeartbeatResponse] | Failure) -> None:
        if isinstance(outcome, Failure):
            self.count("heartbeat", outcome.kind.value)
            self._coordinator = None
            self._must_tell_all = True
            self.soon(20, 200, self._beat)
            return
        answer = outcome.message
        code = ErrorCode.of(answer.error_code)
        self.count("heartbeat", code.name)
        if code is ErrorCode.NONE:
            self._epoch = answer.member_epoch
            self._is_changed = self._must_tell_all = False
            if answer.assignment is not None:
                self._take(answer.assignment)
            self.after(20 if self._is_changed else BEAT_MS, self._beat)
        elif code in OUTCAST:
            self._epoch = 0
            self.positions.clear()
            self.soon(20, 200, self._beat)
        elif code in RETRIABLE:
            self._coordinator = None
            self._must_tell_all = True
            self.soon(20, 200, self._beat)
        else:
            raise Violation("groups", f"{self.name} is answered {code.name} to a heartbeat: {answer.error_message}")

    def _take(self, assignment: messages.ConsumerGroupHeartbeatResponse.Assignment) -> None:
        given = {
            LogPlace(self._topic, index)
            for each in assignment.topic_partitions
            if each.topic_id in self.topic_names
            for index in each.partitions
        }
        if any(each.topic_id not in self.topic_names for each in assignment.topic_partitions):
            # It was not told the name of the topic yet, and is to be told once more what it may read.
            self._must_tell_all = True
            self.refresh(self._topic, lambda: None)
        if self._assign(given):
            self._is_changed = True
