"""What the door itself promises: many groups in one request, errors in the shape of each API, timers that are cheap."""

from __future__ import annotations

import pytest
from group_script import PAIR, Script, Ticket, run

from tidelog.api import (
    consumer_group_heartbeat,
    delete_groups,
    heartbeat,
    join_group,
    leave_group,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
)
from tidelog.deciding.decision import SetTimer
from tidelog.group.config import GroupConfig
from tidelog.group.groups import Groups, random_uuid
from tidelog.group.offset_store import CommittedOffset
from tidelog.group.outcomes import (
    FetchedTopic,
    GroupOffsets,
    GroupsDeleted,
    Joined,
    MembersLeft,
    MemberStanding,
    OffsetsCommitted,
    OffsetsDeleted,
    OffsetsFetched,
    Synced,
)
from tidelog.group.requests import (
    Leaving,
    MemberIdentity,
    Membership,
    OffsetDelete,
    OffsetFetch,
)
from tidelog.wire import messages
from tidelog.wire.codec import response_codec
from tidelog.wire.errors import ErrorCode


def test_many_groups_are_fetched_at_once_each_with_its_own_error():
    script = run("""
        commit - t-0=5           => log: t-0=5; -: ok
        commit - group=h t-0=6   => log: t-0=6; -: ok
    """)
    script.groups.unload(script.groups.partition_for("h"))
    of = messages.OffsetFetchRequest
    request = of(groups=[of.OffsetFetchRequestGroup(group_id=g, topics=None) for g in ("g", "h", "nobody")])
    script.ask("offset_fetch", "-", request, 9)
    found = {
        g.group_id: (g.error_code, [p.committed_offset for t in g.topics for p in t.partitions])
        for g in script.last.groups
    }
    assert found == {"g": (0, [5]), "h": (int(ErrorCode.NOT_COORDINATOR), []), "nobody": (0, [])}


def test_heartbeats_and_commits_of_a_known_member_set_no_timer():
    script = run(PAIR)
    member = script.client("a")
    claimed = Membership("g", member.member_id, None, 1)
    assert script.groups.heartbeat(Ticket("a", 4), claimed, script.now + 5, script.wall).timers == []


def test_a_deadline_that_moves_to_an_earlier_time_replaces_its_timer():
    script = Script()
    script.do("join a v=3 session=10000")
    assert script.timers[script.groups.partition_for("g"), "session", "g", "a-1"] == 300_000
    script.do("pass 3000")
    assert script.timers[script.groups.partition_for("g"), "session", "g", "a-1"] == 13_000


def test_random_uuids_are_uuids():
    import uuid

    assert uuid.UUID(random_uuid()).version == 4
    assert random_uuid() != random_uuid()


def test_settings_come_under_kafkas_names():
    config = GroupConfig.from_properties(
        {
            "group.max.size": 7,
            "group.consumer.assignors": ["range"],
            "log.dirs": "/tmp",
            "group.min.session.timeout.ms": None,
        }
    )
    assert config == GroupConfig(group_max_size=7, consumer_assignors=("range",))


def test_new_settings_take_effect():
    script = run(PAIR)
    script.groups.configure(GroupConfig(group_max_size=2))
    assert script.do("join c") == "c: GROUP_MAX_SIZE_REACHED"


def wanted_offsets(partitions):
    of = messages.OffsetFetchRequest
    topic = of.OffsetFetchRequestTopics(name="t", partition_indexes=partitions)
    return of.OffsetFetchRequestGroup(group_id="g", topics=[topic])


NOT_AVAILABLE, NOT_COORDINATOR = ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR
COMMIT = messages.OffsetCommitRequest(
    topics=[
        messages.OffsetCommitRequest.OffsetCommitRequestTopic(
            name="t",
            partitions=[
                messages.OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=index) for index in range(2)
            ],
        )
    ]
)


@pytest.mark.parametrize(
    ("outcome", "answer", "told", "expected"),
    [
        (
            Joined("m", 3, "consumer", "range"),
            lambda o: join_group.answer(o, 9),
            lambda m: (m.error_code, m.member_id),
            (NOT_AVAILABLE, "m"),
        ),
        (
            Synced("consumer", "range", b"x"),
            lambda o: sync_group.answer(o, 5),
            lambda m: (m.error_code, m.assignment),
            (NOT_AVAILABLE, b""),
        ),
        (ErrorCode.NONE, lambda o: heartbeat.answer(o, 4), lambda m: m.error_code, NOT_AVAILABLE),
        (
            MembersLeft([ErrorCode.NONE]),
            lambda o: leave_group.answer(o, Leaving("g", [MemberIdentity("m")]), 5),
            lambda m: (m.error_code, m.members),
            (NOT_AVAILABLE, []),
        ),
        (
            OffsetsDeleted([]),
            lambda o: offset_delete.answer(o, OffsetDelete("g", [])),
            lambda m: m.error_code,
            NOT_AVAILABLE,
        ),
        (
            MemberStanding("m", 4),
            lambda o: consumer_group_heartbeat.answer(o, 1),
            lambda m: (m.error_code, m.member_epoch),
            (NOT_AVAILABLE, 0),
        ),
        (
            OffsetsCommitted([ErrorCode.NONE, ErrorCode.OFFSET_METADATA_TOO_LARGE]),
            lambda o: offset_commit.answer(o, COMMIT),
            lambda m: [p.error_code for t in m.topics for p in t.partitions],
            [NOT_AVAILABLE, ErrorCode.OFFSET_METADATA_TOO_LARGE],
        ),
        (
            GroupsDeleted([("a", ErrorCode.NONE), ("b", ErrorCode.NON_EMPTY_GROUP)]),
            lambda o: delete_groups.answer([o]),
            lambda m: [(r.group_id, r.error_code) for r in m.results],
            [("a", NOT_AVAILABLE), ("b", ErrorCode.NON_EMPTY_GROUP)],
        ),
        (
            OffsetsFetched([GroupOffsets("g", [])]),
            lambda o: offset_fetch.answer(o, OffsetFetch([wanted_offsets([])]), 9),
            lambda m: m.groups[0].error_code,
            NOT_COORDINATOR,
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, tuple | ErrorCode) else "",
)
def test_an_answer_that_cannot_be_given_turns_into_an_error_of_its_api(outcome, answer, told, expected):
    assert told(answer(Groups.failed(outcome, ErrorCode.REQUEST_TIMED_OUT))) == expected


@pytest.mark.parametrize("version", range(1, 11))
def test_offsets_that_cannot_be_told_are_an_error_where_each_version_has_its_place(version):
    committed = CommittedOffset(5, 0, "note", 0, -1, bytes(16), 0)
    fetched = OffsetsFetched([GroupOffsets("g", [FetchedTopic("t", bytes(16), [(0, committed)])])])
    wanted = OffsetFetch([wanted_offsets([0])])
    message = offset_fetch.answer(Groups.failed(fetched, ErrorCode.REQUEST_TIMED_OUT), wanted, version)
    message, _ = response_codec(9, version).decode(response_codec(9, version).encode(message), 0)
    if version >= 8:
        assert [(g.group_id, g.error_code, g.topics) for g in message.groups] == [("g", NOT_COORDINATOR, [])]
    else:
        assert message.error_code == (NOT_COORDINATOR if version >= 2 else 0)
        (partition,) = message.topics[0].partitions
        assert (partition.error_code, partition.committed_offset) == (NOT_COORDINATOR, -1)
        assert partition.metadata == ""


@pytest.mark.parametrize("version", range(1, 11))
def test_a_group_whose_offsets_are_refused_is_told_so_in_every_version(version):
    refused = OffsetsFetched([GroupOffsets("g", [], ErrorCode.NOT_COORDINATOR)])
    wanted = OffsetFetch([wanted_offsets([0, 1])])
    message = offset_fetch.answer(refused, wanted, version)
    message, _ = response_codec(9, version).decode(response_codec(9, version).encode(message), 0)
    if version >= 8:
        assert [(g.error_code, g.topics) for g in message.groups] == [(NOT_COORDINATOR, [])]
    elif version >= 2:
        assert (message.error_code, message.topics) == (NOT_COORDINATOR, [])
    else:
        # Only partitions have a place for it.
        assert [(p.partition_index, p.error_code) for p in message.topics[0].partitions] == [
            (0, NOT_COORDINATOR),
            (1, NOT_COORDINATOR),
        ]


def test_a_refusal_that_waits_to_be_told_keeps_nothing_of_where_it_was_raised():
    decision = Script().groups.offset_delete(Ticket("-", 0), OffsetDelete("g", []), 0, 0)
    (reply,) = decision.replies
    assert reply.message.code is ErrorCode.GROUP_ID_NOT_FOUND
    assert reply.message.__traceback__ is None


def test_a_very_long_client_id_does_not_break_the_record_of_its_member():
    script = Script()
    name = "x" * 32_767
    of = messages.JoinGroupRequest
    request = of(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=[of.JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    script.ask("join", name, request, 3)
    script.advance(3000)
    member_id = script.last.member_id
    sync = messages.SyncGroupRequest(group_id="g", generation_id=1, member_id=member_id)
    script.ask("sync", name, sync, 3)
    assert not script.last.error_code


def test_timers_that_are_due_after_a_partition_has_gone_do_nothing():
    script = run(PAIR)
    timers = dict(script.timers)
    script.groups.unload(script.groups.partition_for("g"))
    for key in timers:
        decision = script.groups.on_timer(key, 10**9, script.wall)
        assert not decision.records and not decision.replies
        assert not [t for t in decision.timers if isinstance(t, SetTimer) and t.key[2] == "g"]
