"""One group, two protocols: online upgrade and downgrade as scripts (see group_script)."""

from __future__ import annotations

from group_script import run

EAGER = {"consumer_assignment_interval_ms": 0}

# A stable classic group of one consumer that reads t.
CLASSIC = """
    topics t:2               => nothing
    join a topics=t v=3      => nothing
    pass 3000                => a: joined gen 1, leads a
    sync a a=t:0,1
"""

# b has joined with the new protocol: the group is a consumer group, and a still speaks the classic one.
MIXED = (
    CLASSIC
    + """
    hb b topics=t            => log: no group; log: member a; log: group epoch 1; log: target of a t:0,1; log: target epoch 1; log: a at 1 has t:0,1; log: member b; log: group epoch 2; log: target of a t:0; log: target of b t:1; log: target epoch 2; log: b at 2 has none; b: epoch 2 none
"""  # noqa: E501
)

# a has followed: it owns t:0, b owns t:1.
SETTLED = (
    MIXED
    + """
    beat a                              => a: REBALANCE_IN_PROGRESS
    join a topics=t owned=t:0,1         => log: member a; log: a at 1 has t:0 revokes t:1; a: joined gen 1
    sync a                              => a: synced t:0
    beat a                              => a: REBALANCE_IN_PROGRESS
    join a topics=t owned=t:0           => log: member a; log: a at 2 has t:0; a: joined gen 2
    sync a                              => a: synced t:0
    hb b                                => log: b at 2 has t:1; b: epoch 2 t:1
    beat a                              => a: ok
"""
)


def test_a_modern_member_turns_a_classic_group_into_a_consumer_group_without_stopping_it():
    run(
        SETTLED
        + """
        show          => -: Stable 2/2 uniform a@2[t:0] b@2[t:1]
        list          => -: g consumer Stable consumer
        """,
        **EAGER,
    )


def test_members_that_wait_in_the_classic_group_are_sent_to_rejoin():
    script = run(CLASSIC, **EAGER)
    assert script.do("join c topics=t v=3") == "nothing"
    assert "c: REBALANCE_IN_PROGRESS; b: epoch 2 none" in script.do("hb b topics=t")
    assert script.do("beat a") == "a: REBALANCE_IN_PROGRESS"
    script = run(CLASSIC, **EAGER)
    script.do("join c topics=t v=3")
    assert script.do("join a topics=t") == "a: joined gen 2, leads a c; c: joined gen 2 under a"
    assert script.do("sync c") == "nothing"
    assert "c: REBALANCE_IN_PROGRESS; b: epoch 3 none" in script.do("hb b topics=t")


def test_a_classic_newcomer_joins_a_mixed_group():
    run(
        SETTLED
        + """
        join c topics=t        => c: MEMBER_ID_REQUIRED
        join c topics=t        => log: member c; log: group epoch 3; log: target of c none; log: target epoch 3; log: c at 3 has none; c: joined gen 3
        sync c                 => c: synced none
        beat a                 => a: REBALANCE_IN_PROGRESS
        join a topics=t owned=t:0 => log: a at 3 has t:0; a: joined gen 3
        """,  # noqa: E501
        **EAGER,
    )


def test_a_classic_member_of_a_mixed_group_is_checked():
    run(
        SETTLED
        + """
        sync a gen=1              => a: ILLEGAL_GENERATION
        sync a proto=sticky       => a: INCONSISTENT_GROUP_PROTOCOL
        sync a id=nobody          => a: UNKNOWN_MEMBER_ID
        beat a gen=1              => a: ILLEGAL_GENERATION
        beat b gen=2              => b: UNKNOWN_MEMBER_ID
        join c type=connect       => c: INCONSISTENT_GROUP_PROTOCOL
        join c proto=sticky       => c: INCONSISTENT_GROUP_PROTOCOL
        commit a gen=2 t-0=4      => log: t-0=4; a: ok
        commit a gen=2 t-0=4 v=5  => log: t-0=4; a: ok
        commit a gen=9 t-0=4      => a: ILLEGAL_GENERATION
        """,
        **EAGER,
    )


def test_a_classic_member_that_does_not_rejoin_in_time_is_fenced():
    run(
        CLASSIC.replace("v=3 ", "v=3 rebalance=7000 ")
        + """
        hb b topics=t
        beat a                   => a: REBALANCE_IN_PROGRESS
        pass 6999                => nothing
        beat a                   => a: REBALANCE_IN_PROGRESS
        pass 1                   => log: no assignment of a; log: no target of a; log: no member a; log: group epoch 3
        beat a                   => a: UNKNOWN_MEMBER_ID
        """,
        **EAGER,
    )


def test_a_classic_member_that_does_not_sync_in_time_is_fenced():
    run(
        CLASSIC
        + """
        hb b topics=t
        join a topics=t owned=t:0 rebalance=7000
        pass 7000                => log: no assignment of a; log: no target of a; log: no member a; log: group epoch 3
        """,
        **EAGER,
    )


def test_the_last_modern_member_that_leaves_gives_the_group_back_to_the_classic_protocol():
    script = run(SETTLED, **EAGER)
    outcome = script.do("hb b epoch=-1")
    assert "log: no group; log: Stable gen 2 a=" in outcome
    assert outcome.endswith("b: epoch -1")
    assert script.do("list") == "-: g consumer Stable classic"
    assert script.do("beat a") == "a: ok"
    assert script.do("pass 0") == "nothing"
    assert script.do("beat a") == "a: REBALANCE_IN_PROGRESS"
    assert script.do("join a topics=t owned=t:0") == "a: joined gen 3, leads a"
    script.do("sync a a=t:0,1")
    assert script.do("sync a") == "a: synced t:0,1"


def test_a_modern_member_that_expires_gives_the_group_back_too():
    script = run(SETTLED, **EAGER)
    for _ in range(4):
        script.do("pass 9000")
        assert script.do("beat a") == "a: ok"
    script.do("pass 9000")
    assert script.do("list") in ("-: g consumer Stable classic", "-: g consumer PreparingRebalance classic")


def test_a_downgraded_group_survives_a_restart():
    script = run(SETTLED, **EAGER)
    script.do("commit a gen=2 t-0=7")
    script.do("hb b epoch=-1")
    assert script.do("restart") == "nothing"
    assert script.do("list") == "-: g consumer Stable classic"
    assert script.do("beat a") == "a: ok"
    assert script.do("sync a") == "a: synced t:0"
    assert script.do("fetch t-0") == "-: t-0=7"


def test_a_static_member_upgrades_and_comes_back_to_the_classic_protocol():
    script = run(
        """
        topics t:2                       => nothing
        join a topics=t instance=i1      => nothing
        pass 3000                        => a: joined gen 1, leads i1
        sync a a=t:0,1
        forget a                         => nothing
        hb a topics=t                    => log: no group; log: member i1-1; log: group epoch 1; log: target of i1-1 t:0,1; log: target epoch 1; log: i1-1 at 1 has t:0,1; log: no assignment of i1-1; log: no target of i1-1; log: no member i1-1; log: member a; log: target of a t:0,1; log: a at 0 has t:0,1; log: member a; log: a at 1 has t:0,1; a: epoch 1 t:0,1
        forget a                         => nothing
        """,  # noqa: E501
        **EAGER,
    )
    outcome = script.do("join a topics=t owned=t:0,1")
    assert "log: no group; log: Stable gen 1 " in outcome
    assert outcome.endswith("a: joined gen 1")
    assert script.do("sync a") == "a: synced t:0,1"
    assert script.do("beat a") == "a: ok"
    assert script.do("list") == "-: g consumer Stable classic"


def test_an_empty_classic_group_is_simply_replaced():
    run(
        CLASSIC
        + """
        leave a         => log: Empty gen 2; a: left
        hb b topics=t   => log: no group; log: member b; log: group epoch 2; log: target of b t:0,1; log: target epoch 2; log: b at 2 has t:0,1; b: epoch 2 t:0,1
        """,  # noqa: E501
        **EAGER,
    )


def test_an_empty_consumer_group_is_simply_replaced_and_keeps_its_offsets():
    run(
        """
        topics t:1
        hb b topics=t
        commit b gen=2 t-0=9         => log: t-0=9; b: ok
        hb b epoch=-1
        join a topics=t v=3          => log: no target; log: no partition metadata; log: no group
        fetch t-0                    => -: t-0=9
        restart                      => a: NOT_COORDINATOR
        fetch t-0                    => -: t-0=9
        """,
        **EAGER,
    )


def test_a_replacement_that_cannot_be_stored_leaves_the_consumer_group():
    run(
        """
        topics t:1
        hb b topics=t
        hb b epoch=-1
        fail NOT_ENOUGH_REPLICAS
        join a topics=t v=3          => a: COORDINATOR_NOT_AVAILABLE
        list                         => -: g consumer Empty consumer
        """,
        **EAGER,
    )


def test_an_upgrade_that_cannot_be_stored_leaves_the_classic_group():
    run(
        CLASSIC
        + """
        fail NOT_ENOUGH_REPLICAS
        hb b topics=t                => b: COORDINATOR_NOT_AVAILABLE
        list                         => -: g consumer Stable classic
        beat a                       => a: ok
        """,
        **EAGER,
    )


def test_policies_can_forbid_each_way():
    run(CLASSIC + "hb b topics=t => b: GROUP_ID_NOT_FOUND", consumer_migration_policy="disabled", **EAGER)
    run(CLASSIC + "hb b topics=t => b: GROUP_ID_NOT_FOUND", consumer_migration_policy="DOWNGRADE", **EAGER)
    run(
        SETTLED
        + """
        hb b epoch=-1  => log: no assignment of b; log: no target of b; log: no member b; log: group epoch 3; b: epoch -1
        list           => -: g consumer Assigning consumer
        """,  # noqa: E501
        consumer_migration_policy="upgrade",
        **EAGER,
    )


def test_groups_that_cannot_be_read_are_not_upgraded():
    run("""
        join a type=connect v=3           => nothing
        pass 3000                         => a: joined gen 1, leads a
        sync a type=connect a=x           => log: Stable gen 1 a=x; a: synced x
        hb b topics=t                     => b: GROUP_ID_NOT_FOUND
    """)
    run("""
        join a v=3                        => nothing
        pass 3000                         => a: joined gen 1, leads a
        sync a a=x                        => log: Stable gen 1 a=x; a: synced x
        hb b topics=t                     => b: GROUP_ID_NOT_FOUND
    """)


def test_leave_group_works_in_a_mixed_group():
    run(
        SETTLED
        + """
        leave a         => log: no assignment of a; log: no target of a; log: no member a; log: group epoch 3; a: left
        leave a         => a: UNKNOWN_MEMBER_ID
        """,
        **EAGER,
    )


def test_a_member_is_not_fenced_for_a_step_that_was_expected_before_the_group_was_a_classic_one():
    run(
        CLASSIC.replace("v=3 ", "v=3 rebalance=7000 ")
        + """
        hb b topics=t
        beat a                          => a: REBALANCE_IN_PROGRESS
        # The last modern member goes, and a follows in the classic group that is left.
        hb b epoch=-1
        pass 10                         => nothing
        join a topics=t rebalance=7000  => a: joined gen 3, leads a
        sync a a=t:0,1
        beat a                          => a: ok
        pass 6900                       => nothing
        # It is to join once more, and has 7 seconds from when it hears of that.
        hb c topics=t
        pass 100                        => nothing
        beat a                          => a: REBALANCE_IN_PROGRESS
        pass 6999                       => nothing
        pass 1                          => log: no assignment of a; log: no target of a; log: no member a; log: group epoch 5
        """,  # noqa: E501
        **EAGER,
    )
