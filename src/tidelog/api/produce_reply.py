"""The answer to the most common produce there is: one partition, no error. And what others do not tell.

Such answers differ in three offsets and the correlation id only, so the frame is encoded once for each partition and
version, by the codec, and the numbers are put between its pieces afterwards. Where they stand is found by encoding
numbers that occur nowhere else. What stands around them is kept as bytes.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from tidelog.wire import messages
from tidelog.wire.apis import ApiKey
from tidelog.wire.errors import ErrorCode
from tidelog.wire.frame import encode_response

if TYPE_CHECKING:
    from tidelog.log.append import AppendInfo

#: base offset, log append time and log start offset stand side by side from here on
FIRST_VERSION: Final = 5
MAX_TEMPLATES: Final = 50_000
#: refusals that come before the log is looked at, or that blame it: they do not tell where it begins
WITHOUT_LOG_START: Final = frozenset(
    (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.INVALID_REQUIRED_ACKS,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
    )
)
_MARKS: Final = (0x5EA5_1DE0_0000_0001, 0x5EA5_1DE0_0000_0002, 0x5EA5_1DE0_0000_0003)
_OFFSETS: Final = Struct(">qqq").pack
_CORRELATION: Final = Struct(">i").pack
_CORRELATION_AT: Final = 4
_join: Final = b"".join


class ProduceReplies:
    __slots__ = ("_templates",)

    def __init__(self) -> None:
        #: (version, topic name or id, partition) -> what stands before, between and behind the numbers
        self._templates: dict[tuple[int, str | bytes, int], tuple[bytes, bytes, bytes]] = {}

    def frame(self, version: int, topic: str | bytes, index: int, correlation_id: int, info: AppendInfo) -> bytes:
        """The whole response; `topic` is a name before version 13, an id from then on."""
        key = (version, topic, index)
        found = self._templates.get(key)
        if found is None:
            found = self._add(key)
        head, middle, tail = found
        offsets = _OFFSETS(info.first_offset, info.log_append_time_ms, info.log_start_offset)
        return _join((head, _CORRELATION(correlation_id), middle, offsets, tail))

    def _add(self, key: tuple[int, str | bytes, int]) -> tuple[bytes, bytes, bytes]:
        version, topic, index = key
        frame = b"".join(encode_response(ApiKey.PRODUCE, version, 0, single_response(topic, index, *_MARKS)))
        if len(self._templates) >= MAX_TEMPLATES:
            self._templates.clear()
        marks = _OFFSETS(*_MARKS)
        at = frame.index(marks)
        found = (frame[:_CORRELATION_AT], frame[_CORRELATION_AT + 4 : at], frame[at + len(marks) :])
        self._templates[key] = found
        return found


def single_response(
    topic: str | bytes,
    index: int,
    base_offset: int,
    log_append_time_ms: int,
    log_start_offset: int,
    error_code: int = 0,
) -> messages.ProduceResponse:
    """The answer about one partition; `topic` is a name before version 13, an id from then on."""
    response = messages.ProduceResponse
    partition = response.PartitionProduceResponse(
        index=index,
        error_code=error_code,
        base_offset=base_offset,
        log_append_time_ms=log_append_time_ms,
        log_start_offset=log_start_offset,
    )
    named = {"name": topic} if isinstance(topic, str) else {"topic_id": topic}
    return response(responses=[response.TopicProduceResponse(partition_responses=[partition], **named)])
