"""TxnOffsetCommit, versions 0-5: a group's positions as part of a transaction; visible when it commits.

The offsets partition must belong to the transaction: a newer client (version 5) adds it by this very request, an older
one has sent AddOffsetsToTxn, which is verified.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from tidelog.api.grouping import context_of, take_out_unknown
from tidelog.api.tickets import AmendingTicket, adding_topics
from tidelog.coordinator.transactions import producer_error
from tidelog.log.producers import NO_GUARD, NOT_REQUIRED, ProducerRefused
from tidelog.wire import messages
from tidelog.wire.errors import ErrorCode
from tidelog.wire.partitions import TopicPartition

if TYPE_CHECKING:
    from tidelog.api.request import Request

    Answer = messages.TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic

FIRST_VERSION_THAT_ADDS: Final = 5
FIRST_VERSION_WITH_ABORTABLE: Final = 4


def handle(body: messages.TxnOffsetCommitRequest, request: Request) -> None:
    doors = request.doors
    unknown = take_out_unknown(body, request, _answer)
    key = TopicPartition(doors.groups.topic, doors.groups.room.partition_for(body.group_id))
    partition = doors.data.replicas.partitions.get(key)
    if partition is None or not body.topics or not body.group_id:
        # Refused, or nothing to store: the transaction has no part in it.
        _commit(body, request, unknown, NO_GUARD)
        return
    adds = request.version >= FIRST_VERSION_THAT_ADDS
    if not adds and not doors.config.values.transaction_partition_verification_enable:
        _commit(body, request, unknown, NOT_REQUIRED)
        return
    try:
        guard = partition.log.producers.begin_verification(
            body.producer_id,
            -1,
            body.producer_epoch,
            supports_epoch_bump=adds,
            now_ms=doors.host.clock.wall_ms(),
        )
    except ProducerRefused as refused:
        _refuse(body, request, unknown, refused.code)
        return
    if guard == NO_GUARD:
        _commit(body, request, unknown, NO_GUARD)
        return

    def verified(codes: Mapping[TopicPartition, ErrorCode]) -> None:
        code = codes[key]
        if code is ErrorCode.NONE:
            _commit(body, request, unknown, guard)
        else:
            _refuse(body, request, unknown, _understood(code, request))

    doors.transactions.verify(body.transactional_id, body.producer_id, body.producer_epoch, [key], adds, verified)


def _understood(code: ErrorCode, request: Request) -> int:
    error = producer_error(code, request.version >= FIRST_VERSION_WITH_ABORTABLE, True)
    if error.code is ErrorCode.NOT_ENOUGH_REPLICAS:
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return error.code


def _commit(body: messages.TxnOffsetCommitRequest, request: Request, unknown: list[Answer], guard: int) -> None:
    groups = request.doors.groups
    ticket = AmendingTicket(request, adding_topics(unknown))
    groups.decide(groups.room.txn_offset_commit, ticket, body, context_of(request), guard)


def _refuse(body: messages.TxnOffsetCommitRequest, request: Request, unknown: list[Answer], code: int) -> None:
    topics = [_answer(topic.name, [p.partition_index for p in topic.partitions], code) for topic in body.topics]
    AmendingTicket(request, adding_topics(unknown)).reply(messages.TxnOffsetCommitResponse(topics=topics))


def _answer(topic: str, indexes: list[int], code: int) -> Answer:
    response = messages.TxnOffsetCommitResponse
    return response.TxnOffsetCommitResponseTopic(
        name=topic,
        partitions=[
            response.TxnOffsetCommitResponsePartition(partition_index=index, error_code=code) for index in indexes
        ],
    )
