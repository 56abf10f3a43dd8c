"""InitProducerId, versions 0-5: an id for an idempotent producer; for a transactional one, its id and next epoch.

A producer without a transactional id gets a fresh id with epoch 0, whatever it had before. One with a transactional id
fences every earlier producer that had the same; what that left open is aborted first. Two-phase commit (version 6) is
not announced, neither here nor by Apache Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.api.transacting import decide, understood
from tidelog.txn.producer import Initialisation
from tidelog.txn.transaction import ProducerIdentity
from tidelog.wire import messages
from tidelog.wire.batch import NO_PRODUCER_EPOCH

if TYPE_CHECKING:
    from tidelog.api.request import Request
    from tidelog.wire.errors import ErrorCode

FIRST_VERSION_WITH_FENCED: Final = 4


def handle(body: messages.InitProducerIdRequest, request: Request) -> None:
    transactions = request.doors.transactions.room
    request.doors.producer_ids.when_ready(lambda: decide(request, transactions.initialise, asked(body), answer))


def asked(body: messages.InitProducerIdRequest) -> Initialisation:
    held = ProducerIdentity(body.producer_id, body.producer_epoch)
    return Initialisation(body.transactional_id, body.transaction_timeout_ms, held)


def answer(outcome: ProducerIdentity | ErrorCode, version: int) -> messages.InitProducerIdResponse:
    if isinstance(outcome, ProducerIdentity):
        return messages.InitProducerIdResponse(producer_id=outcome.producer_id, producer_epoch=outcome.producer_epoch)
    code = understood(outcome, version, FIRST_VERSION_WITH_FENCED)
    return messages.InitProducerIdResponse(error_code=int(code), producer_epoch=NO_PRODUCER_EPOCH)
