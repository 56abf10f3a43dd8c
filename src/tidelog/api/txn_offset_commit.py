"""TxnOffsetCommit, versions 0-5: a group's positions as part of a transaction; visible when it commits.

The offsets partition must belong to the transaction: a newer client (version 5) adds it by this very request, an older
one has sent AddOffsetsToTxn, which is verified. Producers before version 2 know no coordinator that loads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import repeat
from typing import TYPE_CHECKING, Final

from tidelog.api.grouping import decide, take_out_unknown
from tidelog.api.tickets import add_topics
from tidelog.coordinator.transactions import producer_error
from tidelog.deciding.turn import Refusal
from tidelog.group.requests import Membership, TxnOffsetCommit
from tidelog.log.producers import NO_GUARD, NOT_REQUIRED, ProducerRefused
from tidelog.wire import messages
from tidelog.wire.errors import ErrorCode
from tidelog.wire.ids import ZERO_UUID
from tidelog.wire.partitions import TopicPartition

if TYPE_CHECKING:
    from tidelog.api.request import Request
    from tidelog.group.outcomes import OffsetsCommitted

    Answer = messages.TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic

FIRST_VERSION_THAT_ADDS: Final = 5
FIRST_VERSION_WITH_ABORTABLE: Final = 4
FIRST_VERSION_WITH_LOADING: Final = 2


def handle(body: messages.TxnOffsetCommitRequest, request: Request) -> None:
    doors = request.doors
    unknown = take_out_unknown(body, request, _answer)
    key = TopicPartition(doors.groups.topic, doors.groups.room.partition_for(body.group_id))
    partition = doors.data.replicas.partitions.get(key)
    if partition is None or not partition.is_leader or not body.topics or not body.group_id:
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


def _understood(code: ErrorCode, request: Request) -> ErrorCode:
    error = producer_error(code, request.version >= FIRST_VERSION_WITH_ABORTABLE, True)
    if error.code is ErrorCode.NOT_ENOUGH_REPLICAS:
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return error.code


def _commit(body: messages.TxnOffsetCommitRequest, request: Request, unknown: list[Answer], guard: int) -> None:
    def answer_all(outcome: OffsetsCommitted | Refusal, version: int) -> messages.TxnOffsetCommitResponse:
        response = answer(outcome, body, version)
        add_topics(response, unknown)
        return response

    decide(request, request.doors.groups.room.txn_offset_commit, asked(body), answer_all, guard)


def _refuse(body: messages.TxnOffsetCommitRequest, request: Request, unknown: list[Answer], code: ErrorCode) -> None:
    response = _response(body, repeat(code))
    add_topics(response, unknown)
    request.reply(response)


def asked(body: messages.TxnOffsetCommitRequest) -> TxnOffsetCommit:
    return TxnOffsetCommit(
        Membership(body.group_id, body.member_id, body.group_instance_id, body.generation_id),
        body.producer_id,
        body.producer_epoch,
        [(topic.name, ZERO_UUID, topic.partitions) for topic in body.topics],
    )


def answer(
    outcome: OffsetsCommitted | Refusal, body: messages.TxnOffsetCommitRequest, version: int
) -> messages.TxnOffsetCommitResponse:
    if not isinstance(outcome, Refusal):
        return _response(body, iter(outcome.codes))
    code = outcome.code
    if version < FIRST_VERSION_WITH_LOADING and code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    return _response(body, repeat(code))


def _response(body: messages.TxnOffsetCommitRequest, codes: Iterator[ErrorCode]) -> messages.TxnOffsetCommitResponse:
    return messages.TxnOffsetCommitResponse.of(
        topics=[_answer(topic.name, [p.partition_index for p in topic.partitions], codes) for topic in body.topics]
    )


def _answer(topic: str, indexes: list[int], codes: Iterator[ErrorCode]) -> Answer:
    """`codes` holds one for each of the partitions, and goes on after them."""
    response = messages.TxnOffsetCommitResponse
    return response.TxnOffsetCommitResponseTopic.of(
        name=topic,
        partitions=[
            response.TxnOffsetCommitResponsePartition.of(partition_index=index, error_code=next(codes))
            for index in indexes
        ],
    )
