"""What the handlers of transaction APIs share: how a request reaches the coordinator, and how old a client is."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from tidelog.api.tickets import AnsweringTicket
from tidelog.wire.errors import ErrorCode

if TYPE_CHECKING:
    from tidelog.api.request import Request
    from tidelog.deciding.decision import Ticket
    from tidelog.txn.turn import TxnDecision
    from tidelog.wire.classes import Message

Asked = TypeVar("Asked")
Outcome = TypeVar("Outcome")


def decide(
    request: Request,
    deciding: Callable[[Ticket, Asked, int, int], TxnDecision],
    asked: Asked,
    answer: Callable[[Outcome, int], Message],
) -> None:
    """Asks a method of the transaction room; `answer` makes the response from its outcome and the version."""
    transactions = request.doors.transactions
    ticket: AnsweringTicket[Outcome] = AnsweringTicket(request, answer)
    transactions.carry_out(deciding(ticket, asked, *transactions.now()))


def understood(code: ErrorCode, version: int, knows_fenced_since: int) -> ErrorCode:
    """Clients know PRODUCER_FENCED from a certain version of each API on; before it, another name stood for it."""
    if code is ErrorCode.PRODUCER_FENCED and version < knows_fenced_since:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code
