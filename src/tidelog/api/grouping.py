"""What the handlers of group APIs share: who asks, and the way to the coordinator and back.

A request about groups is a decision of the group room. A handler puts what is asked into the room's terms, and what the
room has decided into a response: what depends on the version of the API stands there, and nowhere else. Where the
offsets topic does not exist yet it is created first, as soon as somebody looks for a coordinator; before that every
group is one that nobody has heard of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import repeat
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from tidelog.api.operations import GROUP_OPERATIONS
from tidelog.api.tickets import AnsweringTicket
from tidelog.log.producers import NO_GUARD
from tidelog.wire import messages
from tidelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from tidelog.api.request import Request
    from tidelog.deciding.decision import Decision, Ticket
    from tidelog.wire.classes import Message

Asked = TypeVar("Asked")
Outcome = TypeVar("Outcome")
Topic = TypeVar("Topic", bound="OfPartitions")
Answer = TypeVar("Answer")


class OfPartitions(Protocol):
    """A topic of a request; its partitions differ from API to API, but each has a `partition_index`."""

    name: str
    partitions: list[Any]


class OfTopics(Protocol[Topic]):
    topics: list[Topic]


class Described(Protocol):
    group_id: str
    error_code: int
    authorized_operations: int


Descriptions = messages.DescribeGroupsResponse | messages.ConsumerGroupDescribeResponse


def client_host(request: Request) -> str:
    """In Kafka's form: a slash before the address."""
    return "/" + request.exchange.connection.peer[0]


#: a topic's name, those of its partitions that are answered, and a code for each of them (or more) -> their answer
TopicAnswer = Callable[[str, list[int], Iterator[ErrorCode]], Answer]


def take_out_unknown(body: OfTopics[Topic], request: Request, answer: TopicAnswer[Answer]) -> list[Answer]:
    """Leaves in `body` only partitions that exist, by their names; gives the answers for the others."""
    image = request.doors.cluster.image
    unknown, kept = [], []
    for topic in body.topics:
        missing: list[int] = []
        present = []
        for partition in topic.partitions:
            if image.partition(topic.name, partition.partition_index) is not None:
                present.append(partition)
            else:
                missing.append(partition.partition_index)
        if missing:
            unknown.append(answer(topic.name, missing, repeat(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)))
            topic.partitions = present
        if topic.partitions:
            kept.append(topic)
    body.topics = kept
    return unknown


def tell_operations(groups: Iterable[Described]) -> None:
    """What may be done to those groups that are found."""
    for group in groups:
        if not group.error_code:
            group.authorized_operations = GROUP_OPERATIONS


def reply_when_settled(request: Request, response: Descriptions, refused: Callable[[str, ErrorCode], Any]) -> None:
    """Describes groups as they are now, once all that makes them so is committed: nobody hears of a member or an
    assignment that the next coordinator may not know. `refused` is for groups of which that cannot be said."""
    groups = request.doors.groups
    partition_for = groups.room.partition_for

    def settled(errors: Mapping[int, ErrorCode]) -> None:
        if errors:
            answers: list[Any] = response.groups
            for at, group in enumerate(answers):
                if (code := errors.get(partition_for(group.group_id))) is not None:
                    answers[at] = refused(group.group_id, code)
        request.reply(response)

    groups.when_settled({partition_for(group.group_id) for group in response.groups}, request.guard(settled))


def require_consumer_protocol(request: Request) -> None:
    """Refuses what belongs to server-side groups where `group.coordinator.rebalance.protocols` leaves them out."""
    if "consumer" not in request.doors.config.values.group_coordinator_rebalance_protocols:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)


def decide(
    request: Request,
    deciding: Callable[[Ticket, Asked, int, int], Decision],
    asked: Asked,
    answer: Callable[[Outcome, int], Message],
    guard: int = NO_GUARD,
) -> None:
    """Asks a method of the group room; `answer` makes the response from its outcome and the version."""
    groups = request.doors.groups
    ticket: AnsweringTicket[Outcome] = AnsweringTicket(request, answer)
    now_ms, wall_ms = groups.now()
    groups.carry_out(deciding(ticket, asked, now_ms, wall_ms), guard)
    if not request.exchange.answered:
        # A parked join or sync: if the client goes, its place in the group stays and the answer is dropped.
        request.exchange.on_abandoned = lambda: groups.room.cancel(ticket)
