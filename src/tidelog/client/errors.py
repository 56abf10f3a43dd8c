"""What can go wrong for a client, said so that a person knows what to do next."""

from __future__ import annotations

from tidelog.wire.errors import ErrorCode


class ClientError(Exception):
    """The request failed; `code` is Kafka's error code where the broker gave one."""

    def __init__(self, message: str, code: int = -1) -> None:
        super().__init__(message)
        self.code = code

    @property
    def retriable(self) -> bool:
        return self.code > 0 and ErrorCode.of(self.code).retriable


class Unreachable(ClientError):
    """No broker answered at the given addresses."""


class NotFound(ClientError):
    """The topic, partition, group or broker does not exist."""


class Denied(ClientError):
    """The broker does not allow it."""


_NOT_FOUND = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.RESOURCE_NOT_FOUND,
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
}
_DENIED = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.SASL_AUTHENTICATION_FAILED,
}


def error_for(code: int, what: str, detail: str | None = None) -> ClientError:
    """The exception for an error code that a broker gave while doing `what`."""
    known = ErrorCode.of(code)
    kind = NotFound if known in _NOT_FOUND else Denied if known in _DENIED else ClientError
    return kind(f"{what}: {detail or known.message} ({known.name})", code)


def check(code: int, what: str, detail: str | None = None) -> None:
    if code != 0:
        raise error_for(code, what, detail)
