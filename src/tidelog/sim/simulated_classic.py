"""A simulated member of a classic group: one of them assigns the partitions, and all join anew at each change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tidelog.peers.requester import Answered, Failure
from tidelog.sim.log_place import LogPlace
from tidelog.sim.oracle import Oracle
from tidelog.sim.simulated_client import RETRIABLE
from tidelog.sim.simulated_member import BEAT_MS, OUTCAST, REBALANCE_MS, TIMEOUT_MS, SimulatedMember
from tidelog.sim.violation import Violation
from tidelog.sim.world import World
from tidelog.wire import messages
from tidelog.wire.classes import RequestMessage
from tidelog.wire.errors import ErrorCode

SESSION_MS: Final = 6_000
#: not one that brokers look into
PROTOCOL_TYPE, PROTOCOL = "simulated", "in turn"
JOIN_VERSION, SYNC_VERSION, HEARTBEAT_VERSION, LEAVE_VERSION = 9, 5, 4, 5


class SimulatedClassic(SimulatedMember):
    def __init__(self, world: World, oracle: Oracle, name: str, group: str, topic: str, partitions: int) -> None:
        super().__init__(world, oracle, name, group, topic, partitions)
        self._epoch = -1
        self.refresh(topic, self._join)

    def _ask_group(
        self, what: str, request: RequestMessage[Any], then: Callable[[Any], None], at_most: int, timeout_ms: int
    ) -> None:
        """`then` where it succeeds; else the member joins again."""
        assert self._coordinator is not None

        def answered(outcome: Answered[Any] | Failure) -> None:
            if isinstance(outcome, Failure):
                self.count(what, outcome.kind.value)
                self._coordinator = None
                self._start_anew(200)
                return
            code = ErrorCode.of(outcome.message.error_code)
            self.count(what, code.name)
            if code is ErrorCode.NONE:
                then(outcome.message)
            elif code is ErrorCode.MEMBER_ID_REQUIRED:
                self._member_id = outcome.message.member_id
                self._start_anew(1)
            elif code in OUTCAST:
                if code is ErrorCode.UNKNOWN_MEMBER_ID:
                    self._member_id = ""
                self._start_anew(50)
            elif code is ErrorCode.REBALANCE_IN_PROGRESS:
                self._start_anew(1)
            elif code in RETRIABLE:
                self._coordinator = None
                self._start_anew(200)
            else:
                raise Violation("groups", f"{self.name} is answered {code.name} to {what}")

        self.ask(self._coordinator, request, answered, timeout_ms, at_most)

    def _start_anew(self, most_ms: int) -> None:
        self.positions.clear()
        self.soon(0, most_ms, self._join)

    def _join(self) -> None:
        if self.is_stopped:
            return
        if self._coordinator is None:
            self._find(self._join)
            return
        request = messages.JoinGroupRequest
        wanted = request(
            group_id=self.group,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self._member_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[request.JoinGroupRequestProtocol(name=PROTOCOL, metadata=self.name.encode())],
        )
        self._ask_group("join", wanted, self._joined, JOIN_VERSION, REBALANCE_MS + TIMEOUT_MS)

    def _joined(self, answer: messages.JoinGroupResponse) -> None:
        self._member_id, self._epoch = answer.member_id, answer.generation_id
        request = messages.SyncGroupRequest
        assignments = []
        if answer.leader == answer.member_id:
            members = sorted(each.member_id for each in answer.members)
            for number, member_id in enumerate(members):
                mine = range(number, self._partitions, len(members))
                assignments.append(
                    request.SyncGroupRequestAssignment(
                        member_id=member_id, assignment=",".join(map(str, mine)).encode()
                    )
                )
        wanted = request(
            group_id=self.group,
            generation_id=self._epoch,
            member_id=self._member_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=PROTOCOL,
            assignments=assignments,
        )
        if self._coordinator is None:
            self._start_anew(50)
        else:
            self._ask_group("sync", wanted, self._synced, SYNC_VERSION, REBALANCE_MS + TIMEOUT_MS)

    def _synced(self, answer: messages.SyncGroupResponse) -> None:
        self._assign({LogPlace(self._topic, int(index)) for index in answer.assignment.decode().split(",") if index})
        self.after(BEAT_MS, lambda epoch=self._epoch: self._beat(epoch))  # type: ignore[misc]

    def _beat(self, epoch: int) -> None:
        if self.is_stopped or epoch != self._epoch:
            return
        if self._coordinator is None:
            self._start_anew(50)
            return
        if self.random.random() < 0.02:
            self._leave()
            return
        wanted = messages.HeartbeatRequest(group_id=self.group, generation_id=epoch, member_id=self._member_id)

        def beaten(answer: messages.HeartbeatResponse) -> None:
            self.after(BEAT_MS, lambda: self._beat(epoch))

        self._ask_group("heartbeat", wanted, beaten, HEARTBEAT_VERSION, TIMEOUT_MS)

    def _leave(self) -> None:
        """It leaves, and joins again as somebody else."""
        request = messages.LeaveGroupRequest
        wanted = request(group_id=self.group, members=[request.MemberIdentity(member_id=self._member_id)])
        assert self._coordinator is not None
        self.positions.clear()
        self._member_id = ""
        self.ask(self._coordinator, wanted, lambda outcome: self._start_anew(300), TIMEOUT_MS, LEAVE_VERSION)
