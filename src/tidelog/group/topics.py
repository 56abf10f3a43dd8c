"""The picture of the cluster's topics that assignments are made from.

The broker hands in a new picture when metadata changes; the room watches nothing. A picture is immutable. Its version
is the wall time of the change (or one more than the last, if the clock went back): records keep the version that a
regular expression was resolved against, so it must grow across restarts too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar, NamedTuple

ZERO_UUID = bytes(16)
#: digests that are kept: one for each set of topics that a group reads
_MAX_HASHES = 1_000


class Topic(NamedTuple):
    name: str
    topic_id: bytes
    partition_count: int


class TopicsImage:
    EMPTY: ClassVar[TopicsImage]

    __slots__ = ("_hashes", "by_id", "by_name", "version", "version_with_new_topics")

    def __init__(self, topics: Iterable[Topic] = (), version: int = 0, version_with_new_topics: int = 0) -> None:
        self.by_name: Mapping[str, Topic] = {topic.name: topic for topic in topics}
        self.by_id: Mapping[bytes, Topic] = {topic.topic_id: topic for topic in self.by_name.values()}
        self.version = version
        # The last version that brought topics which were not there before.
        self.version_with_new_topics = version_with_new_topics
        self._hashes: dict[frozenset[str], int] = {}

    def next(self, topics: Iterable[Topic], wall_ms: int) -> TopicsImage:
        """The picture that follows this one."""
        version = max(self.version + 1, wall_ms)
        image = TopicsImage(topics, version)
        brought_new = any(topic_id not in self.by_id for topic_id in image.by_id)
        image.version_with_new_topics = version if brought_new else self.version_with_new_topics
        return image

    def changed_names(self, after: TopicsImage) -> set[str]:
        """Names whose topic came, went, or has another number of partitions."""
        names = {name for name, topic in after.by_name.items() if self.by_name.get(name) != topic}
        names.update(name for name in self.by_name if name not in after.by_name)
        return names

    def topic_id(self, name: str) -> bytes:
        topic = self.by_name.get(name)
        return ZERO_UUID if topic is None else topic.topic_id

    def ids_of(self, names: Iterable[str]) -> set[bytes]:
        by_name = self.by_name
        return {by_name[name].topic_id for name in names if name in by_name}

    def hash_of(self, names: Iterable[str]) -> int:
        """A signed 64-bit digest of all that an assignment depends on; 0 where none of the topics exists."""
        wanted = frozenset(name for name in names if name in self.by_name)
        if not wanted:
            return 0
        known = self._hashes.get(wanted)
        if known is None:
            from hashlib import blake2b

            digest = blake2b(digest_size=8)
            for name in sorted(wanted):
                topic = self.by_name[name]
                digest.update(b"%b%d:%b" % (topic.topic_id, topic.partition_count, name.encode()))
            if len(self._hashes) >= _MAX_HASHES:
                self._hashes.clear()
            known = self._hashes[wanted] = int.from_bytes(digest.digest(), "big", signed=True)
        return known


TopicsImage.EMPTY = TopicsImage()
