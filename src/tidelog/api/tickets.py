"""Tickets that stand between a coordinator and a request: they change or gather replies before the client gets one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from tidelog.wire.classes import Message

if TYPE_CHECKING:
    from tidelog.api.request import Request

NO_TOPIC_ID: Final = bytes(16)

M = TypeVar("M", bound=Message)


class AmendingTicket(Generic[M]):
    """Passes the coordinator's reply on after `amend` has changed it."""

    __slots__ = ("_amend", "_request")

    def __init__(self, request: Request, amend: Callable[[M], None]) -> None:
        self._request = request
        self._amend = amend

    def reply(self, message: M) -> None:
        self._amend(message)
        self._request.reply(message)


class GatheringTicket(Generic[M]):
    """Waits for the replies of `missing` coordinator partitions and answers with what `merge` makes of them."""

    __slots__ = ("_merge", "_parts", "_request", "missing")

    def __init__(self, request: Request, merge: Callable[[list[M]], M]) -> None:
        self._request = request
        self._merge = merge
        self._parts: list[M] = []
        #: set before the first decision is carried out
        self.missing = 0

    def reply(self, message: M) -> None:
        assert self.missing > 0, "a coordinator partition has answered twice"
        self._parts.append(message)
        self.missing -= 1
        if self.missing == 0:
            self._request.reply(self._merge(self._parts))


def adding_topics(topics: Sequence[Any]) -> Callable[[Any], None]:
    """An amendment: the topics that were answered here join those of the reply, unless it refuses the whole."""

    def amend(message: Any) -> None:
        if getattr(message, "error_code", 0):
            return
        by_topic = {_identity(topic): topic for topic in message.topics}
        for topic in topics:
            present = by_topic.get(_identity(topic))
            if present is None:
                message.topics.append(topic)
            else:
                present.partitions.extend(topic.partitions)

    return amend


def _identity(topic: Any) -> tuple[str, bytes]:
    """Two unknown topic ids have the same empty name."""
    return topic.name, getattr(topic, "topic_id", NO_TOPIC_ID)
