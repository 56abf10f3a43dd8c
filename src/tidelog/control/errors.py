"""An error of the controller as a value: some items of a request may fail while others succeed."""

from __future__ import annotations

from typing import Final, NamedTuple

from tidelog.wire.errors import CodedError, ErrorCode


class ApiError(NamedTuple):
    """A code of the protocol and what to tell the client; message None: the code's own words will do."""

    code: ErrorCode = ErrorCode.NONE
    message: str | None = None

    @property
    def is_failure(self) -> bool:
        return self.code is not ErrorCode.NONE


NO_ERROR: Final = ApiError()


class Rejected(CodedError):
    """Carries an `ApiError` out of the checks of one item to where it is answered; never leaves the room."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(message or code.message)
        self.code = code
        self.error = ApiError(code, message)
