"""DescribeAcls, CreateAcls and DeleteAcls, versions 1-3: refused as by a broker without an authorizer."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from tidelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from tidelog.api.request import Request
    from tidelog.wire.classes import Message


def handle(body: Message, request: Request) -> NoReturn:
    raise KafkaError(
        ErrorCode.SECURITY_DISABLED,
        "No authorizer is configured: this broker keeps no access control lists, and every client may do everything",
    )
