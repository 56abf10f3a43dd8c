"""Topic names: which are allowed, and which collide."""

from __future__ import annotations

import re
from typing import Final

MAX_NAME_LENGTH: Final = 249
CONSUMER_OFFSETS: Final = "__consumer_offsets"
TRANSACTION_STATE: Final = "__transaction_state"
SHARE_GROUP_STATE: Final = "__share_group_state"
CLUSTER_METADATA: Final = "__cluster_metadata"
INTERNAL_TOPICS: Final = frozenset((CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE))

_LEGAL = re.compile(r"[a-zA-Z0-9._-]*")


def why_invalid(name: str) -> str | None:
    """None for a name that a topic may have."""
    if not name:
        reason = "the empty string is not allowed"
    elif name in (".", ".."):
        reason = f"'{name}' is not allowed"
    elif len(name) > MAX_NAME_LENGTH:
        reason = f"the length of '{name}' is longer than the max allowed length {MAX_NAME_LENGTH}"
    elif _LEGAL.fullmatch(name) is None:
        reason = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    else:
        return None
    return f"Topic name is invalid: {reason}"


def collision_key(name: str) -> str | None:
    """Two names with the same key would share the names of their metrics, where '.' becomes '_'; None: never."""
    return name.replace(".", "_") if "." in name or "_" in name else None
