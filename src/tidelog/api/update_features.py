"""UpdateFeatures, versions 0-2: the levels of features that are finalized for the cluster.

Each feature that this broker announces runs at its highest level. To ask for that level is to ask for nothing, which is
granted; another one is refused with the reason, and then nothing of the request happens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.api.api_versions import FEATURES
from tidelog.wire import messages
from tidelog.wire.errors import ErrorCode

if TYPE_CHECKING:
    from tidelog.api.request import Request

#: how a level may be changed, from raising it to lowering it whatever is lost
UPGRADE: Final = 1
UNSAFE_DOWNGRADE: Final = 3
FIRST_VERSION_WITH_TYPES: Final = 1
LAST_VERSION_WITH_RESULTS: Final = 1


def handle(body: messages.UpdateFeaturesRequest, request: Request) -> messages.UpdateFeaturesResponse:
    response = messages.UpdateFeaturesResponse
    for update in body.feature_updates:
        why = _why_not(update, request.version)
        if why is not None:
            message = f"No feature is changed: {update.feature} cannot be at level {update.max_version_level}: {why}"
            return response(error_code=ErrorCode.INVALID_UPDATE_VERSION, error_message=message)
    if request.version > LAST_VERSION_WITH_RESULTS:
        return response()
    return response(results=[response.UpdatableFeatureResult(feature=one.feature) for one in body.feature_updates])


def _why_not(update: messages.UpdateFeaturesRequest.FeatureUpdateKey, version: int) -> str | None:
    known, level = FEATURES.get(update.feature), update.max_version_level
    if version >= FIRST_VERSION_WITH_TYPES and not UPGRADE <= update.upgrade_type <= UNSAFE_DOWNGRADE:
        return f"there is no upgrade type {update.upgrade_type}"
    if known is None:
        return f"this broker has no such feature, only {', '.join(sorted(FEATURES))}"
    if level > known:
        return f"{known} is the highest that this broker knows"
    if level < known:
        return f"it runs at level {known}, and this broker cannot lower it"
    return None
