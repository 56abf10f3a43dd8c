"""ApiVersions, versions 0-4: what this broker serves. The first request of every client.

A version above ours is answered with UNSUPPORTED_VERSION in a version 0 body (see `dispatch`), so that the client
can ask again; the response header has no tagged fields in any version, for the same reason. Another broker is also told
what only brokers ask of each other.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tidelog.api.routes import PEER_ROUTES, ROUTES, Route
from tidelog.wire import messages
from tidelog.wire.errors import ErrorCode

if TYPE_CHECKING:
    from tidelog.api.request import Request

FIRST_VERSION_WITH_SOFTWARE: Final = 3
FIRST_VERSION_WITH_LEVEL_ZERO: Final = 4
#: what clients must know that a version range does not tell: transactions bump the epoch at every end, groups can be
#: assigned by the server
FEATURES: Final = {"transaction.version": 2, "group.version": 1}
#: how the requester of a broker introduces itself
PEER_SOFTWARE: Final = "tidelog-broker"
SOFTWARE_NAME: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(body: messages.ApiVersionsRequest, request: Request) -> messages.ApiVersionsResponse:
    if request.version >= FIRST_VERSION_WITH_SOFTWARE and not (
        SOFTWARE_NAME.fullmatch(body.client_software_name) and SOFTWARE_NAME.fullmatch(body.client_software_version)
    ):
        return messages.ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    is_peer = body.client_software_name == PEER_SOFTWARE and not request.doors.controller.is_alone
    return served(version=request.version, routes={**ROUTES, **PEER_ROUTES} if is_peer else ROUTES)


def served(error_code: int = 0, version: int = 0, routes: dict[int, Route] = ROUTES) -> messages.ApiVersionsResponse:
    response = messages.ApiVersionsResponse
    # Before this version clients take a feature that may be at level 0 for a broken one.
    features = FEATURES if version >= FIRST_VERSION_WITH_LEVEL_ZERO else {}
    return response(
        error_code=error_code,
        api_keys=[
            response.ApiVersion(api_key=key, min_version=route.min_version, max_version=route.max_version)
            for key, route in routes.items()
        ],
        supported_features=[
            response.SupportedFeatureKey(name=name, min_version=0, max_version=level)
            for name, level in features.items()
        ],
        finalized_features_epoch=0,
        finalized_features=[
            response.FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
            for name, level in FEATURES.items()
        ],
    )
