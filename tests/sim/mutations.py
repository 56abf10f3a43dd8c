"""Mistakes that somebody could make in the product, each of which a simulation has to find."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tidelog.api.produce import AwaitedProduce, PendingProduce
from tidelog.control.leadership import Leadership
from tidelog.log.leader_epochs import LeaderEpochs
from tidelog.log.log import Log
from tidelog.log.producers import Producer
from tidelog.node.rejoining import Rejoining
from tidelog.node.voice import ToldBroker
from tidelog.replica.fetcher import Fetcher
from tidelog.replica.in_sync import InSync
from tidelog.replica.partition import Partition

#: where `Partition.read` takes `to_log_end`
TO_LOG_END = 6

Mutate = Callable[[pytest.MonkeyPatch], None]


def high_watermark_from_the_leader_alone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(InSync, "lowest_end_offset", lambda self, end_offset: end_offset)


def high_watermark_of_a_majority(patch: pytest.MonkeyPatch) -> None:
    """From the wrong set: a member of the ISR is left out."""

    def second_lowest(self: InSync, end_offset: int) -> int:
        ends = sorted([end_offset, *(follower.log_end_offset for follower in self.holding)])
        return ends[min(1, len(ends) - 1)]

    patch.setattr(InSync, "lowest_end_offset", second_lowest)


def acknowledged_before_it_is_committed(patch: pytest.MonkeyPatch) -> None:
    def complete(self: Any) -> bool:
        self.waits = []
        self.request.reply(self.response)
        return True

    patch.setattr(PendingProduce, "try_complete", complete)
    parking = PendingProduce.park

    def park(self: Any) -> None:
        parking(self)
        self.parked.cancel()
        complete(self)

    patch.setattr(PendingProduce, "park", park)

    def answer(self: Any, timeout_ms: int) -> None:
        self.end_offset = 0
        self.try_complete()

    patch.setattr(AwaitedProduce, "park", answer)


def no_truncation_by_epoch(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Partition, "_divergence", lambda self, fetch_offset, last_fetched_epoch: None)


def epochs_are_not_remembered(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LeaderEpochs, "assign", lambda self, epoch, start_offset: None)


def the_isr_grows_without_a_check(patch: pytest.MonkeyPatch) -> None:
    def propose(self: Partition, replica: int, now_ms: int, local_epoch: int, is_eligible: bool = True) -> Any:
        in_sync = self.in_sync
        if in_sync.pending is not None or replica not in in_sync.followers or replica in in_sync.isr:
            return None
        return self._propose(in_sync.members_with(replica, self.local_id, local_epoch))

    patch.setattr(Partition, "propose_expansion", propose)


def too_few_in_sync_are_enough(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Partition, "_suffices", lambda self, members: True)


def consumers_read_to_the_end(patch: pytest.MonkeyPatch) -> None:
    read = Partition.read

    def read_on(self: Partition, *args: Any, **kwargs: Any) -> Any:
        if len(args) > TO_LOG_END:
            args = (*args[:TO_LOG_END], True, *args[TO_LOG_END + 1 :])
        else:
            kwargs["to_log_end"] = True
        return read(self, *args, **kwargs)

    patch.setattr(Partition, "read", read_on)


def duplicates_are_not_known(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Producer, "duplicate_of", lambda self, header: None)


def followers_forget_sequences(patch: pytest.MonkeyPatch) -> None:
    appending = Log.append_as_follower

    def append(self: Log, *args: Any, **kwargs: Any) -> Any:
        info = appending(self, *args, **kwargs)
        self.producers.reset(self.log_end_offset)
        return info

    patch.setattr(Log, "append_as_follower", append)


def followers_do_not_truncate(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Log, "truncate_to", lambda self, offset, now_ms=0: False)


def anybody_may_lead(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Leadership, "unclean_allowed", lambda self, topic: True)


def nobody_joins_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Rejoining, "session_lost", lambda self: None)


def the_voice_leaves_something_out(patch: pytest.MonkeyPatch) -> None:
    telling = ToldBroker.tell

    def tell(self: Any, changes: Any) -> None:
        telling(self, changes[:-1] if len(changes) > 1 else changes)

    patch.setattr(ToldBroker, "tell", tell)


def followers_give_up(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Fetcher, "_try_again_later", lambda self: None)


MUTATIONS: tuple[Mutate, ...] = (
    high_watermark_from_the_leader_alone,
    high_watermark_of_a_majority,
    acknowledged_before_it_is_committed,
    no_truncation_by_epoch,
    epochs_are_not_remembered,
    the_isr_grows_without_a_check,
    too_few_in_sync_are_enough,
    consumers_read_to_the_end,
    duplicates_are_not_known,
    followers_forget_sequences,
    followers_do_not_truncate,
    anybody_may_lead,
    nobody_joins_again,
    the_voice_leaves_something_out,
    followers_give_up,
)
