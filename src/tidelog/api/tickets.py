"""Tickets that stand between a coordinator and a request: they turn what it has decided into the client's answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tidelog.wire.ids import ZERO_UUID

if TYPE_CHECKING:
    from tidelog.api.request import Request
    from tidelog.wire.classes import Message

Outcome = TypeVar("Outcome")


class AnsweringTicket(Generic[Outcome]):
    """Answers with what `answer` makes of the coordinator's outcome, for the version of the request."""

    __slots__ = ("_answer", "_request")

    def __init__(self, request: Request, answer: Callable[[Outcome, int], Message]) -> None:
        self._request = request
        self._answer = answer

    def reply(self, outcome: Outcome) -> None:
        request = self._request
        request.reply(self._answer(outcome, request.version))


class GatheringTicket(Generic[Outcome]):
    """Waits for the replies of `missing` coordinator partitions and answers with what `merge` makes of them."""

    __slots__ = ("_merge", "_parts", "_request", "missing")

    def __init__(self, request: Request, merge: Callable[[list[Outcome]], Message]) -> None:
        self._request = request
        self._merge = merge
        self._parts: list[Outcome] = []
        #: set before the first decision is carried out
        self.missing = 0

    def reply(self, outcome: Outcome) -> None:
        assert self.missing > 0, "a coordinator partition has answered twice"
        self._parts.append(outcome)
        self.missing -= 1
        if self.missing == 0:
            self._request.reply(self._merge(self._parts))


def add_topics(message: Any, topics: Sequence[Any]) -> None:
    """The topics that were answered elsewhere join those of the reply."""
    by_topic = {_identity(topic): topic for topic in message.topics}
    for topic in topics:
        present = by_topic.get(_identity(topic))
        if present is None:
            message.topics.append(topic)
        else:
            present.partitions.extend(topic.partitions)


def _identity(topic: Any) -> tuple[str, bytes]:
    """Two unknown topic ids have the same empty name."""
    return topic.name, getattr(topic, "topic_id", ZERO_UUID)
