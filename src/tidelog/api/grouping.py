"""What the handlers of group APIs share: who asks, and how a request reaches the coordinator.

A request about groups is a decision of the group room. Where the offsets topic does not exist yet it is created first,
as soon as somebody looks for a coordinator; before that every group is one that nobody has heard of.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from tidelog.api.operations import GROUP_OPERATIONS
from tidelog.group.turn import RequestContext
from tidelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from tidelog.api.request import Request

NO_TOPIC_ID: Final = bytes(16)


def context_of(request: Request) -> RequestContext:
    return RequestContext(request.client_id, "/" + request.exchange.connection.peer[0], request.version)


class Completing:
    """A ticket that adds what was answered here to what the coordinator answers, unless that refuses the whole."""

    __slots__ = ("_request", "_topics")

    def __init__(self, request: Request, topics: list[Any]) -> None:
        self._request = request
        self._topics = topics

    def reply(self, message: Any) -> None:
        if not getattr(message, "error_code", 0):
            by_topic = {_identity(topic): topic for topic in message.topics}
            for topic in self._topics:
                present = by_topic.get(_identity(topic))
                if present is None:
                    message.topics.append(topic)
                else:
                    present.partitions.extend(topic.partitions)
        self._request.reply(message)


def _identity(topic: Any) -> tuple[str, bytes]:
    """Two unknown topic ids have the same empty name."""
    return topic.name, getattr(topic, "topic_id", NO_TOPIC_ID)


#: a topic of the request, those of its partitions that are answered, and the error code for them -> their answer
TopicAnswer = Callable[[Any, list[Any], int], Any]


def take_out_unknown(body: Any, request: Request, answer: TopicAnswer) -> list[Any]:
    """Leaves in `body` only partitions that exist, by their names; gives the answers for the others."""
    image = request.doors.cluster.image
    unknown, kept = [], []
    for topic in body.topics:
        missing: list[Any] = []
        present: list[Any] = []
        for partition in topic.partitions:
            known = image.partition(topic.name, partition.partition_index) is not None
            (present if known else missing).append(partition)
        if missing:
            unknown.append(answer(topic, missing, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            topic.partitions = present
        if topic.partitions:
            kept.append(topic)
    body.topics = kept
    return unknown


def described(name: str, body: Any, request: Request) -> Any:
    """What the method `name` of the group room tells of groups, with what may be done to those that are found."""
    clock = request.doors.host.clock
    method = getattr(request.doors.groups.room, name)
    decision = method(request, body, context_of(request), clock.monotonic_ms(), clock.wall_ms())
    response = decision.replies[0].message
    if body.include_authorized_operations:
        for group in response.groups:
            if not group.error_code:
                group.authorized_operations = GROUP_OPERATIONS
    return response


def require_consumer_protocol(request: Request) -> None:
    """Refuses what belongs to server-side groups where `group.coordinator.rebalance.protocols` leaves them out."""
    if "consumer" not in request.doors.config.values.group_coordinator_rebalance_protocols:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)


def decide(name: str, body: Any, request: Request, ticket: Any = None) -> None:
    """Hands the request to the method `name` of the group room; the answer comes through its ticket."""
    ticket = ticket or request
    doors = request.doors
    clock = doors.host.clock
    method = getattr(doors.groups.room, name)
    doors.groups.carry_out(method(ticket, body, context_of(request), clock.monotonic_ms(), clock.wall_ms()))
    if not request.exchange.answered:
        # A parked join or sync: if the client goes, its place in the group stays and the answer is dropped.
        request.exchange.on_abandoned = lambda: doors.groups.room.cancel(ticket)
