"""ConsumerGroupHeartbeat, versions 0-1: the one call of a member of a server-side group (KIP-848).

From version 1 on members choose their ids; before, the coordinator names whoever joins without one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.api.grouping import client_host, decide, require_consumer_protocol
from tidelog.deciding.turn import Refusal
from tidelog.group.requests import ConsumerHeartbeat
from tidelog.wire import messages

if TYPE_CHECKING:
    from tidelog.api.request import Request
    from tidelog.group.outcomes import MemberStanding

FIRST_VERSION_WITH_CHOSEN_ID: Final = 1


def handle(body: messages.ConsumerGroupHeartbeatRequest, request: Request) -> None:
    require_consumer_protocol(request)
    heartbeat = asked(body, request.version, request.client_id, client_host(request))
    decide(request, request.doors.groups.room.consumer_group_heartbeat, heartbeat, answer)


def asked(body: messages.ConsumerGroupHeartbeatRequest, version: int, client_id: str, host: str) -> ConsumerHeartbeat:
    owned = body.topic_partitions
    return ConsumerHeartbeat(
        body.group_id,
        body.member_id,
        body.member_epoch,
        body.instance_id,
        body.rack_id,
        body.rebalance_timeout_ms,
        body.subscribed_topic_names,
        body.subscribed_topic_regex,
        body.server_assignor,
        None if owned is None else {topic.topic_id: set(topic.partitions) for topic in owned},
        client_id,
        host,
        version >= FIRST_VERSION_WITH_CHOSEN_ID,
    )


def answer(outcome: MemberStanding | Refusal, version: int) -> messages.ConsumerGroupHeartbeatResponse:
    response = messages.ConsumerGroupHeartbeatResponse
    if isinstance(outcome, Refusal):
        return response(error_code=outcome.code, error_message=outcome.detail)
    standing = response(
        member_id=outcome.member_id,
        member_epoch=outcome.member_epoch,
        heartbeat_interval_ms=outcome.heartbeat_interval_ms,
    )
    if outcome.assigned is not None:
        standing.assignment = response.Assignment(
            topic_partitions=[
                response.TopicPartitions(topic_id=topic_id, partitions=list(partitions))
                for topic_id, partitions in outcome.assigned.items()
            ]
        )
    return standing
