"""ConsumerGroupDescribe, versions 0-1: server-side groups with their members, current and target assignments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.api.grouping import reply_when_settled, require_consumer_protocol, tell_operations
from tidelog.deciding.turn import Refusal
from tidelog.wire import messages

if TYPE_CHECKING:
    from tidelog.api.request import Request
    from tidelog.group.groups import Groups
    from tidelog.group.outcomes import ConsumerMemberDescription, DescribedPartitions

#: the type of a member: which protocol it speaks
CLASSIC: Final = 0
CONSUMER: Final = 1


def handle(body: messages.ConsumerGroupDescribeRequest, request: Request) -> None:
    require_consumer_protocol(request)
    response = described(body, request.doors.groups.room)
    if body.include_authorized_operations:
        tell_operations(response.groups)
    of_group = messages.ConsumerGroupDescribeResponse.DescribedGroup
    reply_when_settled(request, response, lambda group_id, code: of_group(group_id=group_id, error_code=code))


def described(body: messages.ConsumerGroupDescribeRequest, groups: Groups) -> messages.ConsumerGroupDescribeResponse:
    return messages.ConsumerGroupDescribeResponse(groups=[_described(group_id, groups) for group_id in body.group_ids])


def _described(group_id: str, groups: Groups) -> messages.ConsumerGroupDescribeResponse.DescribedGroup:
    of_group = messages.ConsumerGroupDescribeResponse.DescribedGroup
    try:
        group = groups.describe_consumer(group_id)
    except Refusal as refusal:
        return of_group(group_id=group_id, error_code=refusal.code, error_message=refusal.detail)
    return of_group(
        group_id=group_id,
        group_state=group.state,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.assignor,
        members=[_member(member) for member in group.members],
    )


def _member(member: ConsumerMemberDescription) -> messages.ConsumerGroupDescribeResponse.Member:
    return messages.ConsumerGroupDescribeResponse.Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=member.subscribed_topic_names,
        subscribed_topic_regex=member.subscribed_topic_regex,
        assignment=_assignment(member.assignment),
        target_assignment=_assignment(member.target_assignment),
        member_type=CLASSIC if member.uses_classic_protocol else CONSUMER,
    )


def _assignment(topics: list[DescribedPartitions]) -> messages.ConsumerGroupDescribeResponse.Assignment:
    response = messages.ConsumerGroupDescribeResponse
    return response.Assignment(
        topic_partitions=[
            response.TopicPartitions(topic_id=topic_id, topic_name=name, partitions=partitions)
            for topic_id, name, partitions in topics
        ]
    )
