"""Half messages from the outside: which of them have no end, and ending them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.client.errors import NotFound

if TYPE_CHECKING:
    from tidelog.client.client import Client

HALF_ID: Final = "tidelog-half-id"
HALF_END: Final = "tidelog-half-end"
#: of one partition
MOST_LISTED: Final = 10_000


class HalfMessage(NamedTuple):
    half_id: str
    partition: int
    offset: int
    prepared_ms: int
    #: prepared, or undecided: the sender was asked and did not answer
    state: str


class HalfMessages:
    """What is prepared in half topics, and ending it."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def prepared(
        self, topic: str, partitions: Iterable[int] | None = None, half_id: str | None = None
    ) -> list[HalfMessage]:
        """Half messages without an end: the oldest 10,000 of each partition, or the one with this id."""
        return [
            HalfMessage(record.half_id, record.partition, record.offset, record.due_ms or 0, record.state)
            for partition in self._client.delays.describe(topic, partitions, MOST_LISTED, half_id)
            for record in partition.records
            if record.half_id is not None
        ]

    def find(self, topic: str, half_id: str) -> HalfMessage:
        for half in self.prepared(topic, half_id=half_id):
            if half.half_id == half_id:
                return half
        raise NotFound(f"no half message {half_id} is prepared in {topic}", hint="it was ended, or never prepared")

    def end(self, topic: str, partition: int, half_id: str, commit: bool) -> None:
        """Ends a half message; done when the broker has it in writing. Saying it again changes nothing."""
        self.end_all(topic, {(partition, half_id): commit})

    def end_all(self, topic: str, ends: Mapping[tuple[int, str], bool]) -> None:
        """As `end`, for many: partition and id -> whether to commit."""
        if not ends:
            return
        producer = self._client.producer()
        for (partition, half_id), commit in ends.items():
            headers = [(HALF_ID, half_id.encode()), (HALF_END, b"commit" if commit else b"rollback")]
            producer.send(topic, None, half_id.encode(), headers, partition=partition)
        producer.flush()
