"""Transactions from begin to end as scripts (see txn_script): partitions, offsets, ends, timeouts, refusals."""

from __future__ import annotations

import pytest
from txn_script import Stage, run

from tidelog.txn.adding import Addition
from tidelog.txn.state import PREVIOUS, TransactionState
from tidelog.txn.transaction import IllegalTransition, ProducerIdentity, Transaction
from tidelog.wire import messages
from tidelog.wire.errors import ErrorCode
from tidelog.wire.partitions import TopicPartition

S = TransactionState

# A transaction of p that is open in t-0, where many scripts start.
OPEN = """
    init p        => log: Empty 0/0; p: 0/0
    add p t-0     => log: Ongoing 0/0 t-0; p: ok
"""
COMMITTED = (
    OPEN
    + """
    end p commit  => log: PrepareCommit 0/0 t-0; p: ok; mark commit 0/0 t-0
    marked        => log: CompleteCommit 0/0
"""
)
# The same for a client of transactions version 2.
COMMITTED_2 = (
    OPEN
    + """
    end p commit  => log: PrepareCommit 0/1 t-0; p: ok 0/1; mark commit 0/1 t-0
    marked        => log: CompleteCommit 0/1
"""
)


def test_a_client_of_version_1_keeps_its_epoch_from_one_transaction_to_the_next():
    run(
        COMMITTED
        + """
        add p u-3     => log: Ongoing 0/0 u-3; p: ok
        end p abort   => log: PrepareAbort 0/0 u-3; p: ok; mark abort 0/0 u-3
        marked        => log: CompleteAbort 0/0
        add p t-0     => log: Ongoing 0/0 t-0; p: ok
        """
    )


def test_a_client_of_version_2_gets_a_new_epoch_at_every_end():
    run(
        COMMITTED_2
        + """
        add p u-3     => log: Ongoing 0/1 u-3; p: ok
        end p abort   => log: PrepareAbort 0/2 u-3; p: ok 0/2; mark abort 0/2 u-3
        marked        => log: CompleteAbort 0/2
        """,
        tv2="p",
    )


def test_partitions_gather_until_the_end_and_a_repeat_is_not_stored_again():
    run(
        OPEN
        + """
        add p t-1 u-0     => log: Ongoing 0/0 t-0 t-1 u-0; p: ok
        add p t-1         => p: ok
        add p t-0 t-2     => log: Ongoing 0/0 t-0 t-1 t-2 u-0; p: ok
        end p commit      => log: PrepareCommit 0/0 t-0 t-1 t-2 u-0; p: ok; mark commit 0/0 t-0 t-1 t-2 u-0
        """
    )


def test_consumed_offsets_are_part_of_the_transaction():
    run("""
        init p        => log: Empty 0/0; p: 0/0
        offsets p 7   => log: Ongoing 0/0 __consumer_offsets-7; p: ok
        offsets p 7   => p: ok
        add p t-0     => log: Ongoing 0/0 __consumer_offsets-7 t-0; p: ok
        hold          => nothing
        end p commit  => log: PrepareCommit 0/0 __consumer_offsets-7 t-0
        commit        => p: ok; mark commit 0/0 __consumer_offsets-7 t-0
    """)


@pytest.mark.parametrize("version", range(4))
def test_clients_add_partitions_in_versions_0_to_3(version):
    run(f"""
        init p               => log: Empty 0/0; p: 0/0
        add p t-0 v={version} => log: Ongoing 0/0 t-0; p: ok
        end p commit v={version} => log: PrepareCommit 0/0 t-0; p: ok; mark commit 0/0 t-0
    """)


def test_a_request_that_adds_nothing_opens_a_transaction_that_needs_no_markers():
    run("""
        init p        => log: Empty 0/0; p: 0/0
        add p         => log: Ongoing 0/0; p: nothing to add
        end p commit  => log: PrepareCommit 0/0; log: CompleteCommit 0/0; p: ok
    """)


def test_strangers_are_told_apart_from_the_fenced():
    run(
        OPEN
        + """
        add p t-1 tid=y       => p: INVALID_PRODUCER_ID_MAPPING
        offsets p 1 tid=y     => p: INVALID_PRODUCER_ID_MAPPING
        end p commit tid=y    => p: INVALID_PRODUCER_ID_MAPPING
        add p t-1 id=5        => p: INVALID_PRODUCER_ID_MAPPING
        end p commit id=5     => p: INVALID_PRODUCER_ID_MAPPING
        add p t-1 epoch=1     => p: PRODUCER_FENCED
        end p commit epoch=1  => p: PRODUCER_FENCED
        add p t-1 tid=''      => p: INVALID_REQUEST
        offsets p 1 tid=''    => p: INVALID_REQUEST
        end p abort tid=''    => p: INVALID_REQUEST
        end p abort tid='' v=5 => p: INVALID_REQUEST
        """
    )


def test_until_a_transaction_has_all_its_markers_the_next_one_waits():
    run(
        OPEN
        + """
        end p commit  => log: PrepareCommit 0/0 t-0; p: ok; mark commit 0/0 t-0
        add p t-1     => p: CONCURRENT_TRANSACTIONS
        offsets p 7   => p: CONCURRENT_TRANSACTIONS
        marked        => log: CompleteCommit 0/0
        add p t-1     => log: Ongoing 0/0 t-1; p: ok
        """
    )


def test_brokers_verify_that_a_partition_is_in_the_transaction():
    run(
        """
        init p              => log: Empty 0/0; p: 0/0
        verify p t-0        => p: TRANSACTION_ABORTABLE
        add p t-0           => log: Ongoing 0/0 t-0; p: ok
        verify p t-0        => p: ok
        verify p t-0 t-1    => p: t-0 ok t-1 TRANSACTION_ABORTABLE
        verify p t-0 epoch=3 => p: PRODUCER_FENCED
        verify p t-0 id=3   => p: INVALID_PRODUCER_ID_MAPPING
        verify p t-0 tid=''  => p: INVALID_REQUEST
        end p commit        => log: PrepareCommit 0/0 t-0; p: ok; mark commit 0/0 t-0
        verify p t-0        => p: CONCURRENT_TRANSACTIONS
        marked              => log: CompleteCommit 0/0
        verify p t-0        => p: TRANSACTION_ABORTABLE
        """
        + "".join(f"verify p t-0 v={v} => p: TRANSACTION_ABORTABLE\n" for v in (4, 5))
    )


T_0, T_1 = TopicPartition("t", 0), TopicPartition("t", 1)


def asked_by_a_broker(name, producer_id, partitions, *, verify_only=False):
    return Addition(name, ProducerIdentity(producer_id, 0), frozenset(partitions), 2, verify_only)


def with_producers(stage, names):
    for name in names:
        request = messages.InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=1000)
        stage.ask(name, request, 5)
    return stage


def test_one_request_of_a_broker_serves_many_transactions():
    stage = with_producers(Stage(num_partitions=50), "abc")
    wanted = [
        asked_by_a_broker("a", 0, [T_0, T_1]),
        asked_by_a_broker("b", 9, [T_0, T_1]),
        asked_by_a_broker("c", 2, [T_0, T_1], verify_only=True),
    ]
    decisions = stage.transactions.add_partitions("ticket", wanted, 0, stage.wall)
    # Each transactional id lives in a partition of its own, so each part of the answer waits for its own log.
    assert sorted(d.partition for d in decisions) == sorted([stage.transactions.partition_for(n) for n in "ac"] + [-1])
    results = {name: codes for d in decisions for name, codes in d.replies[0].message.items()}
    assert results == {
        "a": dict.fromkeys([T_0, T_1], ErrorCode.NONE),
        "b": dict.fromkeys([T_0, T_1], ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        "c": dict.fromkeys([T_0, T_1], ErrorCode.TRANSACTION_ABORTABLE),
    }


def test_in_one_partition_a_refused_transaction_keeps_its_error_when_the_others_cannot_be_stored():
    stage = with_producers(Stage(num_partitions=1), "a")
    of = messages.AddPartitionsToTxnRequest
    topics = [of.AddPartitionsToTxnTopic(name="t", partitions=[0])]
    request = of(
        transactions=[
            of.AddPartitionsToTxnTransaction(transactional_id="a", producer_id=0, producer_epoch=0, topics=topics),
            of.AddPartitionsToTxnTransaction(transactional_id="b", producer_id=9, producer_epoch=0, topics=topics),
        ]
    )
    stage.fail_next = ErrorCode.NOT_ENOUGH_REPLICAS
    stage.ask("broker", request, 5)
    assert stage.seen[-1] == "broker: a COORDINATOR_NOT_AVAILABLE, b INVALID_PRODUCER_ID_MAPPING"


# -- ends --------------------------------------------------------------------------------------------------------

STATES = {
    "Empty": "init p => log: Empty 0/0; p: 0/0",
    "Ongoing": OPEN,
    "PrepareCommit": OPEN + "end p commit v={v}",
    "PrepareAbort": OPEN + "end p abort v={v}",
    "CompleteCommit": OPEN + "end p commit v={v}\n marked",
    "CompleteAbort": OPEN + "end p abort v={v}\n marked",
}


@pytest.mark.parametrize(
    ("state", "asked", "answer"),
    [
        ("Empty", "commit", "INVALID_TXN_STATE"),
        ("Empty", "abort", "INVALID_TXN_STATE"),
        ("Ongoing", "commit", "ok"),
        ("Ongoing", "abort", "ok"),
        ("PrepareCommit", "commit", "CONCURRENT_TRANSACTIONS"),
        ("PrepareCommit", "abort", "CONCURRENT_TRANSACTIONS"),
        ("PrepareAbort", "commit", "CONCURRENT_TRANSACTIONS"),
        ("PrepareAbort", "abort", "CONCURRENT_TRANSACTIONS"),
        ("CompleteCommit", "commit", "ok"),
        ("CompleteCommit", "abort", "INVALID_TXN_STATE"),
        ("CompleteAbort", "commit", "INVALID_TXN_STATE"),
        ("CompleteAbort", "abort", "ok"),
    ],
)
@pytest.mark.parametrize("version", [0, 3, 4])
def test_what_an_end_means_in_version_1_depends_on_the_state(state, asked, answer, version):
    script = run(STATES[state].format(v=4))
    assert script.do("describe").startswith(f"-: {state} 0/0")
    outcome = script.do(f"end p {asked} v={version}")
    assert f"p: {answer}" in outcome.split("; ")
    assert ("log:" in outcome) == (state == "Ongoing")
    for wrong in (-1, 1):
        assert script.do(f"end p {asked} epoch={wrong}") == "p: PRODUCER_FENCED"


@pytest.mark.parametrize(
    ("state", "asked", "repeat", "new"),
    [
        ("Empty", "commit", "PRODUCER_FENCED", "INVALID_TXN_STATE"),
        ("Empty", "abort", "PRODUCER_FENCED", "ok 0/1"),
        ("Ongoing", "commit", "PRODUCER_FENCED", "ok 0/1"),
        ("Ongoing", "abort", "PRODUCER_FENCED", "ok 0/1"),
        ("CompleteCommit", "commit", "ok 0/1", "INVALID_TXN_STATE"),
        ("CompleteCommit", "abort", "INVALID_TXN_STATE", "ok 0/2"),
        ("CompleteAbort", "commit", "INVALID_TXN_STATE", "INVALID_TXN_STATE"),
        ("CompleteAbort", "abort", "ok 0/1", "ok 0/2"),
    ],
)
def test_what_an_end_means_in_version_2_depends_on_the_epoch_too(state, asked, repeat, new):
    script = run(STATES[state].format(v=5))
    epoch = script.client("p").epoch
    assert script.do("describe").startswith(f"-: {state} 0/{epoch}")
    for wrong in (epoch - 2, epoch + 1):
        assert script.do(f"end p {asked} epoch={wrong} v=5") == "p: PRODUCER_FENCED"
    assert script.do(f"end p {asked} epoch={epoch - 1} v=5") == f"p: {repeat}"
    assert f"p: {new}" in script.do(f"end p {asked} epoch={epoch} v=5").split("; ")


@pytest.mark.parametrize("outcome", ["commit", "abort"])
def test_while_a_transaction_is_prepared_everybody_is_told_to_wait_whoever_it_is(outcome):
    """The identity of the next transaction is known to its producer from now on, and to the coordinator's table only
    when all markers are there. A fatal error would end a producer that has done nothing wrong.
    """
    script = run(f"given p 0/32766\n add p t-0\n end p {outcome}", tv2="p")
    for who in ("id=0 epoch=32766", "id=0 epoch=32767", "id=1 epoch=0", "id=1 epoch=1", "id=77 epoch=3"):
        for line in (f"add p t-1 {who}", f"offsets p 7 {who}", f"init p {who}"):
            assert script.do(line) == "p: CONCURRENT_TRANSACTIONS", line
        for asked in ("commit", "abort"):
            assert script.do(f"end p {asked} {who}") == "p: CONCURRENT_TRANSACTIONS", who
    complete = "CompleteCommit" if outcome == "commit" else "CompleteAbort"
    assert script.do("marked") == f"log: {complete} 1/0"
    assert script.do("add p t-1 id=77 epoch=3") == "p: INVALID_PRODUCER_ID_MAPPING"
    assert script.do("add p t-1 id=1 epoch=0") == "log: Ongoing 1/0 t-1; p: ok"


def test_an_abort_of_what_never_reached_the_coordinator_completes_at_once():
    run(
        """
        init p        => log: Empty 0/0; p: 0/0
        end p abort   => log: PrepareAbort 0/1; log: CompleteAbort 0/1; p: ok 0/1
        end p abort   => log: PrepareAbort 0/2; log: CompleteAbort 0/2; p: ok 0/2
        # A write of the aborted transaction that arrives late is not taken for the next one.
        add p t-0 epoch=1 => p: PRODUCER_FENCED
        add p t-0     => log: Ongoing 0/2 t-0; p: ok
        """,
        tv2="p",
    )


def test_a_late_end_of_the_transaction_before_does_not_end_the_next_one_in_version_2():
    run(
        COMMITTED_2
        + """
        add p u-0             => log: Ongoing 0/1 u-0; p: ok
        end p commit epoch=0  => p: PRODUCER_FENCED
        end p abort epoch=0   => p: PRODUCER_FENCED
        describe              => -: Ongoing 0/1 since 0 u-0
        """,
        tv2="p",
    )


def test_when_the_epochs_are_used_up_the_end_brings_a_new_id_that_a_repeat_gets_again():
    run(
        """
        given p 0/32766               => nothing
        add p t-0                     => log: Ongoing 0/32766 t-0; p: ok
        ids none                      => nothing
        end p commit                  => p: COORDINATOR_LOAD_IN_PROGRESS
        ids 1                         => nothing
        end p commit                  => log: PrepareCommit 0/32767 next 1 t-0; p: ok 1/0; mark commit 0/32767 t-0
        end p commit id=0 epoch=32766 => p: CONCURRENT_TRANSACTIONS
        # The client goes on under the new id, and that is not in place before the markers are.
        add p t-0                     => p: CONCURRENT_TRANSACTIONS
        marked                        => log: CompleteCommit 1/0
        end p commit id=0 epoch=32766 => p: ok 1/0
        end p abort id=0 epoch=32766  => p: INVALID_TXN_STATE
        end p commit id=0 epoch=32765 => p: INVALID_PRODUCER_ID_MAPPING
        add p t-0                     => log: Ongoing 1/0 t-0; p: ok
        end p commit id=0 epoch=32766 => p: INVALID_PRODUCER_ID_MAPPING
        """,
        tv2="p",
    )


def test_a_change_of_id_that_a_restart_interrupts_is_completed_by_the_next_coordinator():
    run(
        """
        given p 0/32766               => nothing
        add p t-0                     => log: Ongoing 0/32766 t-0; p: ok
        end p commit                  => log: PrepareCommit 0/32767 next 1 t-0; p: ok 1/0; mark commit 0/32767 t-0
        restart                       => mark commit 0/32767 t-0
        marked                        => log: CompleteCommit 1/0
        end p commit id=0 epoch=32766 => p: ok 1/0
        """,
        tv2="p",
    )


# -- timeouts ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", [0, 1, 2])
def test_an_overdue_transaction_is_aborted_and_its_producer_fenced(level):
    run(
        """
        init p timeout=10000  => log: Empty 0/0; p: 0/0
        pass 60000            => nothing
        add p t-0             => log: Ongoing 0/0 t-0; p: ok
        pass 5000             => nothing
        add p t-1             => log: Ongoing 0/0 t-0 t-1; p: ok
        pass 4999             => nothing
        pass 1                => log: PrepareAbort 0/1 t-0 t-1; mark abort 0/1 t-0 t-1
        add p t-2             => p: CONCURRENT_TRANSACTIONS
        end p commit          => p: PRODUCER_FENCED
        marked                => log: CompleteAbort 0/1
        add p t-2             => p: PRODUCER_FENCED
        end p commit          => p: PRODUCER_FENCED
        init p                => log: Empty 0/2; p: 0/2
        """,
        transaction_version=level,
    )


def test_an_ended_transaction_does_not_time_out():
    run(
        COMMITTED
        + """
        pass 60000     => nothing
        add p t-0      => log: Ongoing 0/0 t-0; p: ok
        pass 59999     => nothing
        pass 1         => log: PrepareAbort 0/1 t-0; mark abort 0/1 t-0
        pass 3000000   => nothing
        """
    )


def test_after_its_timeout_a_producer_of_version_2_can_go_on_with_the_epoch_that_it_is_given():
    run(
        """
        init p timeout=1000 => log: Empty 0/0; p: 0/0
        add p t-0           => log: Ongoing 0/0 t-0; p: ok
        pass 1000           => log: PrepareAbort 0/1 t-0; mark abort 0/1 t-0
        end p commit        => p: CONCURRENT_TRANSACTIONS
        end p abort         => p: CONCURRENT_TRANSACTIONS
        marked              => log: CompleteAbort 0/1
        end p commit        => p: INVALID_TXN_STATE
        end p abort         => p: ok 0/1
        add p t-0           => log: Ongoing 0/1 t-0; p: ok
        """,
        tv2="p",
    )


def test_a_step_of_the_wall_clock_neither_hastens_nor_delays_a_timeout():
    run(
        OPEN
        + """
        clock 3600000  => nothing
        pass 59999     => nothing
        clock -7200000 => nothing
        pass 1         => log: PrepareAbort 0/1 t-0; mark abort 0/1 t-0
        """
    )


def test_after_a_restart_what_is_left_of_the_timeout_counts():
    run(
        OPEN
        + """
        pass 20000     => nothing
        restart        => nothing
        pass 39999     => nothing
        pass 1         => log: PrepareAbort 0/1 t-0; mark abort 0/1 t-0
        """
    )


def test_after_a_restart_a_transaction_that_is_overdue_is_aborted_at_once():
    run(
        OPEN
        + """
        clock 60000    => nothing
        restart        => nothing
        pass 0         => log: PrepareAbort 0/1 t-0; mark abort 0/1 t-0
        """
    )


def test_after_a_restart_under_an_earlier_clock_no_more_than_the_timeout_is_waited():
    run(
        OPEN
        + """
        clock -3600000 => nothing
        restart        => nothing
        pass 59999     => nothing
        pass 1         => log: PrepareAbort 0/1 t-0; mark abort 0/1 t-0
        """
    )


def test_an_abort_that_cannot_be_stored_is_tried_again_with_the_same_epoch():
    run(
        OPEN
        + """
        fail NOT_ENOUGH_REPLICAS => nothing
        pass 60000     => nothing
        pass 499       => nothing
        fail NOT_ENOUGH_REPLICAS => nothing
        pass 1         => nothing
        pass 500       => log: PrepareAbort 0/1 t-0; mark abort 0/1 t-0
        """
    )


def test_an_abort_that_needs_a_producer_id_waits_for_one():
    run("""
        given p 0/32766 => nothing
        add p t-0       => log: Ongoing 0/32766 t-0; p: ok
        ids none        => nothing
        pass 60000      => nothing
        ids 4           => nothing
        pass 500        => log: PrepareAbort 0/32767 next 4 t-0; mark abort 0/32767 t-0
    """)


def test_a_transaction_with_the_longest_timeout_never_times_out():
    run(
        """
        init p timeout=2147483647 => log: Empty 0/0; p: 0/0
        add p t-0                 => log: Ongoing 0/0 t-0; p: ok
        pass 2147483648           => nothing
        restart                   => nothing
        pass 2147483648           => nothing
        """,
        max_timeout_ms=2**31 - 1,
    )


# -- ownership ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("event", "code"), [("unload", "NOT_COORDINATOR"), ("loading", "COORDINATOR_LOAD_IN_PROGRESS")]
)
def test_only_the_coordinator_that_has_loaded_its_log_answers(event, code):
    script = run(
        OPEN
        + f"""
        {event}           => nothing
        init p            => p: {code}
        add p t-1         => p: {code}
        verify p t-0      => p: {code}
        offsets p 7       => p: {code}
        end p commit      => p: {code}
        end p commit v=5  => p: {code}
        describe          => -: {code}
        init p tid=null   => p: 1/0
        pass 600000       => nothing
        """
    )
    listed = script.do("list")
    assert listed == ("-: none" if event == "unload" else "-: COORDINATOR_LOAD_IN_PROGRESS")


def test_giving_up_a_partition_takes_its_timers_with_it():
    script = run(OPEN)
    assert len(script.timers) == 51
    script.do("unload")
    assert script.timers == {}


# -- the table of states -----------------------------------------------------------------------------------------


def in_state(state):
    return Transaction("x", 1, 1, 1000, state, 0, partitions=frozenset({TopicPartition("t", 0)}), start_ms=0)


@pytest.mark.parametrize("state", S)
def test_no_change_is_made_that_the_table_does_not_have(state):
    changes = {
        S.EMPTY: lambda t: t.initialised(2, 1000, 1),
        S.ONGOING: lambda t: t.adding([], 2, 1),
        S.PREPARE_COMMIT: lambda t: t.ending(True, 2, 1, -1),
        S.PREPARE_ABORT: lambda t: t.ending(False, 2, 1, -1),
    }
    for target, change in changes.items():
        if state in PREVIOUS[target]:
            assert change(in_state(state)).state is target
        else:
            with pytest.raises(IllegalTransition):
                change(in_state(state))
    if state.is_prepared:
        assert state in PREVIOUS[in_state(state).completed(1).state]
    else:
        with pytest.raises(IllegalTransition):
            in_state(state).completed(1)
