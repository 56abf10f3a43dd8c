"""How messages are stored: what stands before them says which schema and version they have.

key of an internal topic      int16 type     | key        the type names the schema of key and value
value of an internal topic    int16 version  | value
protocol blobs, snapshots     int16 version  | message
record of __cluster_metadata  uvarint frame version (1) | uvarint type | uvarint version | record
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError
from typing import Final, TypeVar

from tidelog.wire.classes import Message
from tidelog.wire.codec import BytesLike, schema_of, stored_codec
from tidelog.wire.malformed import WireError
from tidelog.wire.varint import encode_uvarint, read_uvarint

_VERSION: Final = Struct(">h")
_METADATA_FRAME_VERSION: Final = 1

#: The families of `__consumer_offsets` by key type: `X` has the schemas `XKey` and `XValue`.
GROUP_RECORDS: Final = {
    0: "OffsetCommit",
    1: "OffsetCommit",
    2: "GroupMetadata",
    3: "ConsumerGroupMetadata",
    4: "ConsumerGroupPartitionMetadata",
    5: "ConsumerGroupMemberMetadata",
    6: "ConsumerGroupTargetAssignmentMetadata",
    7: "ConsumerGroupTargetAssignmentMember",
    8: "ConsumerGroupCurrentMemberAssignment",
    10: "ShareGroupMemberMetadata",
    11: "ShareGroupMetadata",
    12: "ShareGroupTargetAssignmentMetadata",
    13: "ShareGroupTargetAssignmentMember",
    14: "ShareGroupCurrentMemberAssignment",
    15: "ShareGroupStatePartitionMetadata",
    16: "ConsumerGroupRegularExpression",
    17: "StreamsGroupMetadata",
    19: "StreamsGroupMemberMetadata",
    20: "StreamsGroupTargetAssignmentMetadata",
    21: "StreamsGroupTargetAssignmentMember",
    22: "StreamsGroupCurrentMemberAssignment",
    23: "StreamsGroupTopology",
}
#: The families of `__transaction_state` and `__share_group_state`.
TRANSACTION_RECORDS: Final = {0: "TransactionLog"}
SHARE_STATE_RECORDS: Final = {0: "ShareSnapshot", 1: "ShareUpdate"}

#: Schemas of `__cluster_metadata` by record type.
METADATA_RECORDS: Final = {
    0: "RegisterBrokerRecord",
    1: "UnregisterBrokerRecord",
    2: "TopicRecord",
    3: "PartitionRecord",
    4: "ConfigRecord",
    5: "PartitionChangeRecord",
    7: "FenceBrokerRecord",
    8: "UnfenceBrokerRecord",
    9: "RemoveTopicRecord",
    10: "DelegationTokenRecord",
    11: "UserScramCredentialRecord",
    12: "FeatureLevelRecord",
    14: "ClientQuotaRecord",
    15: "ProducerIdsRecord",
    17: "BrokerRegistrationChangeRecord",
    18: "AccessControlEntryRecord",
    19: "RemoveAccessControlEntryRecord",
    20: "NoOpRecord",
    21: "ZkMigrationStateRecord",
    22: "RemoveUserScramCredentialRecord",
    23: "BeginTransactionRecord",
    24: "EndTransactionRecord",
    25: "AbortTransactionRecord",
    26: "RemoveDelegationTokenRecord",
    27: "RegisterControllerRecord",
    28: "ClearElrRecord",
}


M = TypeVar("M", bound=Message)


def encode_versioned(message: Message, version: int) -> bytes:
    """A message behind its int16 version; for the key of a record the version is its type."""
    return _VERSION.pack(version) + stored_codec(type(message).__name__, version).encode(message)


def decode_versioned(kind: type[M], buf: BytesLike) -> M:
    """A message behind its int16 version; WireError for a version that the schema does not have."""
    message: M = stored_codec(kind.__name__, peek_version(buf)).decode(buf, 2)[0]
    return message


def decode_newest(kind: type[M], buf: BytesLike) -> M:
    """Like `decode_versioned`, but reads a version from the future as the newest known: consumers' blobs only grow."""
    version = min(peek_version(buf), schema_of(kind.__name__).versions[1])
    message: M = stored_codec(kind.__name__, version).decode(buf, 2)[0]
    return message


def peek_version(buf: BytesLike) -> int:
    """The version of a value, or the type of a key."""
    try:
        version: int = _VERSION.unpack_from(buf, 0)[0]
    except StructError:
        raise WireError("shorter than its version") from None
    return version


def encode_metadata_record(message: Message, version: int) -> bytes:
    name = type(message).__name__
    kind = next(kind for kind, known in METADATA_RECORDS.items() if known == name)
    head = encode_uvarint(_METADATA_FRAME_VERSION) + encode_uvarint(kind) + encode_uvarint(version)
    return head + stored_codec(name, version).encode(message)


def decode_metadata_record(buf: BytesLike) -> tuple[str, Message]:
    """The schema's name and the message."""
    try:
        frame_version, pos = read_uvarint(buf, 0)
        kind, pos = read_uvarint(buf, pos)
        version, pos = read_uvarint(buf, pos)
    except IndexError:
        raise WireError("a metadata record that ends in its head") from None
    if frame_version != _METADATA_FRAME_VERSION:
        raise WireError(f"a metadata record of frame version {frame_version}")
    name = METADATA_RECORDS.get(kind)
    if name is None:
        raise WireError(f"a metadata record of the unknown type {kind}")
    message, _ = stored_codec(name, version).decode(buf, pos)
    return name, message
