"""How messages are stored: what stands before them says which schema and version they have.

key of an internal topic      int16 type     | key        the type names the schema of key and value
value of an internal topic    int16 version  | value
protocol blobs, snapshots     int16 version  | message
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError
from typing import Final, TypeVar

from tidelog.wire.classes import Message
from tidelog.wire.codec import BytesLike, stored_codec
from tidelog.wire.malformed import WireError

_VERSION: Final = Struct(">h")

#: The families of `__transaction_state` by key type: `X` has the schemas `XKey` and `XValue`.
TRANSACTION_RECORDS: Final = {0: "TransactionLog"}

M = TypeVar("M", bound=Message)


def encode_versioned(message: Message, version: int) -> bytes:
    """A message behind its int16 version; for the key of a record the version is its type."""
    return _VERSION.pack(version) + stored_codec(type(message).__name__, version).encode(message)


def decode_versioned(kind: type[M], buf: BytesLike) -> M:
    """A message behind its int16 version; WireError for a version that the schema does not have."""
    message: M = stored_codec(kind.__name__, peek_version(buf)).decode(buf, 2)[0]
    return message


def peek_version(buf: BytesLike) -> int:
    """The version of a value, or the type of a key."""
    try:
        version: int = _VERSION.unpack_from(buf, 0)[0]
    except StructError:
        raise WireError("shorter than its version") from None
    return version
