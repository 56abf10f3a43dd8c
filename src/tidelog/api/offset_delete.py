"""OffsetDelete, version 0: forgets committed offsets of topics that the group does not read at the moment.

Partitions that do not exist are answered here; the rest goes to the coordinator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.api.grouping import decide, take_out_unknown
from tidelog.api.tickets import add_topics
from tidelog.deciding.turn import Refusal
from tidelog.group.requests import OffsetDelete
from tidelog.wire import messages

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidelog.api.request import Request
    from tidelog.group.outcomes import OffsetsDeleted
    from tidelog.wire.errors import ErrorCode

    Answer = messages.OffsetDeleteResponse.OffsetDeleteResponseTopic


def handle(body: messages.OffsetDeleteRequest, request: Request) -> None:
    unknown = take_out_unknown(body, request, _answer)
    deletion = asked(body)

    def answer_all(outcome: OffsetsDeleted | Refusal, version: int) -> messages.OffsetDeleteResponse:
        response = answer(outcome, deletion)
        if unknown and not response.error_code:
            add_topics(response, unknown)
        return response

    decide(request, request.doors.groups.room.offset_delete, deletion, answer_all)


def asked(body: messages.OffsetDeleteRequest) -> OffsetDelete:
    return OffsetDelete(
        body.group_id, [(topic.name, [p.partition_index for p in topic.partitions]) for topic in body.topics]
    )


def answer(outcome: OffsetsDeleted | Refusal, deletion: OffsetDelete) -> messages.OffsetDeleteResponse:
    if isinstance(outcome, Refusal):
        return messages.OffsetDeleteResponse(error_code=outcome.code)
    codes = iter(outcome.codes)
    return messages.OffsetDeleteResponse(topics=[_answer(name, indexes, codes) for name, indexes in deletion.topics])


def _answer(topic: str, indexes: list[int], codes: Iterable[ErrorCode]) -> Answer:
    """`codes` holds one for each of the partitions, and goes on after them."""
    response = messages.OffsetDeleteResponse
    return response.OffsetDeleteResponseTopic(
        name=topic,
        partitions=[
            response.OffsetDeleteResponsePartition(partition_index=index, error_code=code)
            for index, code in zip(indexes, codes, strict=False)
        ],
    )
