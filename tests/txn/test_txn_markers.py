"""Markers and crashes as scripts (see txn_script): what is prepared is finished, whatever happens in between."""

from __future__ import annotations

import pytest
from txn_script import run

from tidelog.deciding.decision import CoordinatorRecord
from tidelog.wire.errors import ErrorCode

PREPARED = """
    init p           => log: Empty 0/0; p: 0/0
    add p t-0 t-1    => log: Ongoing 0/0 t-0 t-1; p: ok
    end p commit     => log: PrepareCommit 0/0 t-0 t-1; p: ok; mark commit 0/0 t-0 t-1
"""


def test_a_transaction_is_complete_when_the_last_partition_has_its_marker():
    run(
        PREPARED
        + """
        marked t-1     => nothing
        describe       => -: PrepareCommit 0/0 since 0 t-0
        marked t-0     => log: CompleteCommit 0/0
        describe       => -: CompleteCommit 0/0 since 0
        """
    )


RETRIED = [
    "UNKNOWN_TOPIC_OR_PARTITION",
    "NOT_LEADER_OR_FOLLOWER",
    "NOT_ENOUGH_REPLICAS",
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
    "REQUEST_TIMED_OUT",
    "KAFKA_STORAGE_ERROR",
    "NETWORK_EXCEPTION",
    # Kafka gives up here and leaves readers waiting; a bug that is mended should be enough to let them go on.
    "CORRUPT_MESSAGE",
    "UNKNOWN_SERVER_ERROR",
]


@pytest.mark.parametrize("code", RETRIED)
def test_a_partition_that_cannot_take_its_marker_is_tried_until_it_can(code):
    run(
        PREPARED
        + f"""
        marked t-0 t-1={code} => nothing
        pass 99        => nothing
        pass 1         => mark commit 0/0 t-1
        marked t-1={code} => nothing
        pass 100       => mark commit 0/0 t-1
        marked         => log: CompleteCommit 0/0
        pass 1000      => nothing
        """
    )


@pytest.mark.parametrize("code", ["INVALID_PRODUCER_EPOCH", "UNSUPPORTED_FOR_MESSAGE_FORMAT", "UNSUPPORTED_VERSION"])
def test_a_partition_where_nothing_is_left_to_mark_does_not_hold_the_transaction_up(code):
    run(
        PREPARED
        + f"""
        marked t-0={code}  => nothing
        marked t-1         => log: CompleteCommit 0/0
        """
    )


def test_a_coordinator_that_has_been_replaced_stops_sending():
    run(
        PREPARED
        + """
        marked t-0 t-1=TRANSACTION_COORDINATOR_FENCED  => nothing
        pass 1000000   => nothing
        describe       => -: PrepareCommit 0/0 since 0 t-1
        """
    )


def test_only_what_failed_is_sent_again_while_the_rest_is_under_way():
    # A second marker for t-1 could overtake the completion and end the next transaction of this epoch.
    run(
        PREPARED
        + """
        marked t-0=REQUEST_TIMED_OUT => nothing
        pass 100       => mark commit 0/0 t-0
        marked t-1     => nothing
        marked t-0     => log: CompleteCommit 0/0
        """
    )


def test_failures_of_several_leaders_are_sent_again_together():
    run(
        PREPARED
        + """
        marked t-0=NOT_LEADER_OR_FOLLOWER => nothing
        pass 50        => nothing
        marked t-1=NETWORK_EXCEPTION      => nothing
        pass 99        => nothing
        pass 1         => mark commit 0/0 t-0 t-1
        """
    )


def test_a_report_about_an_earlier_transaction_does_not_count_for_the_next():
    script = run(PREPARED)
    (earlier,) = script.in_flight
    script.do("marked")
    script.do("add p t-0")
    assert script.do("end p abort") == "log: PrepareAbort 0/0 t-0; p: ok; mark abort 0/0 t-0"
    results = dict.fromkeys(earlier.partitions, ErrorCode.NONE)
    late = script.transactions.markers_written(earlier, results, script.now, script.wall)
    assert not late.records
    assert script.do("marked") == "log: CompleteAbort 0/0"


def test_a_report_to_a_coordinator_that_is_no_longer_or_not_yet_one_is_ignored():
    for change in ("unload", "loading", "restart"):
        script = run(PREPARED)
        (earlier,) = script.in_flight
        script.do(change)
        results = dict.fromkeys(earlier.partitions, ErrorCode.NONE)
        late = script.transactions.markers_written(earlier, results, script.now, script.wall)
        assert not late.records and not late.markers and not late.timers, change


def test_markers_carry_what_a_partition_checks():
    script = run(PREPARED)
    (markers,) = script.in_flight
    assert (markers.coordinator_epoch, markers.transaction_version, markers.commit) == (1, 0, True)
    script.do("restart")
    (markers,) = script.in_flight
    assert (markers.coordinator_epoch, markers.transaction_version, markers.commit) == (2, 0, True)
    script.do("marked")
    script.do("add p t-0 v=5")
    script.do("end p abort v=5")
    (markers,) = script.in_flight
    assert (markers.coordinator_epoch, markers.transaction_version, markers.commit) == (2, 2, False)


def test_the_next_coordinator_finishes_what_was_prepared():
    run(
        PREPARED
        + """
        marked t-0     => nothing
        # It cannot know what the one before has reached, so all are sent again.
        restart        => mark commit 0/0 t-0 t-1
        add p t-5      => p: CONCURRENT_TRANSACTIONS
        end p commit   => p: CONCURRENT_TRANSACTIONS
        end p abort    => p: CONCURRENT_TRANSACTIONS
        marked         => log: CompleteCommit 0/0
        end p abort    => p: INVALID_TXN_STATE
        end p commit   => p: ok
        """
    )


def test_a_prepared_transaction_without_partitions_is_completed_after_a_restart():
    script = run("""
        init p         => log: Empty 0/0; p: 0/0
        end p abort v=5 => log: PrepareAbort 0/1; log: CompleteAbort 0/1; p: ok 0/1
    """)
    # Apache Kafka appends the two records apart: a crash may come between them.
    script.log.pop()
    assert script.do("restart") == "nothing"
    assert script.do("fail NOT_ENOUGH_REPLICAS") == "nothing"
    assert script.do("pass 0") == "nothing"
    assert script.do("pass 500") == "log: CompleteAbort 0/1"


def test_a_completion_that_cannot_be_stored_is_tried_again_without_new_markers():
    run(
        PREPARED
        + """
        fail NOT_ENOUGH_REPLICAS => nothing
        marked         => nothing
        pass 499       => nothing
        pass 1         => log: CompleteCommit 0/0
        """
    )


def test_an_end_that_cannot_be_stored_leaves_the_transaction_open():
    run("""
        init p         => log: Empty 0/0; p: 0/0
        add p t-0      => log: Ongoing 0/0 t-0; p: ok
        fail REQUEST_TIMED_OUT => nothing
        end p commit   => p: COORDINATOR_NOT_AVAILABLE
        fail MESSAGE_TOO_LARGE => nothing
        end p commit v=5 => p: UNKNOWN_SERVER_ERROR
        fail KAFKA_STORAGE_ERROR => nothing
        add p t-1      => p: NOT_COORDINATOR
        fail UNKNOWN_TOPIC_OR_PARTITION => nothing
        offsets p 3    => p: COORDINATOR_NOT_AVAILABLE
        describe       => -: Ongoing 0/0 since 0 t-0
        pass 60000     => log: PrepareAbort 0/1 t-0; mark abort 0/1 t-0
    """)


# -- the log is replicated late ----------------------------------------------------------------------------------


def test_no_marker_is_written_before_its_prepare_is_committed():
    run("""
        init p         => log: Empty 0/0; p: 0/0
        add p t-0      => log: Ongoing 0/0 t-0; p: ok
        hold           => nothing
        end p commit   => log: PrepareCommit 0/0 t-0
        commit         => p: ok; mark commit 0/0 t-0
    """)


def test_a_commit_that_is_lost_with_its_coordinator_was_never_acknowledged_nor_marked():
    run("""
        init p         => log: Empty 0/0; p: 0/0
        add p t-0      => log: Ongoing 0/0 t-0; p: ok
        hold           => nothing
        end p commit   => log: PrepareCommit 0/0 t-0
        crash          => nothing
        describe       => -: Ongoing 0/0 since 0 t-0
        end p abort    => log: PrepareAbort 0/0 t-0; p: ok; mark abort 0/0 t-0
    """)


def test_an_answer_that_tells_of_uncommitted_records_waits_for_them():
    run("""
        init p         => log: Empty 0/0; p: 0/0
        hold           => nothing
        add p t-0      => log: Ongoing 0/0 t-0
        # A repeat on another connection, a verification by a leader: both would promise what may still be lost.
        add p t-0      => nothing
        verify p t-0   => nothing
        commit         => p: ok; p: ok; p: ok
    """)


def test_a_repeated_end_is_not_acknowledged_before_the_first_is_committed():
    run("""
        init p         => log: Empty 0/0; p: 0/0
        hold           => nothing
        end p abort v=5         => log: PrepareAbort 0/1; log: CompleteAbort 0/1
        end p abort epoch=0 v=5 => nothing
        commit         => p: ok 0/1; p: ok 0/1
    """)


def test_requests_do_not_wait_for_each_other_while_the_log_is_replicated():
    # Kafka answers CONCURRENT_TRANSACTIONS to the second; here it is decided on what the first has appended.
    run("""
        init p         => log: Empty 0/0; p: 0/0
        hold           => nothing
        add p t-0      => log: Ongoing 0/0 t-0
        add p t-1      => log: Ongoing 0/0 t-0 t-1
        offsets p 7    => log: Ongoing 0/0 __consumer_offsets-7 t-0 t-1
        commit         => p: ok; p: ok; p: ok
    """)


def test_markers_of_a_loaded_transaction_wait_until_what_was_loaded_is_committed():
    script = run(PREPARED)
    partition = script.transactions.partition_for("x")
    loaded = script.fresh()
    loaded.load_begin(partition, 9)
    for _, key, value in script.log:
        loaded.replay(partition, CoordinatorRecord(key, value))
    decision = loaded.load_end(partition, 0, script.wall)
    assert decision.markers and not decision.records
    assert decision.partition == partition
