"""AllocateProducerIds, version 0: a broker takes a block of producer ids from this one, the controller."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.control.controller import ProducerIdBlock
from tidelog.wire import messages

if TYPE_CHECKING:
    from tidelog.api.request import Request


def handle(body: messages.AllocateProducerIdsRequest, request: Request) -> None:
    def answer(block: ProducerIdBlock) -> None:
        request.reply(
            messages.AllocateProducerIdsResponse(
                error_code=block.error.code, producer_id_start=block.first, producer_id_len=block.size
            )
        )

    request.doors.cluster.decide_at_once(
        lambda controller: controller.allocate_producer_ids(body.broker_id, body.broker_epoch), request.guard(answer)
    )
