"""What the handlers of transaction APIs share: how a request reaches the transaction coordinator."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from tidelog.api.grouping import context_of

if TYPE_CHECKING:
    from tidelog.api.request import Request
    from tidelog.deciding.decision import Ticket
    from tidelog.deciding.turn import RequestContext
    from tidelog.txn.turn import TxnDecision

Body = TypeVar("Body")


def decide(
    deciding: Callable[[Ticket, Body, RequestContext, int, int], TxnDecision], body: Body, request: Request
) -> None:
    """Hands the request to a method of the transaction room; the answer comes through its ticket."""
    request.doors.transactions.decide(deciding, request, body, context_of(request))
