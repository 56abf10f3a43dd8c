"""Committed offsets as scripts (see group_script): commit, fetch, delete, expire, transactions."""

from __future__ import annotations

import pytest
from group_script import PAIR, WALL, Ticket, run, topic_id

from tidelog.group.groups import Groups
from tidelog.group.records import RecordType, decode_value, offset_key
from tidelog.group.requests import OffsetFetch
from tidelog.wire import messages
from tidelog.wire.java_hash import java_hash


def test_a_simple_consumer_commits_to_a_group_that_does_not_exist():
    run("""
        fetch t-0            => -: t-0=-1
        commit - t-0=5 t-1=7 => log: t-0=5; log: t-1=7; -: ok
        fetch t-0 t-1 t-2    => -: t-0=5 t-1=7 t-2=-1
        describe             => -: Empty
        list                 => -: g Empty classic
    """)


def test_the_metadata_string_comes_back():
    run("""
        commit - t-0=5:note  => log: t-0=5; -: ok
        fetch t-0            => -: t-0=5:note
    """)


def test_the_latest_commit_wins_even_if_it_goes_back():
    run("""
        commit - t-0=5       => log: t-0=5; -: ok
        commit - t-0=3       => log: t-0=3; -: ok
        fetch t-0            => -: t-0=3
    """)


def test_offsets_survive_a_restart():
    run("""
        commit - t-0=5:note u-3=9 => log: t-0=5; log: u-3=9; -: ok
        restart                   => nothing
        fetch all                 => -: t-0=5:note u-3=9
        list                      => -: g Empty classic
    """)


def test_every_version_of_fetch_answers():
    run("commit - t-0=5 => log: t-0=5; -: ok\n" + "".join(f"fetch t-0 v={v} => -: t-0=5\n" for v in range(1, 10)))
    run("commit - t-0=5 => log: t-0=5; -: ok\n" + "".join(f"fetch all v={v} => -: t-0=5\n" for v in range(2, 10)))


def test_a_fetch_by_topic_id_answers_with_the_id():
    script = run("""
        topics t:1          => nothing
        commit - t-0=5      => log: t-0=5; -: ok
        fetch t-0 v=10      => -: t-0=5
    """)
    assert script.last.groups[0].topics[0].topic_id == topic_id("t")


def test_an_offset_of_a_deleted_and_recreated_topic_is_not_given_out():
    script = run("""
        topics t:1          => nothing
        commit - t-0=5      => log: t-0=5; -: ok
    """)
    request = messages.OffsetFetchRequest()
    of = messages.OffsetFetchRequest
    request.groups = [
        of.OffsetFetchRequestGroup(
            group_id="g",
            topics=[of.OffsetFetchRequestTopics(name="t", topic_id=topic_id("other"), partition_indexes=[0])],
        )
    ]
    script.seen = []
    script.ask("offset_fetch", "-", request, 10)
    assert script.seen == ["-: t-0=-1"]


def test_metadata_that_is_too_long_is_refused_for_its_partition_only():
    run("""
        commit - t-0=5:x4096 t-1=6:x4097 => log: t-0=5; -: t-0 ok t-1 OFFSET_METADATA_TOO_LARGE
        fetch t-1                        => -: t-1=-1
    """)


def test_members_commit_in_their_generation():
    run(
        PAIR
        + """
        commit a t-0=5              => log: t-0=5; a: ok
        commit a gen=0 t-0=6        => a: ILLEGAL_GENERATION
        commit a gen=2 t-0=6        => a: ILLEGAL_GENERATION
        commit a id=nobody t-0=6    => a: UNKNOWN_MEMBER_ID
        commit - t-0=6              => -: UNKNOWN_MEMBER_ID
        fetch t-0                   => -: t-0=5
        """
    )


def test_commits_are_taken_while_members_join_but_not_before_they_sync():
    run(
        PAIR
        + """
        join a proto=range:new => nothing
        commit b t-0=5         => log: t-0=5; b: ok
        join b                 => a: joined gen 2, leads a b; b: joined gen 2 under a
        commit b t-0=6         => b: REBALANCE_IN_PROGRESS
        sync a a=1 b=2         => log: Stable gen 2 a=1 b=2; a: synced 1
        commit b t-0=6         => log: t-0=6; b: ok
        """
    )


def test_an_empty_group_takes_commits_without_a_generation():
    run(
        PAIR
        + """
        leave a b          => log: Empty gen 2; a: left left
        commit - t-0=5     => log: t-0=5; -: ok
        commit - gen=1 t-0=6 => -: UNKNOWN_MEMBER_ID
        """
    )


def test_a_generation_for_an_unknown_group_is_an_error_that_depends_on_the_version():
    run("""
        commit a gen=3 t-0=1 v=8 => a: ILLEGAL_GENERATION
        commit a gen=3 t-0=1 v=9 => a: GROUP_ID_NOT_FOUND
    """)


def test_a_failed_commit_changes_nothing():
    run("""
        commit - t-0=5             => log: t-0=5; -: ok
        fail NOT_ENOUGH_REPLICAS   => nothing
        commit - t-0=6             => -: COORDINATOR_NOT_AVAILABLE
        fetch t-0                  => -: t-0=5
    """)


def test_a_failed_first_commit_leaves_no_group_behind():
    run("""
        fail MESSAGE_TOO_LARGE     => nothing
        commit - t-0=6             => -: UNKNOWN_SERVER_ERROR
        list                       => -: none
    """)


def test_commit_records_are_those_of_kafka():
    script = run("""
        topics t:1                         => nothing
        commit - t-0=5:note                => log: t-0=5; -: ok
        commit - t-0=6 retention=1000 v=4  => log: t-0=6; -: ok
    """)
    (_, key, value, _), (_, _, old, _) = script.log
    assert key == b"\0\1" + b"\0\1g" + b"\0\1t" + b"\0\0\0\0" == offset_key("g", "t", 0)
    assert value is not None and old is not None
    assert value == (
        b"\0\4"
        + (5).to_bytes(8, "big")
        + b"\xff" * 4
        + b"\5note"
        + WALL.to_bytes(8, "big")
        + b"\1\0\x10"
        + topic_id("t")
    )
    assert old[:2] == b"\0\1"
    assert decode_value(RecordType.OFFSET_COMMIT, old).expire_timestamp == WALL + 1000


# -- deleting ----------------------------------------------------------------------------------------------------


def test_offsets_are_deleted_unless_the_group_reads_the_topic():
    run("""
        join a topics=t v=3       => nothing
        pass 3000                 => a: joined gen 1, leads a
        sync a a=x                => log: Stable gen 1 a=x; a: synced x
        commit a t-0=5 u-0=6      => log: t-0=5; log: u-0=6; a: ok
        undo t-0 u-0 u-1          => log: no u-0; -: t-0 GROUP_SUBSCRIBED_TO_TOPIC u-0 ok u-1 ok
        fetch t-0 u-0             => -: t-0=5 u-0=-1
        undo t-0 group=other      => -: GROUP_ID_NOT_FOUND
        undo t-0 group=""         => -: INVALID_GROUP_ID
    """)


def test_deleting_a_topic_deletes_its_offsets_in_all_groups():
    run("""
        topics t:2 u:1              => nothing
        commit - t-0=5 t-1=6 u-0=7  => log: t-0=5; log: t-1=6; log: u-0=7; -: ok
        txncommit - pid=9 t-0=50    => log: t-0=50; -: ok
        untopic t                   => log: no t-0; log: no t-1
        marker commit pid=9         => nothing
        fetch all                   => -: u-0=7
    """)


# -- expiry ------------------------------------------------------------------------------------------------------


def test_offsets_of_a_simple_consumer_expire_after_the_retention_and_its_group_goes():
    run(
        """
        commit - t-0=5         => log: t-0=5; -: ok
        pass 59999             => nothing
        expire                 => nothing
        pass 1                 => nothing
        expire                 => log: no t-0; log: no group
        list                   => -: none
        """,
        offsets_retention_minutes=1,
    )


def test_the_check_happens_by_itself_every_interval():
    run(
        """
        commit - t-0=5 retention=1000 v=4 => log: t-0=5; -: ok
        pass 60000                        => log: no t-0; log: no group
        """,
        offsets_retention_check_interval_ms=60_000,
    )


def test_offsets_of_a_group_expire_only_once_it_has_been_empty_for_the_retention():
    run(
        PAIR
        + """
        commit a t-0=5       => log: t-0=5; a: ok
        pass 9000            => nothing
        leave a b            => log: Empty gen 2; a: left left
        pass 59999           => nothing
        expire               => nothing
        pass 1               => nothing
        expire               => log: no t-0; log: no group
        list                 => -: none
        """,
        offsets_retention_minutes=1,
    )


def test_offsets_of_a_topic_that_a_stable_group_no_longer_reads_expire():
    script = run(
        """
        join a topics=t v=3       => nothing
        pass 3000                 => a: joined gen 1, leads a
        sync a a=x                => log: Stable gen 1 a=x; a: synced x
        commit a t-0=5 u-0=6      => log: t-0=5; log: u-0=6; a: ok
    """,
        offsets_retention_minutes=1,
    )
    for _ in range(8):
        assert script.do("pass 8000") == "nothing"
        assert script.do("beat a") == "a: ok"
    assert script.do("expire") == "log: no u-0"


def test_an_offset_with_a_pending_transaction_does_not_expire():
    run(
        """
        commit - t-0=5           => log: t-0=5; -: ok
        txncommit - pid=9 t-0=6  => log: t-0=6; -: ok
        pass 60000
        expire                   => nothing
        marker abort pid=9       => nothing
        expire                   => log: no t-0; log: no group
        """,
        offsets_retention_minutes=1,
    )


def test_a_group_with_members_is_not_removed_when_its_offsets_are():
    script = run(PAIR, offsets_retention_minutes=1)
    for _ in range(8):
        script.do("pass 8000")
        script.do("beat a")
        script.do("beat b")
    assert script.do("expire") == "nothing"
    assert script.do("list") == "-: g consumer Stable classic"


# -- transactions ------------------------------------------------------------------------------------------------


def test_transactional_offsets_become_visible_with_the_commit_marker():
    run("""
        commit - t-0=5            => log: t-0=5; -: ok
        txncommit - pid=9 t-0=6   => log: t-0=6; -: ok
        fetch t-0                 => -: t-0=5
        fetch t-0 t-1 stable=1    => -: t-0=UNSTABLE_OFFSET_COMMIT t-1=-1
        fetch all stable=1        => -: t-0=UNSTABLE_OFFSET_COMMIT
        marker commit pid=9       => nothing
        fetch t-0 stable=1        => -: t-0=6
    """)


def test_transactional_offsets_vanish_with_the_abort_marker():
    run("""
        txncommit - pid=9 t-0=6   => log: t-0=6; -: ok
        fetch t-0 stable=1        => -: t-0=UNSTABLE_OFFSET_COMMIT
        marker abort pid=9        => nothing
        fetch t-0 stable=1        => -: t-0=-1
    """)


def test_a_plain_commit_after_a_transactional_one_wins():
    run("""
        txncommit - pid=9 t-0=6   => log: t-0=6; -: ok
        commit - t-0=8            => log: t-0=8; -: ok
        marker commit pid=9       => nothing
        fetch t-0                 => -: t-0=8
    """)


def test_two_transactions_on_one_partition_are_unstable_until_both_end():
    run("""
        txncommit - pid=9 t-0=6   => log: t-0=6; -: ok
        txncommit - pid=8 t-0=7   => log: t-0=7; -: ok
        marker commit pid=8       => nothing
        fetch t-0 stable=1        => -: t-0=UNSTABLE_OFFSET_COMMIT
        marker commit pid=9       => nothing
        fetch t-0 stable=1        => -: t-0=7
    """)


def test_an_open_transaction_survives_a_restart():
    run("""
        txncommit - pid=9 t-0=6   => log: t-0=6; -: ok
        restart                   => nothing
        fetch t-0 stable=1        => -: t-0=UNSTABLE_OFFSET_COMMIT
        marker commit pid=9       => nothing
        restart                   => nothing
        fetch t-0 stable=1        => -: t-0=6
    """)


def test_transactional_commits_are_fenced_by_generation():
    run(
        PAIR
        + """
        txncommit a pid=9 gen=1 t-0=6   => log: t-0=6; a: ok
        txncommit a pid=9 gen=0 t-0=6   => a: ILLEGAL_GENERATION
        txncommit x pid=9 gen=1 t-0=6   => x: UNKNOWN_MEMBER_ID
        txncommit - pid=9 t-0=6         => log: t-0=6; -: ok
        """
    )
    run("txncommit a pid=9 gen=3 t-0=6 => a: ILLEGAL_GENERATION")


def test_the_records_of_a_transaction_carry_its_producer():
    script = run("txncommit - pid=9 t-0=6 => log: t-0=6; -: ok")
    assert script.log[0][3] == 9


def test_deleting_an_offset_deletes_the_pending_one_too():
    run("""
        txncommit - pid=9 t-0=6   => log: t-0=6; -: ok
        undo t-0                  => log: no t-0; -: ok
        marker commit pid=9       => nothing
        fetch t-0                 => -: t-0=-1
    """)


# -- administration ----------------------------------------------------------------------------------------------


def test_deleting_a_group_deletes_its_offsets():
    run(
        PAIR
        + """
        commit a t-0=5              => log: t-0=5; a: ok
        txncommit - pid=9 t-1=6     => log: t-1=6; -: ok
        delete                      => -: NON_EMPTY_GROUP
        leave a b                   => log: Empty gen 2; a: left left
        delete                      => log: no t-0; log: no t-1; log: no group; -: deleted
        delete                      => -: GROUP_ID_NOT_FOUND
        restart                     => nothing
        fetch all                   => -: none
        list                        => -: none
        """
    )


def test_many_groups_are_deleted_each_with_its_own_result():
    script = run("commit - t-0=5 => log: t-0=5; -: ok")
    outcome = script.do("delete g other")
    assert sorted(outcome.split("; ")) == ["-: GROUP_ID_NOT_FOUND", "-: deleted", "log: no group", "log: no t-0"]


def test_a_failed_delete_keeps_the_group():
    run("""
        commit - t-0=5           => log: t-0=5; -: ok
        fail NOT_ENOUGH_REPLICAS => nothing
        delete                   => -: COORDINATOR_NOT_AVAILABLE
        fetch t-0                => -: t-0=5
    """)


def test_listing_filters_by_state_and_type():
    run(
        PAIR
        + """
        commit - group=h t-0=5                => log: t-0=5; -: ok
        list                                  => -: g consumer Stable classic, h Empty classic
        list states=empty                     => -: h Empty classic
        list states=Stable,Dead               => -: g consumer Stable classic
        list types=Classic                    => -: g consumer Stable classic, h Empty classic
        list types=consumer                   => -: none
        list types=nonsense                   => -: none
        """
    )


def test_describing_an_unknown_group_is_dead_and_an_error_from_version_6():
    run("""
        describe nobody          => -: Dead GROUP_ID_NOT_FOUND
        describe nobody v=5      => -: Dead
        show nobody              => -: GROUP_ID_NOT_FOUND
    """)


@pytest.mark.parametrize(
    ("group_id", "java_hash_code"),
    [
        ("", 0),
        ("polygenelubricants", -(2**31)),
        ("test-group", 627841412),
        ("my-consumer-group", 1513705513),
        ("größe", 98762257),
        ("\U0001f600x", 54959989),
    ],
)
def test_a_group_lives_where_javas_hash_puts_it(group_id, java_hash_code):
    # Kafka takes the absolute value of the smallest int as 0.
    expected = 0 if java_hash_code == -(2**31) else abs(java_hash_code) % 50
    assert java_hash(group_id) == java_hash_code
    assert Groups().partition_for(group_id) == expected


def test_a_fetch_waits_for_the_commits_before_it_whether_or_not_offsets_must_be_stable():
    script = run("commit - t-0=5 => log: t-0=5; -: ok")
    everything = [messages.OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=None)]
    for require_stable in (True, False):
        decision = script.groups.offset_fetch(Ticket("-", 9), OffsetFetch(everything, require_stable), 0, 0)
        assert decision.partition == script.groups.partition_for("g")
