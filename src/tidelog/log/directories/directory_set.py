"""Which log directories belong together: `tidelog-directories`, the same file in each of them.

A broker that starts must tell a directory that is new from one that is missing: its disk is broken, or not mounted.
What was in the second must not be made anew in another place. So every directory names all of them, by the ids in their
`meta.properties`, and where each was last seen:

    metadata.version=12
    metadata.transaction=4711
    directory.Xk2l…=/disks/a
    directory.p0Qa…=/disks/b

A directory that is lost for good is forgotten once its line is removed from the files of the others.

`metadata.version` is a number that grows with every life of the cluster's metadata, `metadata.transaction` one that
grows with every change to metadata that is shared with others; both as of the last checkpoint. Metadata with a smaller
one was taken from an old copy: that it does not know a topic proves nothing then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from tidelog.log.checkpoints import format_id, parse_id
from tidelog.log.directories.directory_names import DELETE, STRAY
from tidelog.log.disk import Disk, read_file, replace_file
from tidelog.wire.partitions import TopicPartition

DIRECTORY_SET: Final = "tidelog-directories"
_VERSION: Final = "metadata.version"
_TRANSACTION: Final = "metadata.transaction"
_DIRECTORY: Final = "directory."


class MetadataVersion(NamedTuple):
    """How far the metadata was."""

    #: grows with every life of the metadata
    life: int = 0
    #: grows with every change to metadata that is shared with others
    transaction: int = 0

    def is_older_than(self, other: MetadataVersion) -> bool:
        return self.life < other.life or self.transaction < other.transaction


#: of metadata that is known to be from an old copy
OLD_VERSION: Final = MetadataVersion(-1, -1)


class Placement(NamedTuple):
    """What the cluster's metadata says of the partitions of this broker."""

    #: the partitions that are placed here, and the ids of their topics, where these have one
    topic_ids: Mapping[TopicPartition, bytes | None]
    #: of all topics of the cluster
    known_topics: frozenset[bytes]
    version: MetadataVersion
    #: nothing of the metadata is known to be lost
    whole: bool = True

    def fate(self, key: TopicPartition, topic_id: bytes | None, version: MetadataVersion) -> str | None:
        """What becomes of a log that does not belong here, as the kind of its name; None where it does.

        One without an id goes by its name. `version` is that of the metadata with which the directory was last used.
        """
        if key in self.topic_ids and (topic_id is None or self.topic_ids[key] in (None, topic_id)):
            return None
        if not self.whole:
            # The youngest topics may be forgotten, and those that were deleted still be known.
            return STRAY if any(topic == key[0] for topic, _ in self.topic_ids) else None
        was_deleted = topic_id is not None and topic_id not in self.known_topics
        return DELETE if was_deleted and not self.version.is_older_than(version) else STRAY

    def whole_name(self, key: TopicPartition, topic_id: bytes | None) -> TopicPartition:
        """The partition whose topic's name was cut short to fit into that of a directory."""
        for whole, placed_id in self.topic_ids.items():
            if placed_id is not None and placed_id == topic_id and whole[1] == key[1]:
                return whole
        return key


class DirectorySet(NamedTuple):
    #: where each directory was last seen, by its id
    paths: dict[bytes, str]
    metadata_version: MetadataVersion = MetadataVersion()

    def format(self) -> bytes:
        life, transaction = self.metadata_version
        lines = [f"{_VERSION}={life}"]
        if transaction:
            lines.append(f"{_TRANSACTION}={transaction}")
        lines += [f"{_DIRECTORY}{format_id(directory_id)}={path}" for directory_id, path in sorted(self.paths.items())]
        return "\n".join([*lines, ""]).encode()


def listed(keys: Iterable[TopicPartition], most: int = 5) -> str:
    """Partitions by their names, the first few of many."""
    names = [f"{topic}-{partition}" for topic, partition in sorted(keys)]
    return ", ".join(names[:most]) + (f", … ({len(names)} in all)" if len(names) > most else "")


def found_twice(places: Mapping[TopicPartition, tuple[str, str]]) -> str:
    """What to say of partitions that lie in two log directories each, and not because of a move."""
    together: dict[tuple[str, str], list[TopicPartition]] = {}
    for key, pair in places.items():
        together.setdefault(pair, []).append(key)
    found = [f"{listed(keys, len(keys))} in both {one} and {other}" for (one, other), keys in together.items()]
    return (
        f"found twice: {'; '.join(found)}. Move one of each away, or remove the directory with the outdated "
        "ones from log.dirs"
    )


def read_directory_set(disk: Disk, paths: Iterable[str]) -> DirectorySet:
    """What the directories at these paths say together; a file that cannot be read says nothing."""
    known: dict[bytes, str] = {}
    life = transaction = 0
    for path in paths:
        try:
            lines = read_file(disk, f"{path}/{DIRECTORY_SET}").decode().splitlines()
        except (OSError, ValueError):
            continue
        for line in lines:
            name, _, value = line.partition("=")
            try:
                if name == _VERSION:
                    life = max(life, int(value))
                elif name == _TRANSACTION:
                    transaction = max(transaction, int(value))
                elif name.startswith(_DIRECTORY):
                    known[parse_id(name.removeprefix(_DIRECTORY))] = value
            except ValueError:
                continue
    return DirectorySet(known, MetadataVersion(life, transaction))


def write_directory_set(disk: Disk, path: str, directories: DirectorySet) -> None:
    """Into the directory at `path`, where it does not stand there already."""
    file, data = f"{path}/{DIRECTORY_SET}", directories.format()
    if not disk.exists(file) or read_file(disk, file) != data:
        replace_file(disk, file, data)
