"""OffsetDelete, version 0: forgets committed offsets of topics that the group does not read at the moment.

Partitions that do not exist are answered here; the rest goes to the coordinator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.api.grouping import decide
from tidelog.wire import messages
from tidelog.wire.errors import ErrorCode

if TYPE_CHECKING:
    from tidelog.api.request import Request


def handle(body: Any, request: Request) -> Any:
    unknown = _take_out_unknown(body, request)
    decide("offset_delete", body, request, Completing(request, unknown) if unknown else None)


class Completing:
    """A ticket that adds what was answered here to what the coordinator answers, unless that refuses the whole."""

    __slots__ = ("_request", "_topics")

    def __init__(self, request: Request, topics: list[Any]) -> None:
        self._request = request
        self._topics = topics

    def reply(self, message: Any) -> None:
        if not message.error_code:
            by_name = {topic.name: topic for topic in message.topics}
            for topic in self._topics:
                if topic.name in by_name:
                    by_name[topic.name].partitions.extend(topic.partitions)
                else:
                    message.topics.append(topic)
        self._request.reply(message)


def _take_out_unknown(body: Any, request: Request) -> list[Any]:
    """Leaves in `body` only partitions that exist; gives the answers for the others."""
    image = request.broker.image
    response = messages.OffsetDeleteResponse
    code = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    unknown = []
    for topic in body.topics:
        missing = [p for p in topic.partitions if image.partition(topic.name, p.partition_index) is None]
        if missing:
            answers = [
                response.OffsetDeleteResponsePartition(partition_index=p.partition_index, error_code=code)
                for p in missing
            ]
            unknown.append(response.OffsetDeleteResponseTopic(name=topic.name, partitions=answers))
            topic.partitions = [p for p in topic.partitions if p not in missing]
    body.topics = [topic for topic in body.topics if topic.partitions]
    return unknown
