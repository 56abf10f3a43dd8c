"""The consumer protocol (KIP-848) as scripts: an event per line, its outcome beside it (see group_script)."""

from __future__ import annotations

import pytest
from group_script import run

from tidelog.group.consumer_group import ConsumerGroup, ConsumerMember

# A new target is made with every change, without the pause that bundles changes.
EAGER = {"consumer_assignment_interval_ms": 0}

ONE = """
    topics t:4         => nothing
    hb a topics=t      => log: member a; log: group epoch 2; log: target of a t:0,1,2,3; log: target epoch 2; log: a at 2 has t:0,1,2,3; a: epoch 2 t:0,1,2,3
"""  # noqa: E501

# a owns t:0,1 and b owns t:2,3, both in epoch 3.
TWO = (
    ONE
    + """
    hb b topics=t            => log: member b; log: group epoch 3; log: target of a t:0,1; log: target of b t:2,3; log: target epoch 3; log: b at 3 has none; b: epoch 3 none
    hb a                     => log: a at 2 has t:0,1 revokes t:2,3; a: epoch 2 t:0,1
    hb b                     => log: b at 3 has none; b: epoch 3
    hb b                     => b: epoch 3
    hb a owned=t:0,1         => log: a at 3 has t:0,1; a: epoch 3
    hb b                     => log: b at 3 has t:2,3; b: epoch 3 t:2,3
    hb a                     => a: epoch 3
    hb b                     => b: epoch 3
"""  # noqa: E501
)


def test_the_first_member_gets_everything():
    run(ONE + "show => -: Stable 2/2 uniform a@2[t:0,1,2,3]\nlist => -: g consumer Stable consumer", **EAGER)


def test_a_second_member_gets_partitions_only_after_the_first_gave_them_up():
    run(TWO + "show => -: Stable 3/3 uniform a@3[t:0,1] b@3[t:2,3]", **EAGER)


def test_while_it_revokes_a_member_is_still_shown_with_what_it_holds():
    run(
        ONE
        + """
        hb b topics=t
        show            => -: Reconciling 3/3 uniform a@2[t:0,1,2,3] b@3[none]
        hb a
        show            => -: Reconciling 3/3 uniform a@2[t:0,1,2,3] b@3[none]
        hb a owned=t:0,1
        hb b
        show            => -: Stable 3/3 uniform a@3[t:0,1] b@3[t:2,3]
        """,
        **EAGER,
    )


def test_changes_in_quick_succession_share_one_target():
    run(
        ONE
        + """
        hb b topics=t    => log: member b; log: group epoch 3; log: b at 2 has none; b: epoch 2 none
        show             => -: Assigning 3/2 uniform a@2[t:0,1,2,3] b@2[none]
        hb c topics=t    => log: member c; log: group epoch 4; log: c at 2 has none; c: epoch 2 none
        pass 1000        => nothing
        hb b             => log: target of a t:0,1; log: target of b t:2; log: target of c t:3; log: target epoch 4; log: b at 4 has none; b: epoch 4
        """  # noqa: E501
    )


def test_leaving_bumps_the_group_epoch_and_the_others_take_over():
    run(
        TWO
        + """
        hb b epoch=-1    => log: no assignment of b; log: no target of b; log: no member b; log: group epoch 4; b: epoch -1
        hb a             => log: target of a t:0,1,2,3; log: target epoch 4; log: a at 4 has t:0,1,2,3; a: epoch 4 t:0,1,2,3
        hb a epoch=-1    => log: no assignment of a; log: no target of a; log: no member a; log: group epoch 5; a: epoch -1
        list             => -: g consumer Empty consumer
        """,  # noqa: E501
        **EAGER,
    )


def test_a_member_that_falls_silent_is_fenced_after_the_session():
    run(
        TWO
        + """
        pass 40000       => nothing
        hb a             => a: epoch 3
        pass 5000        => log: no assignment of b; log: no target of b; log: no member b; log: group epoch 4
        hb b             => b: UNKNOWN_MEMBER_ID
        """,
        **EAGER,
    )


def test_a_fencing_that_cannot_be_stored_is_tried_again():
    run(
        ONE
        + """
        fail NOT_ENOUGH_REPLICAS
        pass 45000       => nothing
        show             => -: Stable 2/2 uniform a@2[t:0,1,2,3]
        pass 500         => log: no assignment of a; log: no target of a; log: no member a; log: group epoch 3
        """,
        **EAGER,
    )


def test_a_member_that_does_not_revoke_in_time_is_fenced():
    run(
        ONE.replace("hb a topics=t ", "hb a topics=t rebalance=7000 ")
        + """
        hb b topics=t
        hb a             => log: a at 2 has t:0,1 revokes t:2,3; a: epoch 2 t:0,1
        pass 6999        => nothing
        hb a             => a: epoch 2
        pass 1           => log: no assignment of a; log: no target of a; log: no member a; log: group epoch 4
        hb a             => a: UNKNOWN_MEMBER_ID
        """,
        **EAGER,
    )


def test_epochs_other_than_the_known_and_the_previous_are_fenced():
    run(
        TWO
        + """
        hb a epoch=4                    => a: FENCED_MEMBER_EPOCH
        hb a epoch=1                    => a: FENCED_MEMBER_EPOCH
        hb a epoch=2                    => a: FENCED_MEMBER_EPOCH
        hb a epoch=2 owned='t:0,1,2'    => a: FENCED_MEMBER_EPOCH
        hb a epoch=2 owned=t:0,1        => a: epoch 3
        """,
        **EAGER,
    )


def test_a_full_request_gets_the_whole_assignment_again():
    run(TWO + "hb a topics=t rebalance=60000 owned=t:0,1 => a: epoch 3 t:0,1", **EAGER)


def test_a_member_may_rejoin_with_epoch_zero_and_keeps_what_it_had():
    run(TWO + "hb a epoch=0 topics=t => a: epoch 3 t:0,1", **EAGER)


def test_unknown_groups_and_members():
    run(
        ONE
        + """
        hb z epoch=5 id=z group=other  => z: GROUP_ID_NOT_FOUND
        hb z epoch=-1 id=z group=other => z: GROUP_ID_NOT_FOUND
        hb z epoch=5 id=z            => z: UNKNOWN_MEMBER_ID
        hb z epoch=-1 id=z           => z: UNKNOWN_MEMBER_ID
        """,
        **EAGER,
    )


def test_requests_that_make_no_sense_are_refused():
    run("""
        hb a id="" topics=t                  => a: INVALID_REQUEST
        hb a id=" " epoch=-1                 => a: INVALID_REQUEST
        hb a group="" topics=t               => a: INVALID_REQUEST
        hb a instance="" topics=t            => a: INVALID_REQUEST
        hb b rack="" topics=t                => b: INVALID_REQUEST
        hb b topics=t rebalance=-1           => b: INVALID_REQUEST
        hb b topics=t owned=null             => b: INVALID_REQUEST
        hb b topics=t owned=t:1              => b: INVALID_REQUEST
        hb b                                 => b: INVALID_REQUEST
        hb b epoch=-2                        => b: INVALID_REQUEST
        hb b epoch=-3                        => b: INVALID_REQUEST
        hb b topics=t assignor=random        => b: UNSUPPORTED_ASSIGNOR
    """)


def test_version_0_lets_the_broker_choose_the_member_id():
    script = run("topics t:1\nhb a topics=t v=0")
    assert script.client("a").member_id


def test_a_full_group_refuses_newcomers():
    run(ONE + "hb b topics=t => b: GROUP_MAX_SIZE_REACHED\nhb a => a: epoch 2", consumer_max_size=1, **EAGER)


def test_the_assignor_that_most_members_ask_for_is_used():
    run(
        """
        topics t:3 u:3                        => nothing
        hb a topics=t,u assignor=range
        hb b topics=t,u assignor=range
        hb a owned='t:0,1 u:0,1'              => log: a at 3 has t:0,1 u:0,1; a: epoch 3 t:0,1 u:0,1
        hb b                                  => log: b at 3 has t:2 u:2; b: epoch 3 t:2 u:2
        show                                  => -: Stable 3/3 range a@3[t:0,1 u:0,1] b@3[t:2 u:2]
        """,
        **EAGER,
    )


# -- subscriptions and topics ------------------------------------------------------------------------------------


def test_a_changed_subscription_takes_effect():
    run(
        """
        topics t:2 u:2            => nothing
        hb a topics=t
        hb a topics=u             => log: member a; log: group epoch 3; log: target of a u:0,1; log: target epoch 3; log: a at 2 has none revokes t:0,1; a: epoch 2 none
        hb a owned=               => log: a at 3 has u:0,1; a: epoch 3 u:0,1
        """,  # noqa: E501
        **EAGER,
    )


def test_a_dropped_topic_is_revoked_even_before_the_next_target():
    run("""
        topics t:2 u:2            => nothing
        hb a topics=t,u
        hb a topics=u             => log: member a; log: group epoch 3; log: a at 2 has u:0,1 revokes t:0,1; a: epoch 2 u:0,1
    """)  # noqa: E501


def test_new_partitions_are_assigned_at_the_next_heartbeat():
    run(
        ONE
        + """
        topics t:5     => nothing
        hb a           => log: group epoch 3; log: target of a t:0,1,2,3,4; log: target epoch 3; log: a at 3 has t:0,1,2,3,4; a: epoch 3 t:0,1,2,3,4
        hb a           => a: epoch 3
        """,  # noqa: E501
        **EAGER,
    )


def test_a_deleted_topic_is_revoked():
    run(
        """
        topics t:1 u:1            => nothing
        hb a topics=t,u
        untopic u                 => nothing
        hb a                      => log: group epoch 3; log: target of a t:0; log: target epoch 3; log: a at 2 has t:0 revokes u:0; a: epoch 2 t:0
        hb a owned=t:0            => log: a at 3 has t:0; a: epoch 3
        """,  # noqa: E501
        **EAGER,
    )


def test_a_topic_that_comes_later_is_assigned_then():
    run(
        """
        hb a topics=t      => log: member a; log: group epoch 2; log: target of a none; log: target epoch 2; log: a at 2 has none; a: epoch 2 none
        topics t:1         => nothing
        hb a               => log: group epoch 3; log: target of a t:0; log: target epoch 3; log: a at 3 has t:0; a: epoch 3 t:0
        """,  # noqa: E501
        **EAGER,
    )


def test_a_change_that_could_not_be_stored_is_seen_again():
    run(
        ONE
        + """
        topics t:5               => nothing
        fail NOT_ENOUGH_REPLICAS => nothing
        hb a                     => a: COORDINATOR_NOT_AVAILABLE
        hb a epoch=2             => log: group epoch 3; log: target of a t:0,1,2,3,4; log: target epoch 3; log: a at 3 has t:0,1,2,3,4; a: epoch 3 t:0,1,2,3,4
        """,  # noqa: E501
        **EAGER,
    )


# -- regular expressions -----------------------------------------------------------------------------------------

REGEX = """
    topics ta:1 tb:1 u:1     => nothing
    hb a regex=t.*           => log: member a; log: a at 1 has none; a: epoch 1 none
    pass 0                   => log: regex t.* is ta,tb; log: group epoch 2
    hb a                     => log: target of a ta:0 tb:0; log: target epoch 2; log: a at 2 has ta:0 tb:0; a: epoch 2 ta:0 tb:0
"""  # noqa: E501


def test_a_regular_expression_is_resolved_and_assigned():
    run(REGEX, **EAGER)


@pytest.mark.parametrize("expression", ["t(", "(?=t)", r"\1", "t**", "[z-a]", "t{1001}", r"\k"])
def test_what_re2_refuses_is_refused(expression):
    run(f"hb a regex='{expression}' => a: INVALID_REGULAR_EXPRESSION")


def test_a_new_topic_is_found_after_the_shortest_interval():
    run(
        REGEX
        + """
        topics tc:1          => nothing
        hb a                 => a: epoch 2
        pass 10001           => nothing
        hb a                 => a: epoch 2
        pass 0               => log: regex t.* is ta,tb,tc; log: group epoch 3
        hb a                 => log: target of a ta:0 tb:0 tc:0; log: target epoch 3; log: a at 3 has ta:0 tb:0 tc:0; a: epoch 3 ta:0 tb:0 tc:0
        """,  # noqa: E501
        **EAGER,
    )


def test_a_second_member_with_the_same_expression_needs_no_resolution():
    run(
        REGEX
        + """
        hb b regex=t.*       => log: member b; log: group epoch 3; log: target of a ta:0; log: target of b tb:0; log: target epoch 3; log: b at 3 has none; b: epoch 3 none
        """,  # noqa: E501
        **EAGER,
    )


def test_an_expression_goes_with_its_last_member():
    run(
        REGEX
        + """
        hb a epoch=-1        => log: no assignment of a; log: no target of a; log: no member a; log: no regex t.*; log: group epoch 3; a: epoch -1
        """,  # noqa: E501
        **EAGER,
    )


def test_an_expression_given_up_for_names_is_deleted():
    run(
        REGEX
        + """
        hb a topics=u regex=""  => log: member a; log: no regex t.*; log: group epoch 3; log: target of a u:0; log: target epoch 3; log: a at 2 has none revokes ta:0 tb:0; a: epoch 2 none
        """,  # noqa: E501
        **EAGER,
    )


def test_a_resolved_expression_survives_a_restart():
    run(
        REGEX
        + """
        restart       => nothing
        hb a          => a: epoch 2
        show          => -: Stable 2/2 uniform a@2[ta:0 tb:0]
        """,
        **EAGER,
    )


# -- static members ----------------------------------------------------------------------------------------------

STATIC = """
    topics t:2                  => nothing
    hb a topics=t instance=i1
    hb b topics=t instance=i2
    hb a owned=t:0              => log: a at 3 has t:0; a: epoch 3 t:0
    hb b                        => log: b at 3 has t:1; b: epoch 3 t:1
"""


def test_an_instance_id_in_use_cannot_be_taken():
    run(STATIC + "hb c topics=t instance=i1 => c: UNRELEASED_INSTANCE_ID", **EAGER)


def test_a_static_member_that_went_away_for_a_while_gets_its_partitions_back():
    run(
        STATIC
        + """
        hb a epoch=-2               => log: a at -2 has t:0; a: epoch -2
        hb b                        => b: epoch 3
        hb c topics=t instance=i1   => log: no assignment of a; log: no target of a; log: no member a; log: member c; log: target of c t:0; log: c at 0 has t:0; log: member c; log: c at 3 has t:0; c: epoch 3 t:0
        hb b                        => b: epoch 3
        hb a epoch=3                => a: FENCED_INSTANCE_ID
        """,  # noqa: E501
        **EAGER,
    )


def test_a_static_member_that_stays_away_is_fenced_after_its_session():
    run(
        STATIC
        + """
        hb a epoch=-2     => log: a at -2 has t:0; a: epoch -2
        pass 40000        => nothing
        hb b              => b: epoch 3
        pass 5000         => log: no assignment of a; log: no target of a; log: no member a; log: group epoch 4
        """,
        **EAGER,
    )


def test_a_static_member_that_leaves_for_good_is_gone():
    run(
        STATIC
        + """
        hb a epoch=-1              => log: no assignment of a; log: no target of a; log: no member a; log: group epoch 4; a: epoch -1
        hb a epoch=3               => a: UNKNOWN_MEMBER_ID
        """,  # noqa: E501
        **EAGER,
    )


# -- offsets -----------------------------------------------------------------------------------------------------


def test_commits_need_the_epoch_in_which_the_partition_was_assigned_or_a_later_one():
    run(
        TWO
        + """
        commit a gen=3 t-0=1            => log: t-0=1; a: ok
        commit a gen=2 t-0=2            => log: t-0=2; a: ok
        commit a gen=1 t-0=3            => a: STALE_MEMBER_EPOCH
        commit a gen=2 t-3=3            => a: STALE_MEMBER_EPOCH
        commit b gen=2 t-2=3            => b: STALE_MEMBER_EPOCH
        commit a gen=4 t-0=3            => a: STALE_MEMBER_EPOCH
        commit z gen=3 t-0=3            => z: UNKNOWN_MEMBER_ID
        commit - t-0=3                  => -: UNKNOWN_MEMBER_ID
        commit a gen=3 t-0=3 v=8        => a: UNSUPPORTED_VERSION
        """,
        **EAGER,
    )


def test_a_member_may_commit_what_it_is_about_to_revoke():
    run(
        ONE
        + """
        hb b topics=t
        hb a                          => log: a at 2 has t:0,1 revokes t:2,3; a: epoch 2 t:0,1
        commit a gen=2 t-3=7          => log: t-3=7; a: ok
        """,
        **EAGER,
    )


def test_fetches_check_the_epoch_of_a_member():
    run(
        TWO
        + """
        commit a gen=3 t-0=1            => log: t-0=1; a: ok
        fetch t-0 member=a epoch=3      => -: t-0=1
        fetch t-0 member=a epoch=2      => -: STALE_MEMBER_EPOCH
        fetch t-0 member=z epoch=3      => -: UNKNOWN_MEMBER_ID
        fetch t-0                       => -: t-0=1
        """,
        **EAGER,
    )


def test_transactional_commits_of_members_are_checked_too():
    run(
        TWO
        + """
        txncommit a pid=9 gen=3 t-0=1     => log: t-0=1; a: ok
        txncommit a pid=9 gen=2 t-3=1     => a: ILLEGAL_GENERATION
        txncommit a pid=9 gen=4 t-0=1     => a: ILLEGAL_GENERATION
        txncommit - pid=9 t-0=1           => log: t-0=1; -: ok
        """,
        **EAGER,
    )


def test_offsets_of_subscribed_topics_are_not_deleted():
    run(
        ONE
        + """
        commit a gen=2 t-0=1       => log: t-0=1; a: ok
        undo t-0                   => -: GROUP_SUBSCRIBED_TO_TOPIC
        """,
        **EAGER,
    )


# -- lifecycle ---------------------------------------------------------------------------------------------------


def test_a_consumer_group_survives_a_restart():
    run(
        TWO
        + """
        restart          => nothing
        show             => -: Stable 3/3 uniform a@3[t:0,1] b@3[t:2,3]
        hb a             => a: epoch 3
        pass 40000       => nothing
        hb a             => a: epoch 3
        pass 5000        => log: no assignment of b; log: no target of b; log: no member b; log: group epoch 4
        """,
        **EAGER,
    )


def test_a_revocation_under_way_survives_a_restart_with_its_timeout():
    run(
        ONE.replace("hb a topics=t ", "hb a topics=t rebalance=7000 ")
        + """
        hb b topics=t
        hb a             => log: a at 2 has t:0,1 revokes t:2,3; a: epoch 2 t:0,1
        restart          => nothing
        hb b             => log: b at 3 has none; b: epoch 3
        pass 7000        => log: no assignment of a; log: no target of a; log: no member a; log: group epoch 4
        """,
        **EAGER,
    )


def test_an_empty_consumer_group_is_deleted_with_all_its_records():
    run(
        ONE
        + """
        delete           => -: NON_EMPTY_GROUP
        commit a gen=2 t-0=5 => log: t-0=5; a: ok
        hb a epoch=-1
        delete           => log: no t-0; log: no target; log: no partition metadata; log: no group; -: deleted
        restart          => nothing
        list             => -: none
        """,
        **EAGER,
    )


def test_an_empty_consumer_group_without_offsets_is_cleaned_up():
    run(ONE + "hb a epoch=-1\nexpire => log: no target; log: no partition metadata; log: no group", **EAGER)


def test_settings_of_one_group_override_the_brokers():
    script = run(
        ONE
        + """
        config consumer.session.timeout.ms=50000 consumer.heartbeat.interval.ms=7000 => nothing
        hb a             => a: epoch 2
        pass 49999       => nothing
        pass 1           => log: no assignment of a; log: no target of a; log: no member a; log: group epoch 3
        """,
        **EAGER,
    )
    assert script.last.heartbeat_interval_ms == 7000


def test_describing_the_other_kind_of_group_says_not_found():
    run(ONE + "describe => -: Dead GROUP_ID_NOT_FOUND\ndescribe v=5 => -: Dead", **EAGER)
    run("commit - t-0=1 => log: t-0=1; -: ok\nshow => -: GROUP_ID_NOT_FOUND")


def test_a_simple_group_with_offsets_becomes_a_consumer_group_and_keeps_them():
    run(
        """
        topics t:4        => nothing
        commit - t-0=5    => log: t-0=5; -: ok
        """
        + ONE.split("\n", 2)[2]
        + """
        fetch t-0         => -: t-0=5
        restart           => nothing
        fetch t-0         => -: t-0=5
        """,
        **EAGER,
    )


def test_a_member_that_changes_its_instance_id_leaves_the_old_one_to_others():
    run(
        """
        topics t:2                       => nothing
        hb a topics=t instance=A         => log: member a; log: group epoch 2; log: target of a t:0,1; log: target epoch 2; log: a at 2 has t:0,1; a: epoch 2 t:0,1
        hb a epoch=0 topics=t instance=B => log: member a; a: epoch 2 t:0,1
        restart                          => nothing
        hb a epoch=-1 instance=B         => log: no assignment of a; log: no target of a; log: no member a; log: group epoch 3; a: epoch -1
        hb b topics=t instance=A         => log: member b; log: group epoch 4; log: target of b t:0,1; log: target epoch 4; log: b at 4 has t:0,1; b: epoch 4 t:0,1
        """,  # noqa: E501
        consumer_assignment_interval_ms=0,
    )


def test_a_member_that_becomes_static_gets_what_it_waits_for():
    run(
        """
        topics t:2                       => nothing
        hb a topics=t
        hb b topics=t
        hb b epoch=0 topics=t instance=B => log: member b; log: b at 3 has none; b: epoch 3 none
        hb a                             => log: a at 2 has t:0 revokes t:1; a: epoch 2 t:0
        hb a owned=t:0                   => log: a at 3 has t:0; a: epoch 3
        hb b                             => log: b at 3 has t:1; b: epoch 3 t:1
        """,
        consumer_assignment_interval_ms=0,
    )


def test_members_that_leave_leave_no_timers():
    stage = run(ONE + "hb b topics=t\nhb b epoch=-1\nhb a epoch=-1", **EAGER)
    kinds = {key[1] for key in stage.timers}
    assert "session" not in kinds


def test_what_a_group_reads_is_known_without_a_look_at_its_members():
    group = ConsumerGroup("g")
    for number in range(100):
        names = frozenset({"t"}) if number % 2 else frozenset({"t", "u"})
        group.put_member(ConsumerMember(f"m{number}", subscribed_topic_names=names, subscribed_topic_regex="v.*"))
    for number in range(0, 98, 2):
        group.remove_member(f"m{number}")
    assert len(group._subscriptions) == 2
    assert group.subscribed_topics() == {"t", "u"}
    assert group.count_subscribed_to_regex("v.*") == 51
    last = group.members["m98"]._replace(subscribed_topic_names=frozenset({"w"}), subscribed_topic_regex="")
    assert group.subscribed_topics_after(last) == {"t", "w"}
    assert group.subscribed_regexes_after(last) == {"v.*"}
    group.put_member(last)
    assert group.subscribed_topics() == {"t", "w"}


def test_a_static_member_takes_the_subscription_of_the_one_it_replaces_with_it():
    group = ConsumerGroup("g")
    group.put_member(ConsumerMember("old", instance_id="i", subscribed_topic_names=frozenset({"t"})))
    new = ConsumerMember("new", instance_id="i", subscribed_topic_names=frozenset({"u"}))
    assert group.subscribed_topics_after(new) == {"u"}
