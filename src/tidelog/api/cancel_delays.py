"""CancelDelays, version 0: records that wait or are stopped are not delivered; answered when that is committed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.api.describe_delays import waiting_partition
from tidelog.wire import messages
from tidelog.wire.errors import CodedError

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
        known.cancel(list(dict.fromkeys(body.offsets)), answer)
    except CodedError as error:
        return response(error_code=error.code, error_message=str(error))
    return None
