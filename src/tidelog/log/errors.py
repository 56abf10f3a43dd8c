"""What can go wrong in the log room, each with Kafka's numeric error code, so that `api` need not translate."""

from __future__ import annotations

from tidelog.wire.errors import CodedError, ErrorCode


class LogError(CodedError):
    """What the log room refuses or cannot do."""


class OffsetOutOfRange(LogError):
    code = ErrorCode.OFFSET_OUT_OF_RANGE


class CorruptMessage(LogError):
    code = ErrorCode.CORRUPT_MESSAGE


class RecordListTooLarge(LogError):
    code = ErrorCode.RECORD_LIST_TOO_LARGE


class StorageError(LogError):
    """The disk failed; the log is offline until its directory is opened again."""

    code = ErrorCode.KAFKA_STORAGE_ERROR


class WriteRefused(StorageError):
    """There was no room for a write and it was cut off again: the log takes the next one as before."""


class LogDirCordoned(LogError):
    """A log directory takes no new partitions (`cordoned.log.dirs`)."""

    code = ErrorCode.INVALID_REPLICA_ASSIGNMENT


class LogDirNotFound(LogError):
    code = ErrorCode.LOG_DIR_NOT_FOUND


class InconsistentTopicId(LogError):
    code = ErrorCode.INCONSISTENT_TOPIC_ID


class UnexpectedAppendOffset(LogError):
    """A follower was handed batches that do not continue its log; nothing of them was written."""

    def __init__(self, message: str, first_offset: int, last_offset: int) -> None:
        super().__init__(message)
        self.first_offset = first_offset
        self.last_offset = last_offset


class LogDirInUse(LogError):
    """Another process holds the lock of a log directory."""


class DuplicateLog(LogError):
    """The same partition was found in two log directories."""
