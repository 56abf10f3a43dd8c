"""OffsetFetch, versions 1-10: where groups stand; several groups from version 8, topic ids from version 10.

A topic id that nobody knows is answered with UNKNOWN_TOPIC_ID; a partition without a committed offset with -1. In
version 1 only partitions have a place for an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from tidelog.api.grouping import decide
from tidelog.api.tickets import GatheringTicket
from tidelog.group.offset_store import CommittedOffset
from tidelog.group.outcomes import FetchedTopic, OffsetsFetched
from tidelog.group.requests import OffsetFetch, offset_fetch
from tidelog.wire import messages
from tidelog.wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tidelog.api.request import Request
    from tidelog.group.outcomes import FetchedOffset, GroupOffsets
    from tidelog.group.requests import WantedOffsets, WantedTopic

    Answer = messages.OffsetFetchResponse.OffsetFetchResponseTopics
    Answering = Callable[[OffsetsFetched, int], messages.OffsetFetchResponse]

P = TypeVar("P")

FIRST_VERSION_WITH_ERROR: Final = 2
FIRST_VERSION_WITH_GROUPS: Final = 8
FIRST_VERSION_WITH_TOPIC_IDS: Final = 10


def handle(body: messages.OffsetFetchRequest, request: Request) -> None:
    version = request.version
    unknown = _take_out_unknown(body, request) if version >= FIRST_VERSION_WITH_TOPIC_IDS else None
    wanted = asked(body, version)
    groups = request.doors.groups
    answer_all: Answering = answer_groups
    if unknown or version < FIRST_VERSION_WITH_GROUPS:
        answer_all = _answering(wanted, unknown)
    if len(wanted.groups) == 1:
        decide(request, groups.room.offset_fetch, wanted, answer_all)
        return
    parts: dict[int, list[WantedOffsets]] = {}
    for group in wanted.groups:
        parts.setdefault(groups.room.partition_for(group.group_id), []).append(group)
    # Each partition's answer waits until what it tells of is replicated there.
    ticket: GatheringTicket[OffsetsFetched] = GatheringTicket(
        request, lambda outcomes: answer_all(_in_order(wanted.groups, outcomes), version)
    )
    ticket.missing = len(parts)
    for some in parts.values():
        groups.carry_out(groups.room.offset_fetch(ticket, OffsetFetch(some, wanted.require_stable), *groups.now()))


def _answering(wanted: OffsetFetch, unknown: Mapping[str, list[Answer]] | None) -> Answering:
    """Answers for the topics that are `unknown` join those of the coordinator."""

    def answer_all(outcome: OffsetsFetched, version: int) -> messages.OffsetFetchResponse:
        response = answer(outcome, wanted, version)
        if unknown:
            for group in response.groups:
                if not group.error_code:
                    group.topics.extend(unknown.get(group.group_id, ()))
        return response

    return answer_all


def _in_order(wanted: Iterable[WantedOffsets], outcomes: Iterable[OffsetsFetched]) -> OffsetsFetched:
    """As they were asked for; a group that was asked for twice is there twice."""
    found: dict[str, list[GroupOffsets]] = {}
    for outcome in outcomes:
        for group in outcome.groups:
            found.setdefault(group.group_id, []).append(group)
    return OffsetsFetched([found[group.group_id].pop(0) for group in wanted])


def asked(body: messages.OffsetFetchRequest, version: int) -> OffsetFetch:
    if version >= FIRST_VERSION_WITH_GROUPS:
        return offset_fetch((body.groups, body.require_stable))
    # The only group of an older request, as newer ones have it.
    of_group, of_topic = body.OffsetFetchRequestGroup, body.OffsetFetchRequestTopics
    topics = body.topics
    named = None if topics is None else [of_topic(name=t.name, partition_indexes=t.partition_indexes) for t in topics]
    return OffsetFetch([of_group(group_id=body.group_id, topics=named)], body.require_stable)


def answer(outcome: OffsetsFetched, wanted: OffsetFetch, version: int) -> messages.OffsetFetchResponse:
    if version >= FIRST_VERSION_WITH_GROUPS:
        return answer_groups(outcome, version)
    response = messages.OffsetFetchResponse
    ((_, found, code),) = outcome.groups
    if version < FIRST_VERSION_WITH_ERROR:
        if code and not found:
            found = _refused(wanted.groups[0].topics or (), code)
        code = ErrorCode.NONE
    of_topic, of_partition = response.OffsetFetchResponseTopic, response.OffsetFetchResponsePartition
    topics = [of_topic(name=name, partitions=_partitions(offsets, of_partition)) for name, _, offsets in found]
    return response(topics=topics, error_code=code)


def _refused(topics: Iterable[WantedTopic], code: ErrorCode) -> list[FetchedTopic]:
    return [
        FetchedTopic(topic.name, topic.topic_id, [(index, code) for index in topic.partition_indexes])
        for topic in topics
    ]


def answer_groups(outcome: OffsetsFetched, version: int) -> messages.OffsetFetchResponse:
    response = messages.OffsetFetchResponse
    of_group, of_topic = response.OffsetFetchResponseGroup.of, response.OffsetFetchResponseTopics.of
    of_partition = response.OffsetFetchResponsePartitions.of
    groups = []
    for group_id, fetched, code in outcome.groups:
        topics = []
        for name, topic_id, offsets in () if code else fetched:
            topics.append(of_topic(name=name, topic_id=topic_id, partitions=_partitions(offsets, of_partition)))
        groups.append(of_group(group_id=group_id, topics=topics, error_code=code))
    return response.of(groups=groups)


def _partitions(offsets: Iterable[FetchedOffset], of_partition: Callable[..., P]) -> list[P]:
    """Version 8 put the structs of a partition into groups under another name."""
    partitions = []
    for index, committed in offsets:
        if isinstance(committed, CommittedOffset):
            told = of_partition(
                partition_index=index,
                committed_offset=committed.offset,
                committed_leader_epoch=committed.leader_epoch,
                metadata=committed.metadata,
            )
        else:
            code = committed or ErrorCode.NONE
            told = of_partition(partition_index=index, committed_offset=-1, metadata="", error_code=code)
        partitions.append(told)
    return partitions


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
