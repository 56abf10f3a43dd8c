"""What is said to whoever asks about access control lists: there are none, since nobody is denied anything."""

from __future__ import annotations

from typing import Final

from tidelog.wire.errors import ErrorCode

REFUSAL: Final = ErrorCode.SECURITY_DISABLED
WHY: Final = (
    "No authorizer is configured: this broker keeps no access control lists, and every client may do everything"
)
