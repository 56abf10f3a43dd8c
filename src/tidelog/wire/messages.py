"""Message classes by name, made from the tables on first use: `messages.FetchResponse(session_id=7)`.

The names are Kafka's: an API's name with Request or Response behind it, or a stored schema's. Structs are attributes
of the message that they belong to: `messages.FetchResponse.PartitionData`.
"""

from __future__ import annotations

from typing import Any

from tidelog.wire.codec import message_class
from tidelog.wire.malformed import WireError


def __getattr__(name: str) -> Any:
    try:
        cls = message_class(name)
    except WireError as error:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}: {error}") from None
    globals()[name] = cls
    return cls
