"""What can go wrong in the log room, each with Kafka's numeric error code, so that `api` need not translate."""

from __future__ import annotations


class LogError(Exception):
    """`code` is the number that a client is answered with."""

    code: int = -1


class OffsetOutOfRange(LogError):
    code = 1


class CorruptMessage(LogError):
    code = 2


class MessageTooLarge(LogError):
    code = 10


class RecordListTooLarge(LogError):
    code = 18


class InvalidTimestamp(LogError):
    code = 32


class StorageError(LogError):
    """The disk failed; the log is offline until its directory is opened again."""

    code = 56


class WriteRefused(StorageError):
    """There was no room for a write and it was cut off again: the log takes the next one as before."""


class LogDirCordoned(LogError):
    """A log directory takes no new partitions (`cordoned.log.dirs`)."""

    code = 39


class LogDirNotFound(LogError):
    code = 57


class InvalidRecord(LogError):
    code = 87


class InconsistentTopicId(LogError):
    code = 103


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
