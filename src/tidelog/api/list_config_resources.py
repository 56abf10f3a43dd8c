"""ListConfigResources, versions 0-1: which resources may have a configuration of their own.

Version 0 knows client metrics only; version 1 asks by type, an empty list for all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.api.broker_loggers import BROKER_LOGGER
from tidelog.control.model import ResourceType
from tidelog.wire import messages
from tidelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from tidelog.api.request import Request

FIRST_VERSION_WITH_TYPES: Final = 1
SUPPORTED: Final = (2, 4, BROKER_LOGGER, 16, 32)


def handle(body: messages.ListConfigResourcesRequest, request: Request) -> messages.ListConfigResourcesResponse:
    image = request.doors.cluster.image
    wanted = list(dict.fromkeys(body.resource_types))
    if request.version < FIRST_VERSION_WITH_TYPES:
        wanted = [ResourceType.CLIENT_METRICS]
    if any(kind not in SUPPORTED for kind in wanted):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    names: dict[int, list[str]] = {
        ResourceType.TOPIC: list(image.topics),
        ResourceType.BROKER: [str(broker) for broker in image.brokers],
        BROKER_LOGGER: [str(broker) for broker in image.brokers],
        ResourceType.CLIENT_METRICS: [r.name for r in image.configs if r.type == ResourceType.CLIENT_METRICS],
        ResourceType.GROUP: [r.name for r in image.configs if r.type == ResourceType.GROUP],
    }
    response = messages.ListConfigResourcesResponse
    return response(
        config_resources=[
            response.ConfigResource(resource_name=name, resource_type=kind)
            for kind in wanted or SUPPORTED
            for name in names[kind]
        ]
    )
