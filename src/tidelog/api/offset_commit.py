"""OffsetCommit, versions 2-10: a group's positions; acknowledged when they are written. Topic ids from version 10.

Partitions that do not exist are answered here; the rest goes to the coordinator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.api.grouping import context_of
from tidelog.api.tickets import AmendingTicket, adding_topics
from tidelog.wire import messages
from tidelog.wire.errors import ErrorCode

if TYPE_CHECKING:
    from tidelog.api.request import Request

    Answer = messages.OffsetCommitResponse.OffsetCommitResponseTopic

FIRST_VERSION_WITH_TOPIC_IDS: Final = 10


def handle(body: messages.OffsetCommitRequest, request: Request) -> None:
    groups = request.doors.groups
    unknown = _take_out_unknown(body, request)
    ticket = request if not unknown else AmendingTicket(request, adding_topics(unknown))
    groups.decide(groups.room.offset_commit, ticket, body, context_of(request))


def _take_out_unknown(body: messages.OffsetCommitRequest, request: Request) -> list[Answer]:
    """Leaves in `body` only partitions that exist, by name and id; gives the answers for the others."""
    image = request.doors.cluster.image
    by_id = request.version >= FIRST_VERSION_WITH_TOPIC_IDS
    unknown: list[Answer] = []
    kept = []
    for topic in body.topics:
        if by_id:
            topic.name = image.topic_names.get(topic.topic_id, "")
        known = image.topics.get(topic.name)
        if known is None:
            code = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            unknown.append(_answer(topic, topic.partitions, code))
            continue
        topic.topic_id = known.topic_id
        count = len(known.partitions)
        missing = [p for p in topic.partitions if not 0 <= p.partition_index < count]
        if missing:
            unknown.append(_answer(topic, missing, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            topic.partitions = [p for p in topic.partitions if 0 <= p.partition_index < count]
        if topic.partitions:
            kept.append(topic)
    body.topics = kept
    return unknown


def _answer(
    topic: messages.OffsetCommitRequest.OffsetCommitRequestTopic,
    partitions: list[messages.OffsetCommitRequest.OffsetCommitRequestPartition],
    code: int,
) -> Answer:
    response = messages.OffsetCommitResponse
    return response.OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            response.OffsetCommitResponsePartition(partition_index=p.partition_index, error_code=code)
            for p in partitions
        ],
    )
