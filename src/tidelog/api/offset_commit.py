"""OffsetCommit, versions 2-10: a group's positions; acknowledged when they are written.

Version 9 is the first that members of both protocols speak, and version 10 the first with topic ids. Partitions that do
not exist are answered here; the rest goes to the coordinator.
"""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING, Final

from tidelog.api.grouping import decide
from tidelog.api.tickets import add_topics
from tidelog.deciding.turn import Refusal
from tidelog.group.requests import OffsetCommit, membership, offset_commit
from tidelog.wire import messages
from tidelog.wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog.api.request import Request
    from tidelog.group.outcomes import OffsetsCommitted

    Answer = messages.OffsetCommitResponse.OffsetCommitResponseTopic

FIRST_VERSION_WITH_MEMBER_EPOCHS: Final = 9
FIRST_VERSION_WITH_TOPIC_IDS: Final = 10


def handle(body: messages.OffsetCommitRequest, request: Request) -> None:
    unknown = _take_out_unknown(body, request)

    def answer_all(outcome: OffsetsCommitted | Refusal, version: int) -> messages.OffsetCommitResponse:
        response = answer(outcome, body)
        if unknown:
            add_topics(response, unknown)
        return response

    decide(request, request.doors.groups.room.offset_commit, asked(body, request.version), answer_all)


def asked(body: messages.OffsetCommitRequest, version: int) -> OffsetCommit:
    member = membership((body.group_id, body.member_id, body.group_instance_id, body.generation_id_or_member_epoch))
    topics = [(topic.name, topic.topic_id, topic.partitions) for topic in body.topics]
    return offset_commit((member, topics, body.retention_time_ms, version >= FIRST_VERSION_WITH_MEMBER_EPOCHS))


def answer(outcome: OffsetsCommitted | Refusal, body: messages.OffsetCommitRequest) -> messages.OffsetCommitResponse:
    codes = repeat(outcome.code) if isinstance(outcome, Refusal) else iter(outcome.codes)
    return messages.OffsetCommitResponse.of(topics=[_answer(topic, topic.partitions, codes) for topic in body.topics])


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
            unknown.append(_answer(topic, topic.partitions, repeat(code)))
            continue
        topic.topic_id = known.topic_id
        count = len(known.partitions)
        missing = [p for p in topic.partitions if not 0 <= p.partition_index < count]
        if missing:
            unknown.append(_answer(topic, missing, repeat(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)))
            topic.partitions = [p for p in topic.partitions if 0 <= p.partition_index < count]
        if topic.partitions:
            kept.append(topic)
    body.topics = kept
    return unknown


def _answer(
    topic: messages.OffsetCommitRequest.OffsetCommitRequestTopic,
    partitions: list[messages.OffsetCommitRequest.OffsetCommitRequestPartition],
    codes: Iterator[ErrorCode],
) -> Answer:
    """`codes` holds one for each of the partitions, and goes on after them."""
    response = messages.OffsetCommitResponse
    return response.OffsetCommitResponseTopic.of(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            response.OffsetCommitResponsePartition.of(partition_index=p.partition_index, error_code=next(codes))
            for p in partitions
        ],
    )
