"""What went in and out of the partitions of one topic on this broker, in plain numbers that only grow."""

from __future__ import annotations

from typing import Final


class Traffic:
    """All partitions of a topic share one, so that the numbers stay when one of them leaves the broker."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "failed_fetches",
        "failed_produces",
        "fetches",
        "messages_in",
        "partitions",
        "produces",
        "replication_bytes_in",
        "replication_bytes_out",
    )

    def __init__(self) -> None:
        #: of the topic, on this broker
        self.partitions = 0
        #: what clients and coordinators wrote here as to the leader
        self.messages_in = 0
        self.bytes_in = 0
        #: what consumers were sent
        self.bytes_out = 0
        #: what this broker fetched as a follower, and what its followers fetched from it
        self.replication_bytes_in = 0
        self.replication_bytes_out = 0
        #: partitions of requests: written to, read from, refused
        self.produces = 0
        self.fetches = 0
        self.failed_produces = 0
        self.failed_fetches = 0

    def add(self, other: Traffic) -> None:
        for name in COUNTED:
            setattr(self, name, getattr(self, name) + getattr(other, name))


COUNTED: Final = tuple(name for name in Traffic.__slots__ if name != "partitions")
