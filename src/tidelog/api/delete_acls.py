"""DeleteAcls, versions 1-3: every filter is refused, as by a broker without an authorizer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.api.acls import REFUSAL, WHY
from tidelog.wire import messages

if TYPE_CHECKING:
    from tidelog.api.request import Request


def handle(body: Any, request: Request) -> Any:
    response = messages.DeleteAclsResponse
    refused = response.DeleteAclsFilterResult(error_code=REFUSAL, error_message=WHY)
    return response(filter_results=[refused] * len(body.filters))
