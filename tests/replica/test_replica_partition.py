"""A partition's leader and followers, one by one: the ISR, the high watermark, fencing, cutting."""

from __future__ import annotations

import pytest
from replica_kit import LAG_MS, append, content, copy, follower, leader, replica, values

from tidelog.log.config import LogConfig
from tidelog.replica.in_sync import REFUSED_MS
from tidelog.replica.partition import LATEST, NO_LEADER, Partition
from tidelog.wire.errors import ErrorCode, KafkaError

LOCAL_EPOCH = 100


def refusal(partition: Partition, replica_id: int, leader_epoch: int) -> int:
    with pytest.raises(KafkaError) as refused:
        partition.check_follower(replica_id, leader_epoch)
    return refused.value.code


# --- the high watermark


def test_the_high_watermark_is_what_every_member_of_the_isr_has() -> None:
    partition = leader()
    append(partition, 5)
    assert partition.high_watermark == 0
    assert partition.record_follower_fetch(2, 5, 0, 1)
    assert not partition.high_watermark
    partition.record_follower_fetch(3, 3, 0, 1)
    assert partition.high_watermark == 3
    partition.record_follower_fetch(3, 5, 0, 2)
    assert partition.high_watermark == 5


def test_a_replica_outside_the_isr_does_not_hold_the_high_watermark_back() -> None:
    partition = leader(isr=(1, 2))
    append(partition, 5)
    partition.record_follower_fetch(3, 1, 0, 1)
    partition.record_follower_fetch(2, 5, 0, 1)
    assert partition.high_watermark == 5


def test_a_replica_that_was_caught_up_is_waited_for_before_it_is_in_the_isr() -> None:
    partition = leader(isr=(1,))
    append(partition, 5)
    assert partition.high_watermark == 5
    partition.record_follower_fetch(2, 5, 0, 1)
    append(partition, 1)
    assert partition.high_watermark == 5
    partition.record_follower_fetch(2, 6, 0, 2)
    assert partition.high_watermark == 6


def test_a_replica_that_may_not_join_is_not_waited_for() -> None:
    partition = leader(isr=(1,))
    append(partition, 5)
    partition.record_follower_fetch(2, 5, 0, 1, is_eligible=False)
    append(partition)
    assert partition.high_watermark == 6


def test_a_replica_that_falls_behind_again_is_waited_for_no_longer() -> None:
    partition = leader(isr=(1,))
    partition.record_follower_fetch(2, 0, 0, 1)
    append(partition, 5)
    assert partition.high_watermark == 0
    assert partition.propose_shrinkage(LAG_MS + 2, LAG_MS, LOCAL_EPOCH) is None
    append(partition)
    assert partition.high_watermark == 6


def test_the_high_watermark_stays_while_fewer_than_min_insync_replicas_are_in_sync() -> None:
    partition = leader(isr=(1,), min_insync=2)
    append(partition, 3)
    assert partition.high_watermark == 0
    partition.lead(5, 8, (1, 2, 3), (1, 2), 1)
    partition.record_follower_fetch(2, 3, 0, 2)
    assert partition.high_watermark == 3


def test_the_high_watermark_does_not_move_when_the_isr_shrinks_below_the_minimum() -> None:
    partition = leader(isr=(1, 2), min_insync=2)
    append(partition, 3)
    proposal = partition.propose_shrinkage(LAG_MS + 1, LAG_MS, LOCAL_EPOCH)
    assert proposal is not None
    assert not partition.settle_isr(proposal, 5, 8, (1,))
    assert partition.high_watermark == 0


def test_the_high_watermark_waits_for_both_the_old_and_the_proposed_isr() -> None:
    partition = leader(isr=(1, 2))
    append(partition, 4)
    partition.record_follower_fetch(2, 4, 0, 1)
    partition.record_follower_fetch(3, 4, 0, 1)
    growing = partition.propose_expansion(3, 1, LOCAL_EPOCH)
    assert growing is not None and partition.isr == (1, 2)
    append(partition)
    partition.record_follower_fetch(2, 5, 0, 2)
    assert partition.high_watermark == 4, "3 may be in the ISR by now"
    partition.record_follower_fetch(3, 5, 0, 2)
    assert partition.high_watermark == 5
    assert not partition.settle_isr(growing, 5, 8, (1, 2, 3))
    append(partition)
    partition.record_follower_fetch(2, 6, 0, 3)
    shrinking = partition.propose_shrinkage(2 * LAG_MS, LAG_MS, LOCAL_EPOCH)
    assert shrinking is not None and shrinking.members == ((1, LOCAL_EPOCH), (2, -1))
    assert partition.high_watermark == 5, "3 may still be in the ISR"
    assert partition.settle_isr(shrinking, 5, 9, (1, 2))
    assert partition.high_watermark == 6


# --- writing


def test_acks_all_is_refused_while_too_few_are_in_sync_and_acks_1_is_not() -> None:
    partition = leader(isr=(1,), min_insync=2)
    with pytest.raises(KafkaError) as refused:
        append(partition, acks=-1)
    assert refused.value.code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert append(partition) == 1


def test_a_minimum_above_the_number_of_replicas_means_all_of_them() -> None:
    partition = leader(isr=(1, 2), replicas=(1, 2), min_insync=3)
    assert append(partition, acks=-1) == 1


def test_a_follower_takes_no_writes() -> None:
    with pytest.raises(KafkaError) as refused:
        append(follower())
    assert refused.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_replica_without_a_leader_does_not_say_that_an_offset_is_out_of_range() -> None:
    """It may have lost what readers have seen, and they would begin anew on its word."""
    partition = follower()
    partition.resign(NO_LEADER, 5, 8, (1, 2, 3), (1, 2, 3))
    with pytest.raises(KafkaError) as refused:
        partition.read(61, 1 << 20, True, leader_only=False)
    assert refused.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER


# --- leaving and joining the ISR


def test_a_follower_that_was_not_caught_up_for_too_long_is_to_leave() -> None:
    partition = leader()
    append(partition)
    partition.record_follower_fetch(2, 1, 0, LAG_MS)
    assert partition.propose_shrinkage(LAG_MS, LAG_MS, LOCAL_EPOCH) is None
    proposal = partition.propose_shrinkage(LAG_MS + 1, LAG_MS, LOCAL_EPOCH)
    assert proposal is not None and [broker for broker, _ in proposal.members] == [1, 2]
    assert (proposal.leader_epoch, proposal.partition_epoch) == (5, 7)


def test_a_follower_that_has_everything_stays_however_long_ago_it_fetched() -> None:
    partition = leader()
    for broker in (2, 3):
        partition.record_follower_fetch(broker, 0, 0, 1)
    assert partition.propose_shrinkage(100 * LAG_MS, LAG_MS, LOCAL_EPOCH) is None


def test_a_follower_that_reaches_what_the_leader_had_at_its_last_fetch_was_caught_up_then() -> None:
    partition = leader(isr=(1, 2), replicas=(1, 2))
    for at in range(1, 6):
        append(partition)
        partition.record_follower_fetch(2, at - 1, 0, at * LAG_MS)
        assert partition.propose_shrinkage(at * LAG_MS, LAG_MS, LOCAL_EPOCH) is None, "always one record behind"


def test_a_follower_joins_when_it_has_what_is_committed_and_the_start_of_the_epoch() -> None:
    partition = leader(isr=(1,))
    append(partition, 3)
    partition.resign(1, 6, 8, (1, 2, 3), (1,))
    partition.lead(7, 9, (1, 2, 3), (1,), 0)
    append(partition, 2)
    assert (partition.epoch_start_offset, partition.high_watermark) == (3, 5)
    partition.record_follower_fetch(2, 4, 0, 1)
    assert partition.propose_expansion(2, 1, LOCAL_EPOCH) is None
    partition.record_follower_fetch(2, 5, 0, 1, broker_epoch=77)
    proposal = partition.propose_expansion(2, 1, LOCAL_EPOCH)
    assert proposal is not None and proposal.members == ((1, LOCAL_EPOCH), (2, 77))


def test_a_follower_below_the_start_of_the_epoch_does_not_join_though_nothing_is_committed() -> None:
    partition = leader(isr=(1, 2))
    append(partition, 3)
    partition.lead(6, 8, (1, 2, 3), (1, 2), 0)
    partition.record_follower_fetch(3, 2, 0, 1)
    assert partition.high_watermark == 0
    assert partition.propose_expansion(3, 1, LOCAL_EPOCH) is None
    partition.record_follower_fetch(3, 3, 0, 1)
    assert partition.propose_expansion(3, 1, LOCAL_EPOCH) is not None


def test_only_one_proposal_is_on_its_way() -> None:
    partition = leader(isr=(1,))
    for broker in (2, 3):
        partition.record_follower_fetch(broker, 0, 0, 1)
    assert partition.propose_expansion(2, 1, LOCAL_EPOCH) is not None
    assert partition.propose_expansion(3, 1, LOCAL_EPOCH) is None


def test_a_follower_that_the_controller_refused_is_not_proposed_again_at_once() -> None:
    partition = leader(isr=(1,))
    partition.record_follower_fetch(2, 0, 0, 1)
    proposal = partition.propose_expansion(2, 1, LOCAL_EPOCH)
    assert proposal is not None
    append(partition)
    assert partition.high_watermark == 0
    assert partition.withdraw_proposal(proposal, 1), "the high watermark need not wait for it"
    assert partition.high_watermark == 1
    partition.record_follower_fetch(2, 1, 0, 2)
    assert partition.propose_expansion(2, 2, LOCAL_EPOCH) is None
    assert partition.propose_expansion(2, 1 + REFUSED_MS, LOCAL_EPOCH) is not None


def test_an_answer_to_an_older_proposal_changes_nothing() -> None:
    partition = leader(isr=(1,))
    partition.record_follower_fetch(2, 0, 0, 1)
    proposal = partition.propose_expansion(2, 1, LOCAL_EPOCH)
    assert proposal is not None
    partition.lead(5, 9, (1, 2, 3), (1, 3), 2)
    assert not partition.settle_isr(proposal, 5, 8, (1, 2))
    assert (partition.isr, partition.partition_epoch) == ((1, 3), 9)
    assert not partition.withdraw_proposal(proposal, 3)


def test_the_controllers_older_word_does_not_undo_the_answer_to_a_proposal() -> None:
    partition = leader(isr=(1,))
    partition.record_follower_fetch(2, 0, 0, 1)
    proposal = partition.propose_expansion(2, 1, LOCAL_EPOCH)
    assert proposal is not None
    partition.settle_isr(proposal, 5, 8, (1, 2))
    partition.lead(5, 7, (1, 2, 3), (1,), 2)
    assert (partition.isr, partition.partition_epoch) == ((1, 2), 8)


def test_being_told_again_of_the_present_state_does_not_end_a_proposal() -> None:
    """The controller may have accepted it: then the high watermark must wait for the follower that joined."""
    partition = leader(isr=(1, 2))
    for broker in (2, 3):
        partition.record_follower_fetch(broker, 0, 0, 1)
    proposal = partition.propose_expansion(3, 1, LOCAL_EPOCH)
    assert proposal is not None
    partition.in_sync.followers[3].is_awaited = False
    partition.lead(5, 7, (1, 2, 3), (1, 2), 2)
    append(partition)
    partition.record_follower_fetch(2, 1, 0, 2)
    assert partition.high_watermark == 0
    partition.settle_isr(proposal, 5, 8, (1, 2, 3))
    assert partition.isr == (1, 2, 3)


def test_a_follower_that_joined_and_had_to_leave_is_not_waited_for() -> None:
    partition = leader(isr=(1, 2))
    for broker in (2, 3):
        partition.record_follower_fetch(broker, 0, 0, 1)
    proposal = partition.propose_expansion(3, 1, LOCAL_EPOCH)
    assert proposal is not None
    partition.settle_isr(proposal, 5, 8, (1, 2, 3))
    append(partition)
    partition.record_follower_fetch(2, 1, 0, 2)
    assert partition.high_watermark == 0, "it is a member"
    partition.lead(5, 9, (1, 2, 3), (1, 2), 3)
    assert partition.high_watermark == 1


# --- leadership


def test_a_reassignment_within_a_leader_epoch_brings_followers_and_keeps_what_is_known_of_the_others() -> None:
    partition = leader(isr=(1, 2), replicas=(1, 2))
    append(partition, 2)
    partition.record_follower_fetch(2, 2, 0, 1)
    assert refusal(partition, 4, 5) == ErrorCode.UNKNOWN_LEADER_EPOCH
    partition.lead(5, 8, (1, 2, 4), (1, 2), 2)
    partition.check_follower(4, 5)
    assert partition.in_sync.followers[2].log_end_offset == 2
    partition.lead(5, 9, (1, 4), (1, 4), 3)
    assert refusal(partition, 2, 5) == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_a_new_leader_epoch_starts_without_knowing_how_far_followers_are() -> None:
    partition = leader(isr=(1, 2))
    append(partition, 2)
    partition.record_follower_fetch(2, 2, 0, 1)
    partition.lead(6, 8, (1, 2, 3), (1, 2), 2)
    append(partition)
    assert partition.high_watermark == 2
    assert partition.in_sync.followers[2].log_end_offset == -1


def test_who_resigns_still_knows_the_replicas_and_the_isr() -> None:
    partition = leader()
    partition.resign(2, 6, 8, (1, 2, 3), (2, 3))
    assert (partition.replicas, partition.isr, partition.is_leader) == ((1, 2, 3), (2, 3), False)
    assert refusal(partition, 3, 6) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert refusal(partition, 3, 5) == ErrorCode.FENCED_LEADER_EPOCH


def test_a_fetch_sent_before_the_follower_restarted_is_refused() -> None:
    partition = leader()
    partition.record_follower_fetch(2, 0, 0, 1, broker_epoch=8)
    with pytest.raises(KafkaError) as refused:
        partition.record_follower_fetch(2, 0, 0, 2, broker_epoch=7)
    assert refused.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_the_latest_offset_is_not_told_before_the_start_of_the_epoch_is_committed() -> None:
    partition = leader(isr=(1, 2))
    append(partition, 3)
    partition.lead(6, 8, (1, 2, 3), (1, 2), 1)
    with pytest.raises(KafkaError) as refused:
        partition.offset_for_timestamp(LATEST, 0)
    assert refused.value.code == ErrorCode.OFFSET_NOT_AVAILABLE
    assert partition.offset_for_timestamp(LATEST, None)[1] == 3, "a follower is told the end of the log"
    partition.record_follower_fetch(2, 3, 0, 2)
    assert partition.offset_for_timestamp(LATEST, 0)[1] == 3


# --- following


def test_a_follower_has_the_bytes_of_its_leader_and_the_smaller_of_the_two_high_watermarks() -> None:
    source, target = leader(isr=(1,)), follower()
    for size in (1, 5, 3):
        append(source, size)
    copy(source, target)
    assert content(target) == content(source)
    assert target.high_watermark == 9
    append(source, 4)
    assert not target.follow_watermarks(13, 0)
    assert target.high_watermark == 9


def test_a_follower_keeps_what_it_knew_to_be_committed_under_a_leader_that_does_not_know_it_yet() -> None:
    source, target = leader(isr=(1,)), follower()
    append(source, 4)
    copy(source, target)
    target.resign(3, 6, 8, (1, 2, 3), (2, 3))
    assert not target.follow_watermarks(2, 0)
    assert target.high_watermark == 4


def test_the_start_of_a_follower_follows_its_leader() -> None:
    source, target = leader(isr=(1,)), follower()
    append(source, 4)
    copy(source, target)
    source.delete_records(3)
    copy(source, target)
    assert target.log.log_start_offset == 3


def test_a_follower_that_begins_within_a_batch_takes_the_batch_whole() -> None:
    source, target = leader(isr=(1,)), follower()
    append(source, 4)
    append(source, 2)
    source.delete_records(2)
    target.start_anew_at(2, 0)
    copy(source, target)
    assert (target.log.log_start_offset, target.log.log_end_offset, target.high_watermark) == (2, 6, 6)
    assert content(target) == content(source)


def diverged() -> tuple[Partition, Partition]:
    """Broker 1 led in epoch 5 and wrote what nobody has; broker 2 leads in epoch 6 and wrote something else."""
    old, new = leader(isr=(1, 2), replicas=(1, 2)), follower()
    append(old, 3, value=b"common")
    copy(old, new)
    append(old, 2, value=b"lost")
    new.lead(6, 8, (1, 2), (2,), 1)
    append(new, 4, value=b"kept")
    old.resign(2, 6, 8, (1, 2), (2,))
    return old, new


def test_a_log_that_left_its_leaders_is_told_where_and_is_cut_there() -> None:
    old, new = diverged()
    read = new.read(5, 1000, True, current_leader_epoch=6, last_fetched_epoch=5, to_log_end=True)
    assert (read.slice, read.diverging_epoch) == (None, (5, 3))
    assert not new.continues(5, 5)
    assert old.truncate_to_divergence(5, 3, 0) == 3
    assert new.continues(3, old.log.leader_epochs.latest)
    copy(new, old)
    assert values(old) == [b"common"] * 3 + [b"kept"] * 4
    assert content(old) == content(new)


def test_an_epoch_in_which_nothing_was_written_is_forgotten_when_the_leader_does_not_know_it() -> None:
    old, new = leader(isr=(1, 2), replicas=(1, 2)), follower()
    append(old, 3)
    copy(old, new)
    old.lead(6, 8, (1, 2), (1, 2), 0)
    new.lead(7, 9, (1, 2), (2,), 1)
    append(new)
    old.resign(2, 7, 9, (1, 2), (2,))
    read = new.read(3, 1000, True, current_leader_epoch=7, last_fetched_epoch=6, to_log_end=True)
    assert read.diverging_epoch == (5, 3)
    assert old.truncate_to_divergence(5, 3, 0) == 3
    assert old.log.leader_epochs.latest == 5


def test_a_log_of_epochs_that_its_leader_never_saw_is_cut_epoch_by_epoch() -> None:
    """Quick alternating leaders, each of which wrote what no other has (KIP-279)."""
    one, two = replica(1), replica(2)
    one.lead(1, 1, (1, 2), (1,), 0)
    append(one, 2, value=b"a")
    two.resign(1, 1, 1, (1, 2), (1,))
    copy(one, two)
    two.lead(2, 2, (1, 2), (2,), 0)
    append(two, 2, value=b"b")
    one.lead(3, 3, (1, 2), (1,), 0)
    append(one, 2, value=b"c")
    two.lead(4, 4, (1, 2), (2,), 0)
    append(two, 2, value=b"d")
    one.resign(2, 4, 4, (1, 2), (2,))
    for _ in range(4):
        read = two.read(one.log.log_end_offset, 1000, True, 0, 4, one.log.leader_epochs.latest, to_log_end=True)
        if read.diverging_epoch is None:
            break
        one.truncate_to_divergence(*read.diverging_epoch, 0)
    copy(two, one)
    assert values(one) == [b"a", b"a", b"b", b"b", b"d", b"d"]
    assert content(one) == content(two)


def test_cutting_below_the_high_watermark_takes_it_along() -> None:
    partition = follower()
    source = leader(isr=(1,))
    for _ in range(5):
        append(source)
    copy(source, partition)
    assert partition.truncate_to(2, 0) == 2
    assert partition.high_watermark == 2


# --- deleting from the start


def test_the_low_watermark_is_the_smallest_start_in_the_isr() -> None:
    partition = leader(isr=(1, 2))
    append(partition, 4)
    partition.record_follower_fetch(2, 4, 0, 1)
    partition.record_follower_fetch(3, 4, 0, 1)
    partition.delete_records(3)
    assert partition.low_watermark == 0
    assert partition.record_follower_fetch(2, 4, 3, 2), "who waits for it looks again"
    assert partition.low_watermark == 3


def test_the_settings_of_the_log_are_those_that_count() -> None:
    partition = leader(isr=(1,), min_insync=1)
    assert append(partition, acks=-1) == 1
    partition.log.config = LogConfig(min_insync_replicas=2)
    with pytest.raises(KafkaError):
        append(partition, acks=-1)
