"""The classic protocol as scripts: an event per line, its outcome beside it (see group_script)."""

from __future__ import annotations

import pytest
from group_script import PAIR, run


def test_first_member_waits_the_initial_delay_and_leads():
    run("""
        join a             => a: MEMBER_ID_REQUIRED
        join a             => nothing
        pass 2999          => nothing
        pass 1             => a: joined gen 1, leads a
        sync a a=x         => log: Stable gen 1 a=x; a: synced x
        beat a             => a: ok
        describe           => -: Stable consumer range a=x
    """)


def test_members_that_keep_coming_extend_the_initial_delay_up_to_the_rebalance_timeout():
    run("""
        join a v=3 rebalance=7000   => nothing
        pass 2000                   => nothing
        join b v=3 rebalance=7000   => nothing
        pass 1000                   => nothing
        pass 1000                   => nothing
        join c v=3 rebalance=7000   => nothing
        pass 2000                   => nothing
        join d v=3 rebalance=7000   => nothing
        pass 1000                   => a: joined gen 1, leads a b c d; b: joined gen 1 under a; c: joined gen 1 under a; d: joined gen 1 under a
    """)  # noqa: E501


def test_a_zero_initial_delay_completes_at_once():
    run(
        """
        join a v=3         => nothing
        pass 0             => a: joined gen 1, leads a
        """,
        group_initial_rebalance_delay_ms=0,
    )


def test_two_members_become_stable_and_both_get_their_assignment():
    run(PAIR)


def test_a_new_member_makes_everybody_rejoin():
    run(
        PAIR
        + """
        join c                 => c: MEMBER_ID_REQUIRED
        beat a                 => a: ok
        join c                 => nothing
        beat a                 => a: REBALANCE_IN_PROGRESS
        join a                 => nothing
        join b                 => a: joined gen 2, leads a b c; b: joined gen 2 under a; c: joined gen 2 under a
        beat b                 => b: ok
        sync c                 => nothing
        sync a a=1 b=2 c=3     => log: Stable gen 2 a=1 b=2 c=3; a: synced 1; c: synced 3
        sync b                 => b: synced 2
        """
    )


def test_members_that_do_not_rejoin_in_time_are_removed():
    run(
        PAIR
        + """
        join a proto=range:new rebalance=5000 => nothing
        join b rebalance=5000 proto=range:new => a: joined gen 2, leads a b; b: joined gen 2 under a
        sync a a=1 b=2                        => log: Stable gen 2 a=1 b=2; a: synced 1
        sync b                                => b: synced 2
        join a rebalance=5000                 => nothing
        pass 4999                             => nothing
        pass 1                                => a: joined gen 3, leads a
        beat b                                => b: UNKNOWN_MEMBER_ID
        """
    )


def test_session_expiry_removes_a_member_and_rebalances():
    run(
        PAIR
        + """
        pass 9000        => nothing
        beat a           => a: ok
        pass 1000        => nothing
        beat a           => a: REBALANCE_IN_PROGRESS
        join a           => a: joined gen 2, leads a
        beat b           => b: UNKNOWN_MEMBER_ID
        """
    )


def test_commits_keep_a_member_alive():
    run(
        PAIR
        + """
        pass 9000        => nothing
        beat a           => a: ok
        commit b t-0=1   => log: t-0=1; b: ok
        pass 9000        => nothing
        beat a           => a: ok
        beat b           => b: ok
        """
    )


def test_a_member_waiting_for_the_group_does_not_expire():
    run(
        PAIR
        + """
        join a proto=range:new session=10000 rebalance=300000 => nothing
        pass 9000                                             => nothing
        beat b                                                => b: REBALANCE_IN_PROGRESS
        pass 9000                                             => nothing
        beat b                                                => b: REBALANCE_IN_PROGRESS
        pass 5000                                             => nothing
        join b                                                => a: joined gen 2, leads a b; b: joined gen 2 under a
        """
    )


def test_a_pending_member_that_never_returns_is_forgotten_after_its_session():
    run(
        PAIR
        + """
        join c session=6000     => c: MEMBER_ID_REQUIRED
        join a proto=range:new  => nothing
        join b                  => nothing
        pass 5999               => nothing
        pass 1                  => a: joined gen 2, leads a b; b: joined gen 2 under a
        """
    )


def test_a_pending_member_may_leave():
    run("""
        join a      => a: MEMBER_ID_REQUIRED
        leave a     => a: left
        leave a     => a: UNKNOWN_MEMBER_ID
    """)


def test_a_new_member_that_gave_up_is_removed_after_five_minutes():
    run(
        PAIR
        + """
        join b proto=range:new rebalance=900000 session=900000  => nothing
        join c v=3 rebalance=900000                             => nothing
        drop c                                                  => nothing
        pass 9000                                               => nothing
        beat a                                                  => a: REBALANCE_IN_PROGRESS
        """
        + "pass 9000 => nothing\nbeat a => a: REBALANCE_IN_PROGRESS\n" * 32
        + """
        pass 3000                                               => nothing
        join a                                                  => a: joined gen 2, leads a b; b: joined gen 2 under a
        """
    )


def test_leaving_rebalances_and_the_last_one_leaves_an_empty_group():
    run(
        PAIR
        + """
        leave a        => a: left
        beat b         => b: REBALANCE_IN_PROGRESS
        join b         => b: joined gen 2, leads b
        sync b b=z     => log: Stable gen 2 b=z; b: synced z
        leave b        => log: Empty gen 3; b: left
        describe       => -: Empty consumer
        """
    )


def test_leave_names_many_members_at_once():
    run(
        PAIR
        + """
        leave a b      => log: Empty gen 2; a: left left
        leave a        => a: UNKNOWN_MEMBER_ID
        """
    )


def test_leave_up_to_version_2_answers_with_a_single_code():
    run(
        PAIR
        + """
        leave a v=2    => a: left
        leave a v=2    => a: UNKNOWN_MEMBER_ID
        """
    )


def test_leaving_an_unknown_group_names_each_member_from_version_3():
    run("""
        leave a          => a: UNKNOWN_MEMBER_ID
        leave a v=1      => a: UNKNOWN_MEMBER_ID
        leave a group="" => a: INVALID_GROUP_ID
    """)


def test_member_ids_are_not_asked_for_before_version_4():
    run("""
        join a v=3     => nothing
        pass 3000      => a: joined gen 1, leads a
    """)


def test_a_group_is_not_made_by_a_member_with_an_id():
    run("""
        join a id=ghost-9   => a: UNKNOWN_MEMBER_ID
        list                => -: none
    """)


@pytest.mark.parametrize("session", [5999, 1800001])
def test_session_timeouts_outside_the_bounds_are_refused(session):
    run(f"join a session={session} => a: INVALID_SESSION_TIMEOUT")


def test_an_empty_group_id_is_refused():
    run("""
        join a group=""   => a: INVALID_GROUP_ID
        beat a group=""   => a: INVALID_GROUP_ID
    """)


def test_protocols_must_have_one_in_common():
    run(
        PAIR
        + """
        join c proto=sticky                  => c: INCONSISTENT_GROUP_PROTOCOL
        join c type=connect                  => c: INCONSISTENT_GROUP_PROTOCOL
        join c proto=sticky,range            => c: MEMBER_ID_REQUIRED
        """
    )


def test_a_first_member_without_protocols_or_type_is_refused():
    run("""
        join a proto=    => a: INCONSISTENT_GROUP_PROTOCOL
        join a type=     => a: INCONSISTENT_GROUP_PROTOCOL
        list             => -: none
    """)


def test_the_protocol_that_most_prefer_among_the_common_ones_is_chosen():
    run("""
        join a v=3 proto=sticky,range          => nothing
        join b v=3 proto=range,sticky          => nothing
        join c v=3 proto=roundrobin,range,sticky => nothing
        pass 6000
        sync a proto=range a=1                 => log: Stable gen 1 a=1 b= c=; a: synced 1
        describe                               => -: Stable consumer range a=1 b c
    """)


def test_any_protocol_type_can_form_a_group():
    run("""
        join a type=connect proto=default      => a: MEMBER_ID_REQUIRED
        join a type=connect proto=default      => nothing
        pass 3000                              => a: joined gen 1, leads a
        sync a type=connect proto=default a=x  => log: Stable gen 1 a=x; a: synced x
        describe                               => -: Stable connect default a=x
        undo t-0                               => -: NON_EMPTY_GROUP
    """)


def test_sync_checks_generation_member_and_protocol():
    run(
        PAIR
        + """
        sync a gen=0              => a: ILLEGAL_GENERATION
        sync a id=nobody          => a: UNKNOWN_MEMBER_ID
        sync a proto=sticky       => a: INCONSISTENT_GROUP_PROTOCOL
        sync a type=connect       => a: INCONSISTENT_GROUP_PROTOCOL
        sync a proto=null         => a: INCONSISTENT_GROUP_PROTOCOL
        sync a proto=null v=4     => a: synced x
        """
    )


def test_sync_during_the_join_phase_says_rebalance():
    run(
        PAIR
        + """
        join a proto=range:new    => nothing
        sync b                    => b: REBALANCE_IN_PROGRESS
        """
    )


def test_a_join_during_the_sync_phase_sends_the_waiting_ones_back():
    run("""
        join a v=3          => nothing
        join b v=3          => nothing
        pass 6000           => a: joined gen 1, leads a b; b: joined gen 1 under a
        sync b              => nothing
        join c v=3          => b: REBALANCE_IN_PROGRESS
        join a              => nothing
        join b              => a: joined gen 2, leads a b c; b: joined gen 2 under a; c: joined gen 2 under a
    """)


def test_a_repeated_join_in_the_sync_phase_gets_the_same_answer():
    run("""
        join a v=3          => nothing
        join b v=3          => nothing
        pass 6000           => a: joined gen 1, leads a b; b: joined gen 1 under a
        join b              => b: joined gen 1 under a
        join a              => a: joined gen 1, leads a b
    """)


def test_a_follower_that_rejoins_unchanged_disturbs_nobody_but_the_leader_asks_for_a_rebalance():
    run(
        PAIR
        + """
        join b        => b: joined gen 1 under a
        join a        => nothing
        beat b        => b: REBALANCE_IN_PROGRESS
        """
    )


def test_members_that_never_sync_are_dropped_after_the_rebalance_timeout():
    run("""
        join a v=3 rebalance=7000 => nothing
        join b v=3 rebalance=7000 => nothing
        pass 6000                 => a: joined gen 1, leads a b; b: joined gen 1 under a
        sync a a=1 b=2            => log: Stable gen 1 a=1 b=2; a: synced 1
        pass 6999                 => nothing
        beat b                    => b: ok
        pass 1                    => nothing
        beat b                    => b: UNKNOWN_MEMBER_ID
        beat a                    => a: REBALANCE_IN_PROGRESS
    """)


def test_a_leader_that_never_syncs_is_replaced():
    run("""
        join a v=3 rebalance=7000 => nothing
        join b v=3 rebalance=7000 => nothing
        pass 6000                 => a: joined gen 1, leads a b; b: joined gen 1 under a
        sync b                    => nothing
        pass 7000                 => b: REBALANCE_IN_PROGRESS
        join b                    => b: joined gen 2, leads b
    """)


def test_heartbeat_checks_generation_and_member():
    run(
        PAIR
        + """
        beat a gen=0        => a: ILLEGAL_GENERATION
        beat a id=nobody    => a: UNKNOWN_MEMBER_ID
        beat a group=other  => a: UNKNOWN_MEMBER_ID
        """
    )


def test_a_full_group_refuses_newcomers():
    run(
        PAIR + "join c => c: GROUP_MAX_SIZE_REACHED\n"
        "join a => nothing\n"
        "join b => a: joined gen 2, leads a b; b: joined gen 2 under a",
        group_max_size=2,
    )


def test_a_group_over_its_limit_after_a_restart_sheds_the_last_to_rejoin():
    script = run(PAIR)
    script.config = type(script.config)(group_max_size=1)
    assert script.do("restart") == "nothing"
    assert script.do("beat a") == "a: REBALANCE_IN_PROGRESS"
    assert script.do("join b") == "nothing"
    assert script.do("join a") == "a: GROUP_MAX_SIZE_REACHED"


# -- static members ----------------------------------------------------------------------------------------------

STATIC = """
    join a instance=i1     => nothing
    join b instance=i2     => nothing
    pass 6000              => a: joined gen 1, leads i1 i2; b: joined gen 1 under a
    sync a a=x b=y         => log: Stable gen 1 a=x b=y; a: synced x
    sync b                 => b: synced y
"""


def test_static_members_never_need_a_second_round_for_their_id():
    run(STATIC)


def test_a_static_member_that_returns_unchanged_keeps_its_assignment_without_a_rebalance():
    run(
        STATIC
        + """
        forget b           => nothing
        join b             => log: Stable gen 1 a=x i2-3=y; b: joined gen 1 under a
        sync b             => b: synced y
        beat a             => a: ok
        """
    )


def test_a_static_leader_that_returns_is_told_to_skip_the_assignment():
    run(
        STATIC
        + """
        forget a           => nothing
        join a             => log: Stable gen 1 i1-3=x b=y; a: joined gen 1, leads i1 i2 skip
        sync a             => a: synced x
        """
    )


def test_a_static_leader_below_version_9_is_told_of_its_former_self():
    run(
        STATIC
        + """
        forget a           => nothing
        join a v=8         => log: Stable gen 1 i1-3=x b=y; a: joined gen 1 under i1-1
        sync a             => a: synced x
        """
    )


def test_the_former_self_of_a_static_member_is_fenced():
    run(
        STATIC
        + """
        forget b           => nothing
        join b             => log: Stable gen 1 a=x i2-3=y; b: joined gen 1 under a
        beat b id=i2-2     => b: FENCED_INSTANCE_ID
        sync b id=i2-2     => b: FENCED_INSTANCE_ID
        join b id=i2-2     => b: FENCED_INSTANCE_ID
        leave b id=i2-2    => b: FENCED_INSTANCE_ID
        commit b id=i2-2 t-0=1 => b: FENCED_INSTANCE_ID
        """
    )


def test_a_static_member_with_other_protocols_makes_a_rebalance_only_if_the_choice_changes():
    run("""
        join a instance=i1 proto=range,sticky     => nothing
        pass 3000                                 => a: joined gen 1, leads i1
        sync a a=x                                => log: Stable gen 1 a=x; a: synced x
        forget a
        join a proto=range:other                  => log: Stable gen 1 i1-2=x; a: joined gen 1, leads i1 skip
        forget a
        join a proto=sticky                       => a: INCONSISTENT_GROUP_PROTOCOL
    """)


def test_a_returning_static_member_ends_the_wait_of_its_former_self():
    run("""
        join a instance=i1    => nothing
        forget a              => nothing
        join a                => a: FENCED_INSTANCE_ID
        pass 3000             => a: joined gen 1, leads i1
    """)


def test_a_static_member_that_returns_in_the_sync_phase_starts_a_new_round():
    run("""
        join a instance=i1   => nothing
        join b instance=i2   => nothing
        pass 6000            => a: joined gen 1, leads i1 i2; b: joined gen 1 under a
        sync b               => nothing
        forget b             => nothing
        join b               => b: FENCED_INSTANCE_ID
        join a               => a: joined gen 2, leads i1 i2; b: joined gen 2 under a
    """)


def test_static_members_survive_a_rebalance_they_miss_until_their_session_ends():
    run(
        STATIC
        + """
        join a proto=range:new rebalance=5000 => nothing
        join b proto=range:new rebalance=5000 => a: joined gen 2, leads i1 i2; b: joined gen 2 under a
        sync a a=x b=y                        => log: Stable gen 2 a=x b=y; a: synced x
        sync b                                => b: synced y
        join a rebalance=5000                 => nothing
        pass 5000                             => a: joined gen 3, leads i1 i2
        sync a a=x b=y                        => log: Stable gen 3 a=x b=y; a: synced x
        describe                              => -: Stable consumer range a=x b=y
        pass 5000                             => nothing
        describe                              => -: PreparingRebalance consumer a=x
        """
    )


def test_an_administrator_removes_a_static_member_by_its_instance_id():
    run(
        STATIC
        + """
        leave instance=i2    => admin: left
        beat b               => b: UNKNOWN_MEMBER_ID
        leave instance=i9    => admin: UNKNOWN_MEMBER_ID
        """
    )


def test_an_unknown_instance_id_with_a_member_id_is_unknown():
    run(
        STATIC
        + """
        leave b            => b: left
        beat b             => b: UNKNOWN_MEMBER_ID
        join b             => b: UNKNOWN_MEMBER_ID
        """
    )


# -- loading, failing, losing connections ------------------------------------------------------------------------


def test_a_stable_group_survives_a_restart_with_its_generation_and_assignments():
    run(
        PAIR
        + """
        restart            => nothing
        describe           => -: Stable consumer range a=x b=y
        beat a             => a: ok
        beat b             => b: ok
        sync b             => b: synced y
        pass 10000         => log: Empty gen 2
        beat a             => a: UNKNOWN_MEMBER_ID
        """
    )


def test_an_empty_group_survives_a_restart_and_its_generation_goes_on():
    run(
        PAIR
        + """
        leave a b          => log: Empty gen 2; a: left left
        restart            => nothing
        describe           => -: Empty consumer
        join c v=3         => nothing
        pass 3000          => c: joined gen 3, leads c
        """
    )


def test_a_rebalance_under_way_is_forgotten_by_a_restart_and_its_members_are_sent_away():
    run(
        PAIR
        + """
        join a proto=range:new  => nothing
        restart                 => a: NOT_COORDINATOR
        beat a                  => a: ok
        beat b                  => b: ok
        """
    )


def test_requests_are_refused_while_the_partition_loads_and_heartbeats_are_not():
    run("""
        load begin         => nothing
        join a             => a: COORDINATOR_LOAD_IN_PROGRESS
        sync a             => a: COORDINATOR_LOAD_IN_PROGRESS
        leave a            => a: COORDINATOR_LOAD_IN_PROGRESS
        beat a             => a: ok
        commit - t-0=1     => -: COORDINATOR_LOAD_IN_PROGRESS
        fetch t-0          => -: COORDINATOR_LOAD_IN_PROGRESS
        fetch t-0 v=1      => -: t-0=COORDINATOR_LOAD_IN_PROGRESS
        txncommit - pid=1 t-0=1 => -: COORDINATOR_LOAD_IN_PROGRESS
        undo t-0           => -: COORDINATOR_LOAD_IN_PROGRESS
        describe           => -: ? COORDINATOR_LOAD_IN_PROGRESS
        list               => -: COORDINATOR_LOAD_IN_PROGRESS
        delete             => -: COORDINATOR_LOAD_IN_PROGRESS
        hb h topics=t      => h: COORDINATOR_LOAD_IN_PROGRESS
        show               => -: COORDINATOR_LOAD_IN_PROGRESS
        load end           => nothing
        join a             => a: MEMBER_ID_REQUIRED
    """)


def test_a_broker_that_does_not_lead_the_partition_says_so():
    run("""
        load unload        => nothing
        join a             => a: NOT_COORDINATOR
        beat a             => a: NOT_COORDINATOR
        commit - t-0=1     => -: NOT_COORDINATOR
        fetch t-0          => -: NOT_COORDINATOR
        delete             => -: NOT_COORDINATOR
        hb a topics=t      => a: NOT_COORDINATOR
    """)


def test_a_failed_write_of_the_assignment_starts_the_rebalance_over():
    run("""
        join a v=3                 => nothing
        join b v=3                 => nothing
        pass 6000                  => a: joined gen 1, leads a b; b: joined gen 1 under a
        sync b                     => nothing
        fail NOT_ENOUGH_REPLICAS   => nothing
        sync a a=x b=y             => a: COORDINATOR_NOT_AVAILABLE; b: COORDINATOR_NOT_AVAILABLE
        beat a                     => a: REBALANCE_IN_PROGRESS
        join a                     => nothing
        join b                     => a: joined gen 2, leads a b; b: joined gen 2 under a
        sync a a=x b=y             => log: Stable gen 2 a=x b=y; a: synced x
        sync b                     => b: synced y
    """)


def test_a_failed_write_of_a_returning_static_member_leaves_the_former_one_in_place():
    run(
        STATIC
        + """
        forget b                   => nothing
        fail NOT_LEADER_OR_FOLLOWER => nothing
        join b                     => b: NOT_COORDINATOR
        beat b id=i2-2 gen=1       => b: ok
        describe                   => -: Stable consumer range a=x i2-2=y
        """
    )


def test_a_failed_write_of_the_empty_group_is_survived():
    run(
        PAIR
        + """
        fail KAFKA_STORAGE_ERROR   => nothing
        leave a b                  => a: NOT_COORDINATOR
        describe                   => -: Empty consumer
        join c v=3                 => nothing
        pass 3000                  => c: joined gen 3, leads c
        """
    )


def test_a_dropped_connection_is_not_answered_and_its_member_stays():
    run("""
        join a v=3          => nothing
        join b v=3          => nothing
        drop b              => nothing
        pass 6000           => a: joined gen 1, leads a b
        sync a a=x          => log: Stable gen 1 a=x b-2=; a: synced x
        describe            => -: Stable consumer range a=x b-2
    """)


def test_a_repeated_join_takes_the_place_of_the_first():
    run(
        PAIR
        + """
        join a proto=range:new      => nothing
        join a proto=range:new      => a: REBALANCE_IN_PROGRESS
        join b                      => a: joined gen 2, leads a b; b: joined gen 2 under a
        """
    )


def test_a_partition_that_is_loaded_anew_sends_away_whoever_waits():
    run(
        PAIR
        + """
        join a proto=range:new  => nothing
        load begin              => a: NOT_COORDINATOR
        load end                => nothing
        list                    => -: none
        """
    )


def test_a_member_that_was_given_a_dynamic_id_cannot_join_under_the_instance_id_of_another():
    run("""
        join a             => a: MEMBER_ID_REQUIRED
        join b instance=i  => nothing
        join a instance=i  => a: FENCED_INSTANCE_ID
        join a instance=j  => a: UNKNOWN_MEMBER_ID
        pass 3000          => b: joined gen 1, leads i
        sync b b=t:0
        beat b instance=i  => b: ok
    """)
