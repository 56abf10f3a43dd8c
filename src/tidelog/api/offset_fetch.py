"""OffsetFetch, versions 1-10: where groups stand; several groups from version 8, topic ids from version 10.

A topic id that nobody knows is answered with UNKNOWN_TOPIC_ID; a partition without a committed offset with -1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tidelog.api.grouping import context_of
from tidelog.api.tickets import AmendingTicket
from tidelog.wire import messages
from tidelog.wire.errors import ErrorCode

if TYPE_CHECKING:
    from tidelog.api.request import Request

    Answer = messages.OffsetFetchResponse.OffsetFetchResponseTopics

FIRST_VERSION_WITH_TOPIC_IDS: Final = 10


def handle(body: messages.OffsetFetchRequest, request: Request) -> None:
    groups = request.doors.groups
    unknown = _take_out_unknown(body, request) if request.version >= FIRST_VERSION_WITH_TOPIC_IDS else {}
    ticket = request if not unknown else AmendingTicket(request, _adding(unknown))
    groups.decide(groups.room.offset_fetch, ticket, body, context_of(request))


def _adding(unknown: dict[str, list[Answer]]) -> Callable[[messages.OffsetFetchResponse], None]:
    """An amendment: each group gets the topics that were answered here."""

    def amend(message: messages.OffsetFetchResponse) -> None:
        for group in message.groups:
            if not group.error_code:
                group.topics.extend(unknown.get(group.group_id, ()))

    return amend


def _take_out_unknown(body: messages.OffsetFetchRequest, request: Request) -> dict[str, list[Answer]]:
    """Names the topics that are asked for by id; group -> answers for those that have none."""
    names = request.doors.cluster.image.topic_names
    response = messages.OffsetFetchResponse
    unknown: dict[str, list[Answer]] = {}
    for group in body.groups:
        for topic in group.topics or ():
            topic.name = names.get(topic.topic_id, "")
            if not topic.name:
                unknown.setdefault(group.group_id, []).append(
                    response.OffsetFetchResponseTopics(
                        topic_id=topic.topic_id,
                        partitions=[
                            response.OffsetFetchResponsePartitions(
                                partition_index=index,
                                committed_offset=-1,
                                committed_leader_epoch=-1,
                                metadata="",
                                error_code=ErrorCode.UNKNOWN_TOPIC_ID,
                            )
                            for index in topic.partition_indexes
                        ],
                    )
                )
        if group.topics is not None:
            group.topics = [topic for topic in group.topics if topic.name]
    return unknown
