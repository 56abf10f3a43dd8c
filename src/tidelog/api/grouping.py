"""What the handlers of group APIs share: who asks, and how a request reaches the coordinator.

A request about groups is a decision of the group room. Where the offsets topic does not exist yet it is created first,
as soon as somebody looks for a coordinator; before that every group is one that nobody has heard of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tidelog.group.turn import RequestContext
from tidelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from tidelog.api.request import Request

NO_TOPIC_ID: Final = bytes(16)


def context_of(request: Request) -> RequestContext:
    return RequestContext(request.client_id, "/" + request.exchange.connection.peer[0], request.version)


def require_consumer_protocol(request: Request) -> None:
    """Refuses what belongs to server-side groups where `group.coordinator.rebalance.protocols` leaves them out."""
    if "consumer" not in request.broker.values.group_coordinator_rebalance_protocols:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)


def decide(name: str, body: Any, request: Request, ticket: Any = None) -> None:
    """Hands the request to the method `name` of the group room; the answer comes through its ticket."""
    ticket = ticket or request
    broker = request.broker
    clock = broker.clock
    method = getattr(broker.groups, name)
    broker.group_coordination.carry_out(
        method(ticket, body, context_of(request), clock.monotonic_ms(), clock.wall_ms())
    )
    if not request.exchange.answered:
        # A parked join or sync: if the client goes, its place in the group stays and the answer is dropped.
        request.exchange.on_abandoned = lambda: broker.groups.cancel(ticket)
