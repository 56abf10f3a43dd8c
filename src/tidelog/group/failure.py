"""An answer that tells of success, turned into the one that tells of an error.

Needed where the decision was good but its records could not be stored: which fields carry the error depends on the
API, and the message that was about to leave already names every group, topic and partition that the error must name.
"""

from __future__ import annotations

from tidelog.wire import messages
from tidelog.wire.classes import Message
from tidelog.wire.errors import ErrorCode

_E = ErrorCode


def failed(message: Message, code: ErrorCode) -> Message:
    """The error in the shape of `message`; a message that tells of an error already is left alone."""
    if isinstance(message, messages.OffsetCommitResponse | messages.TxnOffsetCommitResponse):
        for topic in message.topics:
            for partition in topic.partitions:
                partition.error_code = partition.error_code or int(code)
        return message
    if isinstance(message, messages.DeleteGroupsResponse):
        for result in message.results:
            result.error_code = result.error_code or int(code)
        return message
    if isinstance(message, messages.OffsetFetchResponse):
        return _offset_fetch(message, code)
    if isinstance(message, messages.JoinGroupResponse):
        if message.error_code:
            return message
        return messages.JoinGroupResponse(error_code=int(code), member_id=message.member_id)
    if isinstance(
        message,
        messages.SyncGroupResponse
        | messages.HeartbeatResponse
        | messages.LeaveGroupResponse
        | messages.ConsumerGroupHeartbeatResponse
        | messages.OffsetDeleteResponse,
    ):
        return message if message.error_code else type(message)(error_code=int(code))
    raise TypeError(f"{type(message).__name__} answers no request that is stored")


def _offset_fetch(message: messages.OffsetFetchResponse, code: ErrorCode) -> messages.OffsetFetchResponse:
    # Consumers before 3.9 do not retry on COORDINATOR_NOT_AVAILABLE here.
    code = _E.NOT_COORDINATOR if code is _E.COORDINATOR_NOT_AVAILABLE else code
    of_group = messages.OffsetFetchResponse.OffsetFetchResponseGroup
    groups = [of_group(group_id=g.group_id, error_code=g.error_code or int(code)) for g in message.groups]
    failure = messages.OffsetFetchResponse(groups=groups, topics=message.topics)
    if not groups:
        failure.error_code = int(code)
        for topic in failure.topics:
            for partition in topic.partitions:
                partition.committed_offset, partition.committed_leader_epoch, partition.metadata = -1, -1, ""
                partition.error_code = int(code)
    return failure
