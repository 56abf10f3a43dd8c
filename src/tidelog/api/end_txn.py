"""EndTxn, versions 0-5: commits or aborts; answered when the decision is stored, before the markers are.

From version 5 on clients are of transactions version 2, and are told the identity to go on with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.api.transacting import decide, understood
from tidelog.txn.ending import TransactionEnd
from tidelog.txn.transaction import EPOCH_BUMP_VERSION, ProducerIdentity
from tidelog.wire import messages

if TYPE_CHECKING:
    from tidelog.api.request import Request
    from tidelog.wire.errors import ErrorCode

FIRST_VERSION_THAT_BUMPS: Final = 5
FIRST_VERSION_WITH_FENCED: Final = 2


def handle(body: messages.EndTxnRequest, request: Request) -> None:
    decide(request, request.doors.transactions.room.end, asked(body, request.version), answer)


def asked(body: messages.EndTxnRequest, version: int) -> TransactionEnd:
    producer = ProducerIdentity(body.producer_id, body.producer_epoch)
    client_version = EPOCH_BUMP_VERSION if version >= FIRST_VERSION_THAT_BUMPS else 0
    return TransactionEnd(body.transactional_id, producer, body.committed, client_version)


def answer(outcome: ProducerIdentity | ErrorCode, version: int) -> messages.EndTxnResponse:
    if isinstance(outcome, ProducerIdentity):
        return messages.EndTxnResponse.of(producer_id=outcome.producer_id, producer_epoch=outcome.producer_epoch)
    return messages.EndTxnResponse(error_code=int(understood(outcome, version, FIRST_VERSION_WITH_FENCED)))
