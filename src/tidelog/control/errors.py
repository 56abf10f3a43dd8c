"""The error codes of Kafka's protocol that the controller answers with, and an error as a value."""

from __future__ import annotations

from typing import Final, NamedTuple

UNKNOWN_SERVER_ERROR: Final = -1
NONE: Final = 0
UNKNOWN_TOPIC_OR_PARTITION: Final = 3
REQUEST_TIMED_OUT: Final = 7
BROKER_NOT_AVAILABLE: Final = 8
INVALID_TOPIC_EXCEPTION: Final = 17
TOPIC_ALREADY_EXISTS: Final = 36
INVALID_PARTITIONS: Final = 37
INVALID_REPLICATION_FACTOR: Final = 38
INVALID_REPLICA_ASSIGNMENT: Final = 39
INVALID_CONFIG: Final = 40
NOT_CONTROLLER: Final = 41
INVALID_REQUEST: Final = 42
POLICY_VIOLATION: Final = 44
KAFKA_STORAGE_ERROR: Final = 56
TOPIC_DELETION_DISABLED: Final = 73
FENCED_LEADER_EPOCH: Final = 74
STALE_BROKER_EPOCH: Final = 77
PREFERRED_LEADER_NOT_AVAILABLE: Final = 80
ELIGIBLE_LEADERS_NOT_AVAILABLE: Final = 83
ELECTION_NOT_NEEDED: Final = 84
NO_REASSIGNMENT_IN_PROGRESS: Final = 85
INVALID_UPDATE_VERSION: Final = 95
UNKNOWN_TOPIC_ID: Final = 100
DUPLICATE_BROKER_REGISTRATION: Final = 101
INELIGIBLE_REPLICA: Final = 107
NEW_LEADER_ELECTED: Final = 108


class ApiError(NamedTuple):
    """A code of the protocol and what to tell the client; message None: the code's own words will do."""

    code: int = NONE
    message: str | None = None

    @property
    def is_failure(self) -> bool:
        return self.code != NONE


NO_ERROR: Final = ApiError()


class Rejected(Exception):
    """Carries an `ApiError` out of the checks of one item to where it is answered; never leaves the room."""

    def __init__(self, code: int, message: str | None = None) -> None:
        super().__init__(code, message)
        self.error = ApiError(code, message)
