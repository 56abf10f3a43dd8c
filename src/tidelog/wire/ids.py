"""Topic and directory ids: 16 raw bytes inside, Kafka's unpadded URL-safe base64 where people read them."""

from __future__ import annotations

from binascii import b2a_base64
from typing import Final

from tidelog.wire.table import ZERO_UUID as ZERO_UUID

_TO_URL: Final = bytes.maketrans(b"+/", b"-_")


def uuid_to_base64(uuid: bytes) -> str:
    if len(uuid) != 16:
        raise ValueError(f"a uuid has 16 bytes, not {len(uuid)}")
    return b2a_base64(uuid, newline=False).rstrip(b"=").translate(_TO_URL).decode()
