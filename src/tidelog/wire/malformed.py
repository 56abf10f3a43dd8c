"""What the codec raises: one error for bytes that cannot be read, one for values that cannot be written.

A decoder raises `WireError` and nothing else, whatever the bytes are: whoever reads from a socket catches
this one type and closes the connection.
"""

from __future__ import annotations


class WireError(ValueError):
    """The bytes are not a message of this schema and version."""


class UnsupportedFieldError(ValueError):
    """A field was set that the version does not carry and that must not be dropped in silence."""
