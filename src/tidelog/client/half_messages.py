"""Half messages from the outside: which of them have no end, and ending them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.client.errors import NotFound, Refused

if TYPE_CHECKING:
    from tidelog.client.client import Client

HALF_ID: Final = "tidelog-half-id"
HALF_END: Final = "tidelog-half-end"
#: of one partition
MOST_LISTED: Final = 10_000
_WITHOUT_END: Final = ("prepared", "undecided")


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
            if record.half_id is not None and record.state in _WITHOUT_END
        ]

    def find(self, topic: str, half_id: str, partition: int | None = None) -> HalfMessage:
        """The only one with this id, in a partition or in all of them."""
        partitions = None if partition is None else [partition]
        described = self._client.delays.describe(topic, partitions, MOST_LISTED, half_id)
        if not all(each.is_half for each in described):
            raise Refused(f"{topic} is not a half topic", hint="a half topic has tidelog.half.target")
        named = [record for each in described for record in each.records if record.half_id == half_id]
        found = [record for record in named if record.state in _WITHOUT_END]
        if len(found) > 1:
            where = ", ".join(str(record.partition) for record in found)
            raise Refused(
                f"half message {half_id} is prepared in {len(found)} partitions of {topic} ({where})",
                hint="name one of them with --partition",
            )
        if not found:
            stopped = [record for record in named if record.state == "stopped"]
            hint = "it was ended, or never prepared"
            if stopped:
                cancel = f"tidelog delay cancel {topic} {stopped[0].partition} {stopped[0].offset}"
                hint = f"it is committed and stopped ({stopped[0].reason}): `{cancel}` takes it back"
            raise NotFound(f"no half message {half_id} is prepared in {topic}", hint=hint)
        one = found[0]
        return HalfMessage(half_id, one.partition, one.offset, one.due_ms or 0, one.state)

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
