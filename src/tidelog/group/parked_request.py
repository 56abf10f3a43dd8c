"""A JoinGroup or SyncGroup that waits for its group."""

from __future__ import annotations

from typing import NamedTuple

from tidelog.deciding.decision import Ticket


class ParkedRequest(NamedTuple):
    """`ticket` None: its connection has gone; the version shapes the answer."""

    ticket: Ticket | None
    api_version: int
