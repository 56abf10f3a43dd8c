"""Asks the controller for changes of the ISR: what leaders on this broker propose, one request at a time.

Proposals that come up while a request is on its way travel together in the next one. The controller's answer says what
the ISR is now, or why it is not changed:

- the replica may not join (it stops, or it has restarted since it fetched): the proposal is withdrawn, and comes up
  again when the replica fetches next;
- this broker knows an older state than the controller, or no longer leads: the proposal stays, and the high watermark
  waits for all whom it names, until the controller's word on the newer state arrives;
- anything else passes: the proposal is sent again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from tidelog.control.leadership import IsrChange, IsrResult
from tidelog.replica.in_sync import IsrProposal
from tidelog.replica.partition import Partition
from tidelog.timer.host import Host
from tidelog.wire.errors import ErrorCode

#: after an error that passes
RETRY_MS: Final = 50
#: the controller has not made the change, and knows the partition as this broker does
REFUSED: Final = frozenset((ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED))
#: the controller knows a newer state, which it tells this broker of its own accord
OUTDATED: Final = frozenset(
    (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    )
)


class AlterPartition(Protocol):
    """The way to the controller; `done` gets a result for each change, in the same order."""

    def __call__(self, changes: Sequence[IsrChange], done: Callable[[list[IsrResult]], None]) -> None: ...


class SentProposal(NamedTuple):
    """A proposal that is to be sent, or was sent and is not answered."""

    partition: Partition
    proposal: IsrProposal
    is_growing: bool


class IsrChanges:
    """`on_settled` is told of partitions whose proposal was decided: who waits for their high watermark looks again."""

    def __init__(self, alter_partition: AlterPartition, host: Host, on_settled: Callable[[Partition], None]) -> None:
        self._alter_partition = alter_partition
        self._host = host
        self._on_settled = on_settled
        self._waiting: list[SentProposal] = []
        self._is_busy = False
        #: for whoever counts: ISRs that grew, and those that shrank
        self.expansions = 0
        self.shrinkages = 0

    def add(self, partition: Partition, proposal: IsrProposal) -> None:
        is_growing = len(proposal.members) > len(partition.isr)
        self._waiting.append(SentProposal(partition, proposal, is_growing))
        if not self._is_busy:
            self._is_busy = True
            # Not at once: one fetch may bring proposals of many partitions.
            self._host.workers.call_soon(self._send)

    def _send(self) -> None:
        sent = [each for each in self._waiting if each.partition.in_sync.pending is each.proposal]
        self._waiting = []
        if not sent:
            self._is_busy = False
            return
        changes = [
            IsrChange(each.topic_id, each.partition, each.leader_epoch, each.partition_epoch, each.members)
            for _, each, _ in sent
        ]
        self._alter_partition(changes, lambda results: self._answered(sent, results))

    def _answered(self, sent: list[SentProposal], results: list[IsrResult]) -> None:
        again = [each for each, result in zip(sent, results, strict=True) if not self._settle(each, result)]
        self._waiting = again + self._waiting
        if again:
            self._host.timer.add(self._host.clock.monotonic_ms() + RETRY_MS, self._send)
        elif self._waiting:
            self._host.workers.call_soon(self._send)
        else:
            self._is_busy = False

    def _settle(self, sent: SentProposal, result: IsrResult) -> bool:
        """Takes note of an answer; False where the proposal is to be sent again."""
        partition, proposal, is_growing = sent
        code, state = result.error.code, result.state
        if code == ErrorCode.NONE and state is not None:
            partition.settle_isr(proposal, state.leader_epoch, state.partition_epoch, state.isr)
            self.expansions += is_growing
            self.shrinkages += not is_growing
        elif code in REFUSED:
            partition.withdraw_proposal(proposal, self._host.clock.monotonic_ms())
        else:
            return code in OUTDATED
        self._on_settled(partition)
        return True
