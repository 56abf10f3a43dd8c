"""InitProducerId, versions 0-5: an id for an idempotent producer.

A producer without a transactional id gets a fresh id with epoch 0, whatever it had before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.wire import messages
from tidelog.wire.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from tidelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from tidelog.api.request import Request


def handle(body: Any, request: Request) -> Any:
    if (body.producer_id == NO_PRODUCER_ID) != (body.producer_epoch == NO_PRODUCER_EPOCH):
        return _refused(ErrorCode.INVALID_REQUEST)
    if body.transactional_id == "":
        return _refused(ErrorCode.INVALID_REQUEST)
    if body.transactional_id is not None:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def answer(producer_id: int, error_code: int) -> None:
        request.reply(
            messages.InitProducerIdResponse(
                error_code=error_code, producer_id=producer_id, producer_epoch=-1 if error_code else 0
            )
        )

    request.broker.next_producer_id(request.guard(answer))
    return None


def _refused(code: ErrorCode) -> Any:
    return messages.InitProducerIdResponse(
        error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH
    )
