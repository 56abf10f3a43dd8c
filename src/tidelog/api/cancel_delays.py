"""CancelDelays, version 0: records that wait in a delay topic are not delivered; answered when that is committed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.api.describe_delays import waiting_partition
from tidelog.coordinator.delay_partition import DelayPartition
from tidelog.wire import messages
from tidelog.wire.errors import CodedError, ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.api.request import Request


def handle(body: messages.CancelDelaysRequest, request: Request) -> messages.CancelDelaysResponse | None:
    response = messages.CancelDelaysResponse

    def answer(said: Mapping[int, str | None]) -> None:
        results = [response.CancelledDelay(offset=offset, refusal=refusal) for offset, refusal in said.items()]
        request.reply(response(results=results))

    try:
        known = waiting_partition(request, body.topic, body.partition_index)
        if not isinstance(known, DelayPartition):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{body.topic} has half messages: roll them back instead")
        known.cancel(list(dict.fromkeys(body.offsets)), answer)
    except CodedError as error:
        return response(error_code=error.code, error_message=str(error))
    return None
