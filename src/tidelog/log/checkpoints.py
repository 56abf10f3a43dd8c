"""The small files beside the logs, byte for byte as Apache Kafka writes them.

In every log directory:

    recovery-point-offset-checkpoint    "topic partition offset": what is known to be on the device
    log-start-offset-checkpoint         "topic partition offset": where each log begins
    replication-offset-checkpoint       "topic partition offset": high watermarks
    cleaner-offset-checkpoint           "topic partition offset": how far compaction has come
    meta.properties                     whose directory this is: cluster, node, directory
    .kafka_cleanshutdown                left by a clean stop, gone while the broker runs
    .lock                               held while the broker runs

In every partition's directory: `partition.metadata` (the topic id), `leader-epoch-checkpoint`; and, where there is
something to say that Kafka has no file for, `tidelog-partition`, which Kafka passes over.

Checkpoints are text: a version, a count, then the lines; a count that does not match tells a torn file. All are
replaced by rename, never written in place.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from tidelog.log.disk import Disk, read_file, replace_file
from tidelog.wire.partitions import TopicPartition

RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS: Final = "log-start-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
CLEANED_OFFSETS: Final = "cleaner-offset-checkpoint"
META_PROPERTIES: Final = "meta.properties"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
LOCK: Final = ".lock"
PARTITION_METADATA: Final = "partition.metadata"
PARTITION_NOTES: Final = "tidelog-partition"
#: the files that speak of partitions by their names
CHECKPOINTS: Final = (RECOVERY_POINTS, LOG_START_OFFSETS, HIGH_WATERMARKS, CLEANED_OFFSETS)


class MalformedCheckpoint(Exception):
    """The file is not what a whole write leaves behind."""


def format_lines(lines: Iterable[str]) -> bytes:
    body = list(lines)
    return "\n".join(["0", str(len(body)), *body, ""]).encode()


def parse_lines(data: bytes, path: str, width: int) -> list[list[str]]:
    """The lines after version and count, split at white space; an empty file has none."""
    try:
        lines = data.decode().splitlines()
        if len(lines) < 2:
            if lines and lines[0] != "0":
                raise ValueError(f"version {lines[0]!r}")
            return []
        if int(lines[0]) != 0:
            raise ValueError(f"version {lines[0]!r}")
        entries = [line.split() for line in lines[2:]]
        if int(lines[1]) != len(entries):
            raise ValueError(f"{lines[1]} entries announced, {len(entries)} found")
        for entry in entries:
            if len(entry) != width:
                raise ValueError(f"line {' '.join(entry)!r}")
    except ValueError as error:
        raise MalformedCheckpoint(f"{path}: {error}") from None
    return entries


def format_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    return format_lines(f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items())


def read_offsets(disk: Disk, path: str) -> dict[TopicPartition, int]:
    """Empty where there is no such file."""
    try:
        data = read_file(disk, path)
    except FileNotFoundError:
        return {}
    try:
        return {
            TopicPartition(topic, int(partition)): int(offset)
            for topic, partition, offset in parse_lines(data, path, 3)
        }
    except ValueError as error:
        raise MalformedCheckpoint(f"{path}: {error}") from None


def write_offsets(disk: Disk, path: str, offsets: Mapping[TopicPartition, int], sync: bool = True) -> None:
    replace_file(disk, path, format_offsets(offsets), sync)


# --- ids

#: Kafka's Uuid.ZERO_UUID
NO_ID: Final = bytes(16)


def format_id(value: bytes) -> str:
    """Kafka's way to print a Uuid: base64 for URLs, without padding."""
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def parse_id(text: str) -> bytes:
    value = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    if len(value) != 16 or format_id(value) != text:
        raise ValueError(f"{text!r} is not an id of 16 bytes")
    return value


def format_partition_metadata(topic_id: bytes) -> bytes:
    return f"version: 0\ntopic_id: {format_id(topic_id)}".encode()


def parse_partition_metadata(data: bytes) -> bytes | None:
    """The topic id; None where the file is torn: the id is then known from the cluster's metadata alone."""
    try:
        fields = dict(line.split(None, 1) for line in data.decode().splitlines() if line.strip())
        return parse_id(fields["topic_id:"].strip())
    except (ValueError, KeyError):
        return None


class PartitionNotes(NamedTuple):
    """What must be known of a partition's directory when it is opened, besides what its files show."""

    #: offsets may be missing between its batches: compaction was here, or in the log that it was copied from
    gaps: bool = False
    #: how often the partition was moved to another directory: of two that claim to be it, the later one is
    moves: int = 0
    #: records may be missing that were here, and are not known to be elsewhere: it was begun anew in place of a log
    #: that is lost, or comes from an old copy of the disk
    incomplete: bool = False
    #: a start has found damage and cut off what followed it, and nobody has decided yet who leads in spite of that
    damaged: bool = False
    #: segments are given room in advance, or were: zeros at their ends are no loss
    preallocates: bool = False
    #: of a copy in the directory of the partition itself: nothing was written to the partition since it was complete,
    #: so that it takes the partition's place, if need be with the next opening
    succeeds: bool = False

    def format(self) -> bytes:
        incomplete = "incomplete=1\n" if self.incomplete else ""
        damaged = "damaged=1\n" if self.damaged else ""
        rest = "preallocates=1\n" if self.preallocates else ""
        rest += "succeeds=1\n" if self.succeeds else ""
        return f"version=0\ngaps={int(self.gaps)}\nmoves={self.moves}\n{incomplete}{damaged}{rest}".encode()

    @classmethod
    def parse(cls, data: bytes) -> PartitionNotes:
        """What cannot be read is taken for the careful answer: a gap is no damage."""
        try:
            fields = dict(line.split("=", 1) for line in data.decode().splitlines() if line)
            return cls(
                gaps=fields["gaps"] != "0",
                moves=int(fields["moves"]),
                incomplete=fields.get("incomplete", "0") != "0",
                damaged=fields.get("damaged", "0") != "0",
                preallocates=fields.get("preallocates", "0") != "0",
                succeeds=fields.get("succeeds") == "1",
            )
        except (ValueError, KeyError):
            return cls(gaps=True)


class MetaProperties(NamedTuple):
    """Whose directory this is. Version 1 has `node.id`; a directory of Kafka's with version 0 has `broker.id`."""

    cluster_id: str
    node_id: int
    directory_id: bytes

    def format(self) -> bytes:
        lines = [f"cluster.id={self.cluster_id}", f"directory.id={format_id(self.directory_id)}"]
        return "\n".join([*lines, f"node.id={self.node_id}", "version=1", ""]).encode()

    @classmethod
    def parse(cls, data: bytes, path: str) -> MetaProperties:
        try:
            lines = (line.strip() for line in data.decode().splitlines())
            pairs = (line.partition("=") for line in lines if line and line[0] not in "#!")
            fields = {name.strip(): value.strip() for name, _, value in pairs}
            node_id = int(fields["node.id"] if fields.get("version", "0") != "0" else fields["broker.id"])
            directory_id = fields.get("directory.id")
            return cls(fields["cluster.id"], node_id, parse_id(directory_id) if directory_id else NO_ID)
        except (KeyError, ValueError) as error:
            raise MalformedCheckpoint(f"{path} is damaged ({error}): restore it from a backup") from None


def format_clean_shutdown(broker_epoch: int) -> bytes:
    return f'{{"version":0,"brokerEpoch":{broker_epoch}}}'.encode()


def parse_clean_shutdown(data: bytes) -> int:
    """The epoch of the broker that stopped cleanly, -1 if the marker does not say."""
    import json

    try:
        return int(json.loads(data)["brokerEpoch"])
    except (ValueError, KeyError, TypeError):
        return -1
