"""OffsetDelete, version 0: forgets committed offsets of topics that the group does not read at the moment.

Partitions that do not exist are answered here; the rest goes to the coordinator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.api.grouping import decide, take_out_unknown
from tidelog.api.tickets import AmendingTicket, adding_topics
from tidelog.wire import messages

if TYPE_CHECKING:
    from tidelog.api.request import Request


def handle(body: messages.OffsetDeleteRequest, request: Request) -> None:
    unknown = take_out_unknown(body, request, _answer)
    decide(
        request.doors.groups.room.offset_delete,
        body,
        request,
        AmendingTicket(request, adding_topics(unknown)) if unknown else None,
    )


def _answer(topic: str, indexes: list[int], code: int) -> messages.OffsetDeleteResponse.OffsetDeleteResponseTopic:
    response = messages.OffsetDeleteResponse
    return response.OffsetDeleteResponseTopic(
        name=topic,
        partitions=[
            response.OffsetDeleteResponsePartition(partition_index=index, error_code=code) for index in indexes
        ],
    )
