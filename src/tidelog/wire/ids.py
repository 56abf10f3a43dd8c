"""Topic and directory ids: 16 raw bytes inside, Kafka's unpadded URL-safe base64 where people read them."""

from __future__ import annotations

from binascii import Error, a2b_base64, b2a_base64
from typing import Final

from tidelog.wire.table import ZERO_UUID as ZERO_UUID

_TO_URL: Final = bytes.maketrans(b"+/", b"-_")
_FROM_URL: Final = bytes.maketrans(b"-_", b"+/")


def uuid_to_base64(uuid: bytes) -> str:
    if len(uuid) != 16:
        raise ValueError(f"a uuid has 16 bytes, not {len(uuid)}")
    return b2a_base64(uuid, newline=False).rstrip(b"=").translate(_TO_URL).decode()


def uuid_from_base64(text: str) -> bytes:
    """The 16 bytes; ValueError for anything that is not 16 bytes in URL-safe base64, padded or not."""
    try:
        raw = a2b_base64(text.rstrip("=").encode("ascii").translate(_FROM_URL) + b"==", strict_mode=True)
    except (Error, UnicodeEncodeError) as cause:
        raise ValueError(f"{text!r} is not a uuid in base64: {cause}") from None
    if len(raw) != 16:
        raise ValueError(f"{text!r} holds {len(raw)} bytes; a uuid has 16")
    return raw
