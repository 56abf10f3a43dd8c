"""What can go wrong for a client, said so that a person knows what to do next.

Every error says what was asked of whom (`str(error)`) and, where there is something to do about it, what (`hint`).
`code` is Kafka's error code where a broker gave one, and UNKNOWN (-1) where none did.

    Unreachable      no broker answered
    NotFound         the topic, partition, group or broker does not exist
    Exists           it exists already
    Denied           the broker does not allow it
    Refused          the request or its values are not valid; asking again changes nothing
    OffsetOutOfRange the partition no longer holds the offset, or does not hold it yet
    LogTruncated     what was read before is no longer in the log
    Recreated        the topic was deleted and created again while it was read
    TimedOut         it kept failing with something that should have passed
    InDoubt          a write was sent, and nobody knows whether it was kept
    Fenced           the transaction is over, or its transactional id belongs to another producer by now
"""

from __future__ import annotations

from typing import Final

from tidelog.wire.errors import ErrorCode

UNKNOWN: Final = -1


class ClientError(Exception):
    def __init__(self, message: str, code: int = UNKNOWN, hint: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.hint = hint

    @property
    def retriable(self) -> bool:
        return self.code > 0 and ErrorCode.of(self.code).retriable


class Unreachable(ClientError):
    pass


class NotFound(ClientError):
    pass


class Exists(ClientError):
    pass


class Denied(ClientError):
    pass


class Refused(ClientError):
    pass


class OffsetOutOfRange(ClientError):
    """`first` and `end` are the offsets that can be read at the moment: `first` <= offset < `end`."""

    def __init__(self, message: str, topic: str, partition: int, first: int, end: int) -> None:
        super().__init__(message, ErrorCode.OFFSET_OUT_OF_RANGE, "read from an offset that the partition holds")
        self.topic = topic
        self.partition = partition
        self.first = first
        self.end = end


class LogTruncated(ClientError):
    """`end_offset` is where the log still agrees with what was read."""

    def __init__(self, message: str, end_offset: int) -> None:
        super().__init__(message, hint=f"read again from offset {end_offset}")
        self.end_offset = end_offset


class Recreated(ClientError):
    pass


class TimedOut(ClientError):
    pass


class InDoubt(ClientError):
    pass


class Fenced(ClientError):
    pass


_KINDS: Final[dict[int, type[ClientError]]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: NotFound,
    ErrorCode.UNKNOWN_TOPIC_ID: NotFound,
    ErrorCode.GROUP_ID_NOT_FOUND: NotFound,
    ErrorCode.RESOURCE_NOT_FOUND: NotFound,
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: NotFound,
    ErrorCode.BROKER_ID_NOT_REGISTERED: NotFound,
    ErrorCode.LOG_DIR_NOT_FOUND: NotFound,
    ErrorCode.TOPIC_ALREADY_EXISTS: Exists,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: Denied,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: Denied,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: Denied,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Denied,
    ErrorCode.SASL_AUTHENTICATION_FAILED: Denied,
    ErrorCode.REQUEST_TIMED_OUT: TimedOut,
    ErrorCode.PRODUCER_FENCED: Fenced,
    ErrorCode.INVALID_PRODUCER_EPOCH: Fenced,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: Fenced,
}

_FENCED: Final = "another producer uses the transactional ID, or the transaction exceeded its timeout and was aborted"

_HINTS: Final[dict[int, str]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "check the name, or create the topic first",
    ErrorCode.GROUP_ID_NOT_FOUND: "check the name: a group exists once a member has joined or an offset was committed",
    ErrorCode.NON_EMPTY_GROUP: "stop the group's consumers first",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "stop the group's consumers first",
    ErrorCode.UNKNOWN_MEMBER_ID: "the group has members that commit themselves: stop the group's consumers first",
    ErrorCode.TOPIC_DELETION_DISABLED: "set delete.topic.enable=true on the brokers",
    ErrorCode.MESSAGE_TOO_LARGE: "raise max.message.bytes of the topic, or send smaller records",
    ErrorCode.RECORD_LIST_TOO_LARGE: "raise segment.bytes of the topic, or send smaller records",
    ErrorCode.INVALID_REPLICATION_FACTOR: "use a replication factor no larger than the number of brokers",
    ErrorCode.NOT_ENOUGH_REPLICAS: "start the brokers that are down, or lower min.insync.replicas",
    ErrorCode.LEADER_NOT_AVAILABLE: "start the brokers that hold the partition's replicas",
    ErrorCode.INVALID_TIMESTAMP: "see message.timestamp.before.max.ms and message.timestamp.after.max.ms of the topic",
    ErrorCode.INVALID_TOPIC_EXCEPTION: (
        "a topic's name has letters, digits, '.', '_' and '-', at most 249; internal topics may not be written"
    ),
    ErrorCode.PRODUCER_FENCED: _FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH: _FENCED,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: _FENCED,
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: "use at most transaction.max.timeout.ms of the brokers",
    ErrorCode.UNSUPPORTED_VERSION: "a newer broker may support it",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "ask an operator for an ACL on the topic",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "ask an operator for an ACL on the group",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "ask an operator for an ACL on the cluster",
}


def error_for(code: int, what: str, detail: str | None = None) -> ClientError:
    """The exception for an error code that a broker gave while doing `what`; `detail` is the broker's own message."""
    known = ErrorCode.of(code)
    kind = _KINDS.get(known)
    if kind is None:
        kind = ClientError if known.retriable or known == ErrorCode.UNKNOWN_SERVER_ERROR else Refused
    name = known.name if known == code else f"error code {code}"
    return kind(f"{what}: {(detail or known.message).rstrip('.')} ({name})", code, _HINTS.get(known))


def check(code: int, what: str, detail: str | None = None) -> None:
    if code != 0:
        raise error_for(code, what, detail)
