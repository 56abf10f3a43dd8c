"""FindCoordinator, versions 0-6: which broker coordinates a group or a transactional id; several keys from version 4.

The internal topic that coordinators live on is created when the first client looks for one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.wire import messages
from tidelog.wire.errors import ErrorCode

if TYPE_CHECKING:
    from tidelog.api.request import Request
    from tidelog.coordinator.groups import GroupCoordination
    from tidelog.coordinator.transactions import TransactionCoordination

    Coordinator = messages.FindCoordinatorResponse.Coordinator

#: kinds of keys
GROUP: Final = 0
TRANSACTION: Final = 1
FIRST_BATCHED_VERSION: Final = 4
FIRST_VERSION_WITH_KEY_TYPE: Final = 1


def handle(body: messages.FindCoordinatorRequest, request: Request) -> messages.FindCoordinatorResponse | None:
    key_type = body.key_type if request.version >= FIRST_VERSION_WITH_KEY_TYPE else 0
    keys = body.coordinator_keys if request.version >= FIRST_BATCHED_VERSION else [body.key]
    coordination: GroupCoordination | TransactionCoordination
    if key_type == GROUP:
        coordination = request.doors.groups
    elif key_type == TRANSACTION:
        coordination = request.doors.transactions
    else:
        return _answer([_unavailable(key, ErrorCode.INVALID_REQUEST) for key in keys], request)
    topic, partition_for = coordination.topic, coordination.room.partition_for
    request.doors.topics.ensure_internal(
        topic, lambda: request.reply(_answer([_find(key, topic, partition_for(key), request) for key in keys], request))
    )
    return None


def _find(key: str, topic: str, index: int, request: Request) -> Coordinator:
    leader = request.doors.cluster.leader_of(topic, index)
    for node in request.doors.cluster.nodes(request.exchange.connection):
        if leader is not None and node.id == leader[0]:
            return messages.FindCoordinatorResponse.Coordinator(
                key=key, node_id=node.id, host=node.host, port=node.port, error_message=""
            )
    return _unavailable(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)


def _unavailable(key: str, code: ErrorCode) -> Coordinator:
    return messages.FindCoordinatorResponse.Coordinator(
        key=key, node_id=-1, host="", port=-1, error_code=code, error_message=code.message
    )


def _answer(coordinators: list[Coordinator], request: Request) -> messages.FindCoordinatorResponse:
    if request.version >= FIRST_BATCHED_VERSION:
        return messages.FindCoordinatorResponse(coordinators=coordinators)
    found = coordinators[0]
    # These versions name the error even where there is none.
    message = found.error_message if found.error_code else ErrorCode.NONE.name
    return messages.FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )
