"""The picture of the cluster's topics that assignments are made from.

The broker hands in what changed in the metadata; the room watches nothing. The version of a picture is the wall time of
its last change (or one more than the version before, if the clock went back): records keep the version that a regular
expression was resolved against, so it must grow across restarts too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tidelog.wire.ids import ZERO_UUID

#: digests that are kept: one for each set of topics that a group reads
_MAX_HASHES = 1_000


class Topic(NamedTuple):
    name: str
    topic_id: bytes
    partition_count: int


class TopicsImage:
    __slots__ = ("_hashes", "by_id", "by_name", "version", "version_with_new_topics")

    def __init__(self) -> None:
        self.by_name: dict[str, Topic] = {}
        self.by_id: dict[bytes, Topic] = {}
        self.version = 0
        # The last version that brought topics which were not there before.
        self.version_with_new_topics = 0
        self._hashes: dict[frozenset[str], int] = {}

    def change(self, changes: Mapping[str, Topic | None], wall_ms: int) -> set[str]:
        """Takes over the topics that came, or went (None); the names of those that are not as they were."""
        self.version = max(self.version + 1, wall_ms)
        self._hashes.clear()
        changed = set()
        for name, topic in changes.items():
            before = self.by_name.get(name)
            if before == topic:
                continue
            changed.add(name)
            if before is not None:
                del self.by_name[name], self.by_id[before.topic_id]
            if topic is not None:
                self.by_name[name] = self.by_id[topic.topic_id] = topic
                if before is None or before.topic_id != topic.topic_id:
                    self.version_with_new_topics = self.version
        return changed

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
