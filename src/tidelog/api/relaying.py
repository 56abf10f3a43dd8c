"""Requests that the controller answers, on a broker that is not the controller: they are passed on as they came.

The response goes back under the client's own correlation id. A request that comes from another broker is never passed
on again: it is decided here or refused with NOT_CONTROLLER, and the other broker looks for the controller once more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tidelog.api.deadlines import timeout_of
from tidelog.api.refusal import refuse
from tidelog.control.errors import ApiError
from tidelog.node.controller_door import OF_CLIENTS, OWN
from tidelog.wire.apis import ApiKey
from tidelog.wire.errors import ErrorCode

if TYPE_CHECKING:
    from tidelog.api.request import Request
    from tidelog.wire.classes import Message

    Handler = Callable[[Any, Request], Message | None]


def must_relay(request: Request) -> bool:
    if request.doors.controller.is_here:
        return False
    client_id = request.client_id
    return not (client_id.startswith("broker-") and client_id.endswith((f"-{OWN}", f"-{OF_CLIENTS}")))


def relaying(handler: Handler) -> Handler:
    """A handler that decides here where this broker is the controller."""

    def handle(body: Any, request: Request) -> Message | None:
        if not must_relay(request):
            return handler(body, request)
        relay(body, request, handler, request.reply)
        return None

    return handle


def relay(body: Any, request: Request, handler: Handler, answer: Callable[[Any], None]) -> None:
    """`answer` gets the controller's response; `handler` handles the request if this broker has become the controller
    meanwhile."""

    def done(outcome: Message | ApiError) -> None:
        if not isinstance(outcome, ApiError):
            answer(outcome)
        elif outcome.code is ErrorCode.NOT_CONTROLLER:
            message = handler(body, request)
            if message is not None:
                answer(message)
        else:
            refusal = refuse(request.api_key, request.version, body, outcome.code, outcome.message)
            assert refusal is not None, "every request that is relayed has a response"
            request.reply(refusal)

    api_key, timeout_ms = ApiKey(request.api_key), timeout_of(body, request)
    request.doors.controller.relay(api_key, request.version, body, request.guard(done), timeout_ms)
