"""DescribeUserScramCredentials, version 0: answered as by a broker on which no user has SCRAM credentials."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tidelog.wire import messages
from tidelog.wire.errors import ErrorCode

if TYPE_CHECKING:
    from tidelog.api.request import Request

    Result = messages.DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult


def handle(
    body: messages.DescribeUserScramCredentialsRequest, request: Request
) -> messages.DescribeUserScramCredentialsResponse:
    """Null and an empty list ask for all users that have some, of which there are none."""
    asked = Counter(user.name for user in body.users or ())
    return messages.DescribeUserScramCredentialsResponse(
        results=[_result(name, count) for name, count in asked.items()],
    )


def _result(name: str, count: int) -> Result:
    result = messages.DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult(user=name)
    if count > 1:
        result.error_code = ErrorCode.DUPLICATE_RESOURCE
        result.error_message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
    else:
        result.error_code = ErrorCode.RESOURCE_NOT_FOUND
        result.error_message = f"Attempt to describe a user credential that does not exist: {name}"
    return result
