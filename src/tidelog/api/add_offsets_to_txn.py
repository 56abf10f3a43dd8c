"""AddOffsetsToTxn, versions 0-4: the offsets of a group become part of a transaction.

They do as the partition of the offsets topic that holds them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.api.transacting import understood
from tidelog.txn.adding import Addition, AdditionResults
from tidelog.txn.transaction import ProducerIdentity
from tidelog.wire import messages
from tidelog.wire.partitions import TopicPartition

if TYPE_CHECKING:
    from tidelog.api.request import Request

FIRST_VERSION_WITH_FENCED: Final = 2


def handle(body: messages.AddOffsetsToTxnRequest, request: Request) -> None:
    groups = request.doors.groups
    at = TopicPartition(groups.topic, groups.room.partition_for(body.group_id))
    request.doors.transactions.add([asked(body, at)], lambda results: request.reply(answer(results, request.version)))


def asked(body: messages.AddOffsetsToTxnRequest, at: TopicPartition) -> Addition:
    producer = ProducerIdentity(body.producer_id, body.producer_epoch)
    return Addition(body.transactional_id, producer, frozenset({at}), client_version=0)


def answer(results: AdditionResults, version: int) -> messages.AddOffsetsToTxnResponse:
    ((code,),) = (codes.values() for codes in results.values())
    return messages.AddOffsetsToTxnResponse(error_code=int(understood(code, version, FIRST_VERSION_WITH_FENCED)))
