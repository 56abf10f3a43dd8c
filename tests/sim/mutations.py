"""Mistakes that somebody could make in the product, each of which a simulation has to find."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tidelog.api.produce import AwaitedProduce, PendingProduce
from tidelog.control import partition_changes
from tidelog.control.driver import Driver
from tidelog.control.leadership import Leadership
from tidelog.coordinator.coordination import Coordination
from tidelog.coordinator.delay_partition import DelayPartition
from tidelog.coordinator.markers import Markers
from tidelog.coordinator.waiting_partition import WaitingPartition
from tidelog.deliver import schedule
from tidelog.deliver.delivery_picture import CANCELLATION, kind_of
from tidelog.deliver.halves import HalfSchedule
from tidelog.deliver.schedule import Schedule
from tidelog.group.offset_store import OffsetStore
from tidelog.log.directories.log_dirs import LogDirs
from tidelog.log.leader_epochs import LeaderEpochs
from tidelog.log.log import Log
from tidelog.log.log_dir import LogDir
from tidelog.log.producer_snapshot import encode_snapshot
from tidelog.log.producers import Producer, Producers
from tidelog.node.cluster_view import ClusterView
from tidelog.node.rejoining import Rejoining
from tidelog.node.voice import ToldBroker
from tidelog.replica.fetcher import Fetcher
from tidelog.replica.in_sync import InSync
from tidelog.replica.partition import Partition
from tidelog.sim.faults import InjectedFault
from tidelog.txn import ending
from tidelog.wire import check
from tidelog.wire.errors import ErrorCode

#: where `Partition.read` takes `to_log_end`
TO_LOG_END = 6

#: the controller loses what it had not synced, and is back before anybody has noticed
BLINK = InjectedFault(1_500, "power loss within the session", "controller", 0, 100)

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

    patch.setattr(AwaitedProduce, "wait", answer)


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


def coordinators_load_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Coordination, "_load", lambda self, partition, epoch, offset: self._load_ended(partition.index))


def former_registrations_count(patch: pytest.MonkeyPatch) -> None:
    def broker_epoch(self: Driver) -> int:
        known = self._controller.image.brokers.get(self._controller.broker_id)
        return -1 if known is None else known.epoch

    patch.setattr(Driver, "broker_epoch", property(broker_epoch))


def what_was_decided_of_a_former_life_counts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ClusterView, "is_of_before", lambda self, assigned: False)
    patch.setattr(Driver, "_may_run", True)


def markers_are_dropped(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Markers, "write", lambda self, topic, index, ending, done: done(ErrorCode.NONE))


def sequences_are_not_snapshotted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Producers, "snapshot", lambda self: encode_snapshot([]))


def aborted_positions_count(patch: pytest.MonkeyPatch) -> None:
    ending = OffsetStore.end_transaction
    patch.setattr(OffsetStore, "end_transaction", lambda self, producer_id, commit: ending(self, producer_id, True))


def positions_count_before_their_transaction_ends(patch: pytest.MonkeyPatch) -> None:
    def put(self: OffsetStore, producer_id: int, *args: Any) -> None:
        self.put(*args)

    patch.setattr(OffsetStore, "put_pending", put)


def readers_of_committed_records_see_all(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Partition, "last_stable_offset", property(lambda self: self.high_watermark))


def zombies_are_not_fenced(patch: pytest.MonkeyPatch) -> None:
    def column(transaction: Any, wanted: Any) -> int:
        return 0

    patch.setattr(ending, "_column", column)


def aborted_transactions_are_not_listed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Log, "aborted_transactions", lambda self, *args, **kwargs: [])


def replicas_leave_before_others_have_come(patch: pytest.MonkeyPatch) -> None:
    """A reassignment is taken for complete at once, and the ISR for that of the new replicas."""

    def complete(partition: Any) -> Any:
        if not partition.is_reassigning:
            return partition
        remaining = tuple(r for r in partition.replicas if r not in partition.removing)
        return partition._replace(replicas=remaining, isr=remaining, adding=(), removing=())

    patch.setattr(partition_changes, "complete_reassignment", complete)


def a_new_topic_has_the_records_of_the_old(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LogDirs, "delete", lambda self, key: None)


def damage_is_copied(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(check, "crc_matches", lambda view, pos, header: True)


def parcels_leave_before_they_are_decided(patch: pytest.MonkeyPatch) -> None:
    """The picture is written, but nobody waits until other replicas have it."""
    patch.setattr(WaitingPartition, "_when_committed", lambda self, held, then: then())


def parcels_are_repeated_under_another_sequence(patch: pytest.MonkeyPatch) -> None:
    """By whoever leads next: as if the last one had not been sent."""
    reading = schedule.read_picture

    def read(value: bytes) -> Any:
        picture = reading(value)
        parcel = picture.parcel
        if parcel is None:
            return picture
        return replace(picture, parcel=replace(parcel, sequence=parcel.sequence + len(parcel.keys)))

    patch.setattr(schedule, "read_picture", read)


def cancellations_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    """By whoever leads next."""
    replaying = Schedule.replay

    def replay(self: Schedule, record: Any) -> None:
        if record.meaning is not None or kind_of(record.key) != CANCELLATION:
            replaying(self, record)

    patch.setattr(Schedule, "replay", replay)


def delays_are_over_too_soon(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DelayPartition, "_now_ms", lambda self: self._host.clock.wall_ms() + 250)


def the_last_end_of_a_half_message_counts(patch: pytest.MonkeyPatch) -> None:
    """A commit that follows a rollback is taken for one of the message."""
    finding = HalfSchedule.found_half
    gone: dict[bytes, Any] = {}

    def found(self: HalfSchedule, record: Any, wall_ms: int) -> None:
        if record.commits is False and record.half_id in self.prepared:
            gone[record.half_id] = self.prepared[record.half_id]
        elif record.commits and record.half_id in gone:
            self.prepared[record.half_id] = gone.pop(record.half_id)
        finding(self, record, wall_ms)

    patch.setattr(HalfSchedule, "found_half", found)


def what_follows_the_checkpoint_is_not_told(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LogDir, "told", lambda self, owner: ())


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
    coordinators_load_nothing,
    former_registrations_count,
    what_was_decided_of_a_former_life_counts,
    markers_are_dropped,
    sequences_are_not_snapshotted,
    aborted_positions_count,
    positions_count_before_their_transaction_ends,
    readers_of_committed_records_see_all,
    zombies_are_not_fenced,
    aborted_transactions_are_not_listed,
    replicas_leave_before_others_have_come,
    a_new_topic_has_the_records_of_the_old,
    damage_is_copied,
    parcels_leave_before_they_are_decided,
    parcels_are_repeated_under_another_sequence,
    cancellations_are_forgotten,
    delays_are_over_too_soon,
    the_last_end_of_a_half_message_counts,
    what_follows_the_checkpoint_is_not_told,
)

#: a run for messages that wait
WAITING = {"producers": 0, "transactors": 0, "transformers": 0, "short_lived_topics": 0}
KILLS = ("kill", "kill within the session", "pause", "cut from all brokers", "cut from one broker")
#: what does not show soon in runs with all kinds of faults: in which it does
HUNTS: dict[str, dict[str, Any]] = {
    "no_truncation_by_epoch": {"kinds": KILLS},
    "epochs_are_not_remembered": {"kinds": KILLS},
    "anybody_may_lead": {"kinds": ("cut from the ensemble", "pause", "session expires", "kill")},
    "nobody_joins_again": {"kinds": ("session expires",), "length_ms": 3_000},
    "followers_give_up": {"kinds": ("broken connections", "bad weather", "cut from one broker")},
    "former_registrations_count": {"kinds": ("power loss within the session",)},
    "what_was_decided_of_a_former_life_counts": {"brokers": 3, "length_ms": 3_000, "faults": (BLINK,)},
    "sequences_are_not_snapshotted": {"kinds": ("stop", "broken connections")},
    "what_follows_the_checkpoint_is_not_told": {"kinds": ("black-out",), "shared_brokers": 4},
    "zombies_are_not_fenced": {"transactors": 3, "most_faults": 0},
    "damage_is_copied": {
        "kinds": ("bit flip", "bit flip", "kill"),
        "admin_pause_ms": 100,
        "transactors": 0,
        "transformers": 0,
        "short_lived_topics": 0,
        "delayers": 0,
        "half_senders": 0,
    },
    "parcels_leave_before_they_are_decided": {
        **WAITING,
        "length_ms": 4_000,
        "admin_pause_ms": 150,
        "delayers": 2,
        "kinds": ("cut from all brokers", "kill"),
    },
    "parcels_are_repeated_under_another_sequence": {**WAITING, "delayers": 2, "half_senders": 2},
    "cancellations_are_forgotten": {**WAITING, "delayers": 2},
    "delays_are_over_too_soon": {**WAITING, "delayers": 1, "most_faults": 0},
    "the_last_end_of_a_half_message_counts": {**WAITING, "half_senders": 2, "most_faults": 0},
}
