"""What the door itself promises: many groups in one request, errors in the shape of each API, timers that are cheap."""

from __future__ import annotations

import pytest
from group_script import PAIR, Script, Ticket, run

from tidelog.deciding.decision import SetTimer
from tidelog.deciding.turn import RequestContext
from tidelog.group.config import GroupConfig
from tidelog.group.groups import Groups, random_uuid
from tidelog.wire import messages
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
    request = messages.HeartbeatRequest(group_id="g", generation_id=1, member_id=member.member_id)
    context = RequestContext("a", "/127.0.0.1", 4)
    assert script.groups.heartbeat(Ticket("a", 4), request, context, script.now + 5, script.wall).timers == []


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


PARTITION = messages.OffsetCommitResponse.OffsetCommitResponsePartition


@pytest.mark.parametrize(
    ("message", "version", "codes"),
    [
        (messages.JoinGroupResponse(member_id="m", generation_id=3), 9, lambda m: (m.error_code, m.member_id)),
        (messages.SyncGroupResponse(assignment=b"x"), 5, lambda m: (m.error_code, m.assignment)),
        (messages.HeartbeatResponse(), 4, lambda m: m.error_code),
        (messages.OffsetDeleteResponse(), 0, lambda m: m.error_code),
        (messages.ConsumerGroupHeartbeatResponse(member_epoch=4), 1, lambda m: (m.error_code, m.member_epoch)),
        (
            messages.OffsetCommitResponse(
                topics=[
                    messages.OffsetCommitResponse.OffsetCommitResponseTopic(
                        name="t", partitions=[PARTITION(partition_index=0), PARTITION(partition_index=1, error_code=12)]
                    )
                ]
            ),
            9,
            lambda m: [p.error_code for t in m.topics for p in t.partitions],
        ),
        (
            messages.DeleteGroupsResponse(
                results=[messages.DeleteGroupsResponse.DeletableGroupResult(group_id=g) for g in "ab"]
            ),
            2,
            lambda m: [r.error_code for r in m.results],
        ),
        (
            messages.OffsetFetchResponse(groups=[messages.OffsetFetchResponse.OffsetFetchResponseGroup(group_id="g")]),
            9,
            lambda m: m.groups[0].error_code,
        ),
    ],
)
def test_an_answer_that_cannot_be_given_turns_into_an_error_of_its_api(message, version, codes):
    told = codes(Groups.failed(message, ErrorCode.REQUEST_TIMED_OUT))
    not_available, not_coordinator = int(ErrorCode.COORDINATOR_NOT_AVAILABLE), int(ErrorCode.NOT_COORDINATOR)
    expected = {
        "JoinGroupResponse": (not_available, "m"),
        "SyncGroupResponse": (not_available, b""),
        "ConsumerGroupHeartbeatResponse": (not_available, 0),
        "OffsetCommitResponse": [not_available, 12],
        "DeleteGroupsResponse": [not_available, not_available],
        "OffsetFetchResponse": not_coordinator,
    }
    assert told == expected.get(type(message).__name__, not_available)


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
