"""Producer ids and epochs as scripts (see txn_script): InitProducerId in all its cases."""

from __future__ import annotations

import pytest
from txn_script import run


def test_a_producer_without_a_transactional_id_gets_a_fresh_id_every_time():
    run("""
        init p tid=null           => p: 0/0
        init p tid=null           => p: 1/0
        init p tid=null id=1 epoch=0 => p: 2/0
        list                      => -: none
    """)


def test_a_new_transactional_id_starts_at_epoch_0():
    run("""
        init p        => log: Empty 0/0; p: 0/0
        describe      => -: Empty 0/0 since never
    """)


def test_every_initialisation_bumps_the_epoch_and_fences_the_producer_before():
    run("""
        init p        => log: Empty 0/0; p: 0/0
        init q        => log: Empty 0/1; q: 0/1
        add p t-0     => p: PRODUCER_FENCED
        end p commit  => p: PRODUCER_FENCED
        offsets p 7   => p: PRODUCER_FENCED
        add q t-0     => log: Ongoing 0/1 t-0; q: ok
    """)


def test_clients_from_before_the_name_fenced_are_told_of_an_invalid_epoch():
    run("""
        init p               => log: Empty 0/0; p: 0/0
        init q               => log: Empty 0/1; q: 0/1
        add p t-0 v=1        => p: INVALID_PRODUCER_EPOCH
        add p t-0 v=2        => p: PRODUCER_FENCED
        offsets p 7 v=1      => p: INVALID_PRODUCER_EPOCH
        offsets p 7 v=2      => p: PRODUCER_FENCED
        end p abort v=1      => p: INVALID_PRODUCER_EPOCH
        end p abort v=2      => p: PRODUCER_FENCED
        init p id=9 epoch=0 v=3 => p: INVALID_PRODUCER_EPOCH
        init p id=9 epoch=0 v=4 => p: PRODUCER_FENCED
    """)


def test_the_epoch_survives_a_restart():
    run("""
        init p        => log: Empty 0/0; p: 0/0
        restart       => nothing
        init p        => log: Empty 0/1; p: 0/1
    """)


@pytest.mark.parametrize("version", range(6))
def test_every_version_is_answered(version):
    run(f"""
        init p v={version}          => log: Empty 0/0; p: 0/0
        init p tid=null v={version} => p: 1/0
    """)


def test_a_request_that_makes_no_sense_is_refused():
    run("""
        init p tid=''            => p: INVALID_REQUEST
        init p id=5              => p: INVALID_REQUEST
        init p epoch=5           => p: INVALID_REQUEST
        init p tid=null id=5     => p: INVALID_REQUEST
        init p timeout=0         => p: INVALID_TRANSACTION_TIMEOUT
        init p timeout=-1        => p: INVALID_TRANSACTION_TIMEOUT
        init p timeout=900001    => p: INVALID_TRANSACTION_TIMEOUT
        init p timeout=900000    => log: Empty 0/0; p: 0/0
    """)


def test_a_producer_that_names_its_epoch_gets_the_next_one_only_once():
    run("""
        init p           => log: Empty 0/0; p: 0/0
        init p again     => log: Empty 0/1; p: 0/1
        # The answer was lost: the repeat names the epoch before, and gets the same answer.
        init p epoch=0 id=0   => log: Empty 0/1; p: 0/1
        init p epoch=0 id=0   => log: Empty 0/1; p: 0/1
        init p again     => log: Empty 0/2; p: 0/2
        init p epoch=0 id=0   => p: PRODUCER_FENCED
    """)


def test_a_producer_that_names_its_epoch_is_fenced_by_another_that_initialised():
    run("""
        init p           => log: Empty 0/0; p: 0/0
        init q           => log: Empty 0/1; q: 0/1
        init p again     => p: PRODUCER_FENCED
        init q again     => log: Empty 0/2; q: 0/2
        init p again     => p: PRODUCER_FENCED
    """)


def test_the_identity_of_another_id_is_fenced():
    run("""
        init p                  => log: Empty 0/0; p: 0/0
        init p id=77 epoch=0    => p: PRODUCER_FENCED
        init p id=77 epoch=32766 => p: PRODUCER_FENCED
        init p id=0 epoch=1     => p: PRODUCER_FENCED
    """)


def test_after_its_id_expired_a_producer_that_names_an_epoch_gets_a_new_id():
    run("init p id=77 epoch=12 => log: Empty 0/0; p: 0/0")


def test_a_repeat_that_spans_a_restart_is_fenced_for_kafka_does_not_store_the_last_epoch():
    run("""
        init p           => log: Empty 0/0; p: 0/0
        init p again     => log: Empty 0/1; p: 0/1
        restart          => nothing
        init p id=0 epoch=0   => p: PRODUCER_FENCED
        init p again     => log: Empty 0/2; p: 0/2
    """)


def test_when_the_epochs_are_used_up_the_producer_gets_a_new_id():
    run("""
        given p 0/32765 => nothing
        init p           => log: Empty 0/32766; p: 0/32766
        init p           => log: Empty 1/0; p: 1/0
        init p           => log: Empty 1/1; p: 1/1
    """)


def test_a_repeat_across_the_change_of_id_gets_the_new_id_again():
    run("""
        given p 0/32766 => nothing
        init p again              => log: Empty 1/0; p: 1/0
        init p id=0 epoch=32766   => log: Empty 1/0; p: 1/0
        init p id=0 epoch=32765   => p: PRODUCER_FENCED
    """)


def test_another_producer_at_the_change_of_id_fences_the_one_before():
    run("""
        given p 0/32766 => nothing
        init q                    => log: Empty 1/0; q: 1/0
        init p again              => p: PRODUCER_FENCED
    """)


def test_a_repeat_of_the_last_epoch_is_answered_before_the_id_changes():
    run("""
        given p 0/32765 => nothing
        init p again              => log: Empty 0/32766; p: 0/32766
        init p id=0 epoch=32765   => log: Empty 0/32766; p: 0/32766
        init p id=0 epoch=32764   => p: PRODUCER_FENCED
    """)


def test_without_a_producer_id_to_give_the_client_is_asked_to_try_again():
    run("""
        ids none         => nothing
        init p           => p: COORDINATOR_LOAD_IN_PROGRESS
        init p tid=null  => p: COORDINATOR_LOAD_IN_PROGRESS
        ids 5            => nothing
        init p           => log: Empty 5/0; p: 5/0
        ids none         => nothing
        init p           => log: Empty 5/1; p: 5/1
    """)


@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_new_producer_aborts_the_open_transaction_of_the_one_before(level):
    run(
        """
        init p        => log: Empty 0/0; p: 0/0
        add p t-0     => log: Ongoing 0/0 t-0; p: ok
        init q        => log: PrepareAbort 0/1 t-0; q: CONCURRENT_TRANSACTIONS; mark abort 0/1 t-0
        init q        => q: CONCURRENT_TRANSACTIONS
        end p commit  => p: PRODUCER_FENCED
        marked        => log: CompleteAbort 0/1
        init q        => log: Empty 0/2; q: 0/2
        end p commit  => p: PRODUCER_FENCED
        """,
        transaction_version=level,
    )


def test_a_new_producer_waits_for_a_commit_that_is_under_way():
    run("""
        init p        => log: Empty 0/0; p: 0/0
        add p t-0     => log: Ongoing 0/0 t-0; p: ok
        end p commit  => log: PrepareCommit 0/0 t-0; p: ok; mark commit 0/0 t-0
        init q        => q: CONCURRENT_TRANSACTIONS
        marked        => log: CompleteCommit 0/0
        init q        => log: Empty 0/1; q: 0/1
    """)


def test_the_epoch_that_is_kept_for_fencing_is_used_only_for_fencing():
    run(
        """
        given p 0/32766 => nothing
        add p t-0     => log: Ongoing 0/32766 t-0; p: ok
        init q        => log: PrepareAbort 0/32767 t-0; q: CONCURRENT_TRANSACTIONS; mark abort 0/32767 t-0
        marked        => log: CompleteAbort 0/32767
        init q        => log: Empty 1/0; q: 1/0
        """,
        transaction_version=1,
    )


def test_fencing_at_the_last_epoch_changes_the_id_in_version_2():
    run("""
        given p 0/32766 => nothing
        add p t-0     => log: Ongoing 0/32766 t-0; p: ok
        init q        => log: PrepareAbort 0/32767 next 1 t-0; q: CONCURRENT_TRANSACTIONS; mark abort 0/32767 t-0
        marked        => log: CompleteAbort 1/0
        init q        => log: Empty 1/1; q: 1/1
        end p commit  => p: INVALID_PRODUCER_ID_MAPPING
    """)


def test_an_initialisation_that_could_not_be_stored_leaves_nothing_behind():
    run("""
        fail NOT_ENOUGH_REPLICAS   => nothing
        init p                     => p: COORDINATOR_NOT_AVAILABLE
        describe                   => -: TRANSACTIONAL_ID_NOT_FOUND
        init p                     => log: Empty 1/0; p: 1/0
        fail NOT_LEADER_OR_FOLLOWER => nothing
        init p again               => p: NOT_COORDINATOR
        init p again               => log: Empty 1/1; p: 1/1
    """)


def test_a_fence_that_could_not_be_stored_does_not_use_up_an_epoch():
    run("""
        init p                     => log: Empty 0/0; p: 0/0
        add p t-0                  => log: Ongoing 0/0 t-0; p: ok
        fail NOT_ENOUGH_REPLICAS   => nothing
        init q                     => q: COORDINATOR_NOT_AVAILABLE
        end p commit               => log: PrepareCommit 0/0 t-0; p: ok; mark commit 0/0 t-0
        marked                     => log: CompleteCommit 0/0
        init q                     => log: Empty 0/1; q: 0/1
    """)


def test_the_timeout_of_the_latest_producer_counts():
    run("""
        init p timeout=1000        => log: Empty 0/0; p: 0/0
        init p timeout=5000        => log: Empty 0/1; p: 0/1
        add p t-0                  => log: Ongoing 0/1 t-0; p: ok
        pass 4999                  => nothing
        pass 1                     => log: PrepareAbort 0/2 t-0; mark abort 0/2 t-0
    """)
