"""What a client is told beside an error code of the controller's: its own words, or those that the code stands for."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.control.errors import ApiError


def said(error: ApiError) -> str | None:
    return (error.message or error.code.message) if error.is_failure else None
