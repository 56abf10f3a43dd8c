"""DescribeCluster, versions 0-2: the brokers, the controller, the cluster id.

Only brokers are described: there are no separate controllers (endpoint type 2 is answered with an error).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.api.operations import CLUSTER_OPERATIONS, NOT_ASKED
from tidelog.wire import messages
from tidelog.wire.errors import ErrorCode

if TYPE_CHECKING:
    from tidelog.api.request import Request

BROKERS: Final = 1
CONTROLLERS: Final = 2


def handle(body: messages.DescribeClusterRequest, request: Request) -> messages.DescribeClusterResponse:
    doors = request.doors
    response = messages.DescribeClusterResponse
    if body.endpoint_type != BROKERS:
        code = (
            ErrorCode.MISMATCHED_ENDPOINT_TYPE
            if body.endpoint_type == CONTROLLERS
            else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        )
        return response(
            error_code=code,
            error_message="this cluster has no separate controllers: ask for the brokers (endpoint type 1)",
        )
    return response(
        endpoint_type=BROKERS,
        cluster_id=doors.cluster.cluster_id or "",
        controller_id=doors.cluster.controller_id,
        brokers=[
            response.DescribeClusterBroker(broker_id=node.id, host=node.host, port=node.port, rack=node.rack)
            for node in doors.cluster.nodes(request.exchange.connection)
        ],
        cluster_authorized_operations=CLUSTER_OPERATIONS if body.include_cluster_authorized_operations else NOT_ASKED,
    )
