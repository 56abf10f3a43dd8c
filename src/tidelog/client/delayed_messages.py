"""Delay topics from the outside: what waits in them, what is stopped and why, and taking records back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tidelog.client.cluster import Cluster
from tidelog.client.errors import check
from tidelog.wire import messages
from tidelog.wire.apis import ApiKey


class DelayedRecord(NamedTuple):
    partition: int
    offset: int
    #: None where the record's headers name no time; of half messages, the time of the record
    due_ms: int | None
    #: waiting, sent (on its way), stopped or malformed; prepared or undecided for half messages
    state: str
    #: why it is stopped or malformed
    reason: str | None
    #: of a half message
    half_id: str | None = None


class DelayedPartition(NamedTuple):
    partition: int
    target: str
    waiting: int
    #: by the present leader, since it has led
    delivered: int
    #: records whose headers name no time, or mean nothing to a half topic: they are not delivered
    malformed: int
    #: why nothing is delivered at the moment
    stalled: str | None
    #: those that are stopped, then those that are due first
    records: list[DelayedRecord]
    #: half messages wait there
    is_half: bool = False
    #: so many records at most cannot be seen yet, for a transaction is open
    held_back: int = 0


class DelayedMessages:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def describe(
        self,
        topic: str,
        partitions: Iterable[int] | None = None,
        max_records: int = 100,
        half_id: str | None = None,
    ) -> list[DelayedPartition]:
        """What waits in the partitions of a delay topic; all of them for None. Of half messages, only the one with
        `half_id` where that is given."""
        wanted = self._cluster.topic(topic).partitions if partitions is None else partitions
        return [self._describe(topic, partition, max_records, half_id) for partition in sorted(wanted)]

    def _describe(self, topic: str, partition: int, max_records: int, half_id: str | None) -> DelayedPartition:
        asked = messages.DescribeDelaysRequest
        asked_of = [asked.DelayTopic(name=topic, partition_indexes=[partition])]
        request = asked(topics=asked_of, max_records=max_records, half_id=half_id)

        def attempt() -> DelayedPartition:
            result = (
                self._cluster.call_leader(topic, partition, ApiKey.DESCRIBE_DELAYS, request).topics[0].partitions[0]
            )
            check(result.error_code, f"what waits in {topic}-{partition}", result.error_message)
            records = [
                DelayedRecord(
                    partition,
                    each.offset,
                    None if each.due_ms < 0 else each.due_ms,
                    each.state,
                    each.reason,
                    each.half_id,
                )
                for each in result.records
            ]
            return DelayedPartition(
                partition,
                result.target,
                result.waiting_count,
                result.delivered_count,
                result.malformed_count,
                result.stalled,
                records,
                result.is_half,
                result.held_back_count,
            )

        return self._cluster.retrying(attempt)

    def cancel(self, topic: str, partition: int, offsets: Iterable[int]) -> dict[int, str | None]:
        """Offset -> why the record could not be cancelled; None where it is, and will not be delivered."""
        request = messages.CancelDelaysRequest(topic=topic, partition_index=partition, offsets=list(offsets))

        def attempt() -> dict[int, str | None]:
            answer = self._cluster.call_leader(topic, partition, ApiKey.CANCEL_DELAYS, request)
            check(answer.error_code, f"cancelling records of {topic}-{partition}", answer.error_message)
            return {each.offset: each.refusal for each in answer.results}

        return self._cluster.retrying(attempt)
