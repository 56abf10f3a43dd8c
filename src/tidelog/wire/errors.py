"""Kafka's error codes, as of 4.3.0, each with its message and whether a client may simply try again."""

from __future__ import annotations

from enum import IntEnum
from typing import Final, TypeVar

_RETRIABLE: Final = True
E = TypeVar("E", bound=BaseException)


class ErrorCode(IntEnum):
    """An int on the wire; `retriable` and `message` for people and clients."""

    message: str
    retriable: bool

    def __new__(cls, code: int, message: str, retriable: bool = False) -> ErrorCode:
        member = int.__new__(cls, code)
        member._value_ = code
        member.message = message
        member.retriable = retriable
        return member

    @classmethod
    def of(cls, code: int) -> ErrorCode:
        """The member with this code; a code that no one knows is an unknown error."""
        found: ErrorCode = cls._value2member_map_.get(code, cls.UNKNOWN_SERVER_ERROR)  # type: ignore[assignment]
        return found

    UNKNOWN_SERVER_ERROR = -1, "something unexpected went wrong in the broker"
    NONE = 0, "no error"
    OFFSET_OUT_OF_RANGE = 1, "the partition does not hold this offset"
    CORRUPT_MESSAGE = 2, "the records are damaged: a checksum, size or key is not as it must be", _RETRIABLE
    UNKNOWN_TOPIC_OR_PARTITION = 3, "this broker does not have this topic or partition", _RETRIABLE
    INVALID_FETCH_SIZE = 4, "the fetch size is not valid"
    LEADER_NOT_AVAILABLE = 5, "the partition has no leader at the moment", _RETRIABLE
    NOT_LEADER_OR_FOLLOWER = 6, "this broker is not the leader, or not a replica, of the partition", _RETRIABLE
    REQUEST_TIMED_OUT = 7, "the request was not completed in time", _RETRIABLE
    BROKER_NOT_AVAILABLE = 8, "the broker cannot be reached"
    REPLICA_NOT_AVAILABLE = 9, "the replica cannot be reached or is not complete", _RETRIABLE
    MESSAGE_TOO_LARGE = 10, "a batch is larger than max.message.bytes allows"
    STALE_CONTROLLER_EPOCH = 11, "the request comes from a former controller"
    OFFSET_METADATA_TOO_LARGE = 12, "the metadata beside a committed offset is too long"
    NETWORK_EXCEPTION = 13, "the connection was lost before the answer came", _RETRIABLE
    COORDINATOR_LOAD_IN_PROGRESS = 14, "the coordinator is still reading its log", _RETRIABLE
    COORDINATOR_NOT_AVAILABLE = 15, "the coordinator is not available", _RETRIABLE
    NOT_COORDINATOR = 16, "another broker is the coordinator", _RETRIABLE
    INVALID_TOPIC_EXCEPTION = 17, "the topic name is not valid, or the topic may not be used so"
    RECORD_LIST_TOO_LARGE = 18, "the batch is larger than a segment"
    NOT_ENOUGH_REPLICAS = 19, "fewer replicas are in sync than min.insync.replicas asks for", _RETRIABLE
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20, "written, but to fewer in-sync replicas than asked for", _RETRIABLE
    INVALID_REQUIRED_ACKS = 21, "acks must be -1, 0 or 1"
    ILLEGAL_GENERATION = 22, "the generation is not that of the group"
    INCONSISTENT_GROUP_PROTOCOL = 23, "the member and the group have no protocol in common"
    INVALID_GROUP_ID = 24, "the group id is not valid"
    UNKNOWN_MEMBER_ID = 25, "the group does not know this member"
    INVALID_SESSION_TIMEOUT = 26, "the session timeout is outside the range that the broker allows"
    REBALANCE_IN_PROGRESS = 27, "the group is rebalancing: join again"
    INVALID_COMMIT_OFFSET_SIZE = 28, "the offset commit is too large"
    TOPIC_AUTHORIZATION_FAILED = 29, "not authorized for the topic"
    GROUP_AUTHORIZATION_FAILED = 30, "not authorized for the group"
    CLUSTER_AUTHORIZATION_FAILED = 31, "not authorized for the cluster"
    INVALID_TIMESTAMP = 32, "a record's timestamp is out of the allowed range"
    UNSUPPORTED_SASL_MECHANISM = 33, "the broker does not offer this SASL mechanism"
    ILLEGAL_SASL_STATE = 34, "the request does not fit the state of the SASL exchange"
    UNSUPPORTED_VERSION = 35, "the broker does not speak this version of the API"
    TOPIC_ALREADY_EXISTS = 36, "a topic of this name exists"
    INVALID_PARTITIONS = 37, "the number of partitions is not valid"
    INVALID_REPLICATION_FACTOR = 38, "the replication factor is below one or above the number of brokers"
    INVALID_REPLICA_ASSIGNMENT = 39, "the replica assignment is not valid"
    INVALID_CONFIG = 40, "a configuration is not valid"
    NOT_CONTROLLER = 41, "another broker is the controller", _RETRIABLE
    INVALID_REQUEST = 42, "the request contradicts itself or is malformed"
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, "the stored message format cannot do this"
    POLICY_VIOLATION = 44, "a policy of the cluster forbids this"
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, "the batch's sequence does not follow the producer's last one"
    DUPLICATE_SEQUENCE_NUMBER = 46, "a batch with this sequence was written before"
    INVALID_PRODUCER_EPOCH = 47, "the producer's epoch is outdated"
    INVALID_TXN_STATE = 48, "the transaction's state does not allow this"
    INVALID_PRODUCER_ID_MAPPING = 49, "the producer id is not the one of the transactional id"
    INVALID_TRANSACTION_TIMEOUT = 50, "the transaction timeout is above transaction.max.timeout.ms"
    CONCURRENT_TRANSACTIONS = 51, "another operation on this transaction is under way", _RETRIABLE
    TRANSACTION_COORDINATOR_FENCED = 52, "the marker comes from a former transaction coordinator"
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, "not authorized for the transactional id"
    SECURITY_DISABLED = 54, "security is switched off"
    OPERATION_NOT_ATTEMPTED = 55, "not tried, because something else in the request failed"
    KAFKA_STORAGE_ERROR = 56, "the disk failed", _RETRIABLE
    LOG_DIR_NOT_FOUND = 57, "the broker has no such log directory"
    SASL_AUTHENTICATION_FAILED = 58, "SASL authentication failed"
    UNKNOWN_PRODUCER_ID = 59, "the partition remembers nothing of this producer id"
    REASSIGNMENT_IN_PROGRESS = 60, "the partition's replicas are being moved"
    DELEGATION_TOKEN_AUTH_DISABLED = 61, "delegation tokens are switched off"
    DELEGATION_TOKEN_NOT_FOUND = 62, "there is no such delegation token"
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, "the principal neither owns nor may renew the token"
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64, "tokens cannot be requested over this kind of connection"
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, "not authorized for the delegation token"
    DELEGATION_TOKEN_EXPIRED = 66, "the delegation token has expired"
    INVALID_PRINCIPAL_TYPE = 67, "this type of principal is not supported"
    NON_EMPTY_GROUP = 68, "the group has members"
    GROUP_ID_NOT_FOUND = 69, "there is no such group"
    FETCH_SESSION_ID_NOT_FOUND = 70, "there is no such fetch session", _RETRIABLE
    INVALID_FETCH_SESSION_EPOCH = 71, "the fetch session's epoch is not the expected one", _RETRIABLE
    LISTENER_NOT_FOUND = 72, "the leader does not have the listener that was asked", _RETRIABLE
    TOPIC_DELETION_DISABLED = 73, "deleting topics is switched off"
    FENCED_LEADER_EPOCH = 74, "the leader epoch in the request is older than the broker's", _RETRIABLE
    UNKNOWN_LEADER_EPOCH = 75, "the leader epoch in the request is newer than the broker's", _RETRIABLE
    UNSUPPORTED_COMPRESSION_TYPE = 76, "the client cannot read the compression of this partition"
    STALE_BROKER_EPOCH = 77, "the broker has registered again since"
    OFFSET_NOT_AVAILABLE = 78, "the new leader does not know its high watermark yet", _RETRIABLE
    MEMBER_ID_REQUIRED = 79, "join again with the member id that comes with this answer"
    PREFERRED_LEADER_NOT_AVAILABLE = 80, "the preferred leader is not available", _RETRIABLE
    GROUP_MAX_SIZE_REACHED = 81, "the group is full"
    FENCED_INSTANCE_ID = 82, "another member has taken over this group.instance.id"
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, "no replica that may lead is available", _RETRIABLE
    ELECTION_NOT_NEEDED = 84, "the partition needs no election", _RETRIABLE
    NO_REASSIGNMENT_IN_PROGRESS = 85, "no replicas of the partition are being moved"
    GROUP_SUBSCRIBED_TO_TOPIC = 86, "the group is subscribed to the topic"
    INVALID_RECORD = 87, "a record breaks the rules of its topic"
    UNSTABLE_OFFSET_COMMIT = 88, "a transaction that commits offsets is still open", _RETRIABLE
    THROTTLING_QUOTA_EXCEEDED = 89, "the quota is used up", _RETRIABLE
    PRODUCER_FENCED = 90, "a newer producer uses the same transactional id"
    RESOURCE_NOT_FOUND = 91, "there is no such resource"
    DUPLICATE_RESOURCE = 92, "the request names a resource twice"
    UNACCEPTABLE_CREDENTIAL = 93, "the credential is not acceptable"
    INCONSISTENT_VOTER_SET = 94, "sender or receiver is not among the voters"
    INVALID_UPDATE_VERSION = 95, "the update's version is not valid"
    FEATURE_UPDATE_FAILED = 96, "the feature could not be updated"
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, "a forwarded principal could not be read"
    SNAPSHOT_NOT_FOUND = 98, "there is no such snapshot"
    POSITION_OUT_OF_RANGE = 99, "the position is outside the snapshot"
    UNKNOWN_TOPIC_ID = 100, "this broker does not have a topic with this id", _RETRIABLE
    DUPLICATE_BROKER_REGISTRATION = 101, "another broker uses this broker id"
    BROKER_ID_NOT_REGISTERED = 102, "no broker is registered under this id"
    INCONSISTENT_TOPIC_ID = 103, "the topic's id is not the one in the request", _RETRIABLE
    INCONSISTENT_CLUSTER_ID = 104, "the request is meant for another cluster"
    TRANSACTIONAL_ID_NOT_FOUND = 105, "there is no such transactional id"
    FETCH_SESSION_TOPIC_ID_ERROR = 106, "the fetch session mixes topic names and ids", _RETRIABLE
    INELIGIBLE_REPLICA = 107, "a replica in the new ISR may not be in it"
    NEW_LEADER_ELECTED = 108, "the ISR was changed and with it the leader"
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, "the offset lies in remote storage"
    FENCED_MEMBER_EPOCH = 110, "the member is fenced: give up all partitions and join again"
    UNRELEASED_INSTANCE_ID = 111, "another member still holds this instance id"
    UNSUPPORTED_ASSIGNOR = 112, "the group does not support this assignor"
    STALE_MEMBER_EPOCH = 113, "the member's epoch is outdated: try again after the next heartbeat"
    MISMATCHED_ENDPOINT_TYPE = 114, "this endpoint is not of the type that the request is for"
    UNSUPPORTED_ENDPOINT_TYPE = 115, "this type of endpoint is not supported"
    UNKNOWN_CONTROLLER_ID = 116, "there is no controller with this id"
    UNKNOWN_SUBSCRIPTION_ID = 117, "the telemetry subscription is unknown or outdated"
    TELEMETRY_TOO_LARGE = 118, "the telemetry is larger than the broker accepts"
    INVALID_REGISTRATION = 119, "the controller refuses this registration"
    TRANSACTION_ABORTABLE = 120, "the transaction failed: abort it and go on"
    INVALID_RECORD_STATE = 121, "the record's state does not allow this acknowledgement"
    SHARE_SESSION_NOT_FOUND = 122, "there is no such share session", _RETRIABLE
    INVALID_SHARE_SESSION_EPOCH = 123, "the share session's epoch is not the expected one", _RETRIABLE
    FENCED_STATE_EPOCH = 124, "the share group's state epoch is outdated"
    INVALID_VOTER_KEY = 125, "the voter key is not that of the receiver"
    DUPLICATE_VOTER = 126, "the voter is in the set already"
    VOTER_NOT_FOUND = 127, "the voter is not in the set"
    INVALID_REGULAR_EXPRESSION = 128, "the regular expression is not valid"
    REBOOTSTRAP_REQUIRED = 129, "the client's metadata is too old: start over from the bootstrap servers"
    STREAMS_INVALID_TOPOLOGY = 130, "the topology is not valid"
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, "the topology epoch is not valid"
    STREAMS_TOPOLOGY_FENCED = 132, "the topology epoch is outdated"
    SHARE_SESSION_LIMIT_REACHED = 133, "the broker holds as many share sessions as it may", _RETRIABLE


class CodedError(Exception):
    """Anything that a client can be told of with a code of the protocol; `str(error)` says what is wrong."""

    code: ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR

    @property
    def message(self) -> str:
        return str(self)


class KafkaError(CodedError):
    """An error that has no class of its own; `message` says more than the code does, where there is more."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(message or code.message)
        self.code = code

    def __repr__(self) -> str:
        return f"KafkaError({self.code.name}, {self.message!r})"


def untraced(error: E) -> E:
    """An error that is kept for what it says: without the frames that it passed through and all that they hold.

    A traceback leads to frames, a frame to whoever keeps the error, and that one back to the error: only the cyclic
    collector would end such a circle, long after the buffers of a refused request should have gone.
    """
    error.__traceback__ = error.__context__ = error.__cause__ = None
    return error
