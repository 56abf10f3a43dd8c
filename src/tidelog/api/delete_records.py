"""DeleteRecords, versions 0-2: moves a partition's log start offset up. -1 means up to the high watermark.

Only leaders do it; whole segments below the new start are removed later, by retention. It is answered when the
followers in the ISR have moved theirs up too, so that a change of leader does not bring the records back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.control.topic_names import INTERNAL_TOPICS
from tidelog.wire import messages
from tidelog.wire.errors import CodedError, ErrorCode, KafkaError

if TYPE_CHECKING:
    from tidelog.api.request import Request
    from tidelog.replica.partition import Partition

    Result = messages.DeleteRecordsResponse.DeleteRecordsPartitionResult


def handle(body: messages.DeleteRecordsRequest, request: Request) -> messages.DeleteRecordsResponse | None:
    response = messages.DeleteRecordsResponse
    #: of a partition that is named more than once, the last offset counts
    wanted: dict[str, dict[int, int]] = {}
    for topic in body.topics:
        for partition in topic.partitions:
            wanted.setdefault(topic.name, {})[partition.partition_index] = partition.offset
    topics = []
    waits = []
    for name, offsets in wanted.items():
        results = []
        for index, offset in offsets.items():
            result = response.DeleteRecordsPartitionResult(partition_index=index, low_watermark=-1)
            try:
                trimmed = _delete(name, index, offset, request)
                waits.append((trimmed, trimmed.log.log_start_offset, result))
            except CodedError as error:
                result.error_code = error.code
            results.append(result)
        topics.append(response.DeleteRecordsTopicResult(name=name, partitions=results))
    trim = PendingTrim(request, response(topics=topics), waits)
    if trim.is_complete():
        return trim.response
    trim.park(body.timeout_ms)
    return None


def _delete(topic: str, index: int, offset: int, request: Request) -> Partition:
    doors = request.doors
    partition = doors.data.partition(topic, index)
    if topic in INTERNAL_TOPICS:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
    partition.check_leader()
    if not partition.log.config.delete and partition.log.config.compact:
        # A compacted topic keeps its newest value per key: cutting it from the start would lose them.
        raise KafkaError(ErrorCode.POLICY_VIOLATION)
    partition.delete_records(offset)
    doors.data.tell_followers(partition)
    waiting = doors.delays.partitions.get(partition.key)
    if waiting is not None:
        waiting.go_on()
    return partition


class PendingTrim:
    """A deletion that followers have not carried out yet."""

    __slots__ = ("_request", "_waits", "response")

    def __init__(
        self, request: Request, response: messages.DeleteRecordsResponse, waits: list[tuple[Partition, int, Result]]
    ) -> None:
        self._request = request
        self.response = response
        #: partitions, where each of them is to begin on all replicas, and what is answered of it
        self._waits = waits

    def is_complete(self) -> bool:
        waiting = []
        for partition, start_offset, result in self._waits:
            if not partition.is_leader:
                result.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            elif partition.low_watermark < start_offset:
                waiting.append((partition, start_offset, result))
            else:
                result.low_watermark = partition.low_watermark
        self._waits = waiting
        return not waiting

    def park(self, timeout_ms: int) -> None:
        doors = self._request.doors
        parked = doors.data.parking.park(
            [partition.key for partition, _, _ in self._waits],
            doors.host.clock.monotonic_ms() + timeout_ms,
            self.try_complete,
            self.expire,
        )
        self._request.exchange.on_abandoned = parked.cancel

    def try_complete(self) -> bool:
        if self.is_complete():
            self._request.reply(self.response)
            return True
        return False

    def expire(self) -> None:
        for _, _, result in self._waits:
            result.error_code = ErrorCode.REQUEST_TIMED_OUT
        self._request.reply(self.response)
