"""PublishMetadata, version 0: the controller tells what changed. Answered when it is carried out on this broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.wire import messages

if TYPE_CHECKING:
    from tidelog.api.request import Request
    from tidelog.wire.errors import ErrorCode


def handle(body: messages.PublishMetadataRequest, request: Request) -> None:
    def answer(code: ErrorCode) -> None:
        request.reply(messages.PublishMetadataResponse(error_code=code))

    request.doors.hearing.hear(body, request.guard(answer))
