"""The committed offsets of one coordinator partition, and those that wait for the end of a transaction.

`offsets` holds what a consumer may see. An offset committed inside a transaction goes to `pending` under its producer,
and `open` remembers which partitions of which group have such offsets: a fetch that wants stable offsets is refused
there until the marker comes. A commit marker moves them over, unless a plain commit came later in the log (the record
offsets decide, because compaction may have removed the earlier record); an abort marker forgets them.

Everything here changes only by replaying records and markers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from tidelog.group.topics_image import Topic
from tidelog.wire.ids import ZERO_UUID
from tidelog.wire.quick_tuples import quick


class CommittedOffset(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    # -1: the broker's retention applies.
    expire_timestamp_ms: int
    topic_id: bytes
    # Where the record stands in the log.
    record_offset: int


committed_offset: Final = quick(CommittedOffset)

# topic -> partition -> what was committed
ByTopic = dict[str, dict[int, CommittedOffset]]


class OffsetStore:
    __slots__ = ("offsets", "open", "pending")

    def __init__(self) -> None:
        self.offsets: dict[str, ByTopic] = {}
        # producer id -> group id -> (topic, partition) -> the offset to be
        self.pending: dict[int, dict[str, dict[tuple[str, int], CommittedOffset]]] = {}
        # group id -> (topic, partition) -> producers with an open transaction on it
        self.open: dict[str, dict[tuple[str, int], set[int]]] = {}

    def holds(self, group_id: str) -> bool:
        return group_id in self.offsets or group_id in self.open

    def get(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        topics = self.offsets.get(group_id)
        if topics is None:
            return None
        partitions = topics.get(topic)
        return None if partitions is None else partitions.get(partition)

    def is_open(self, group_id: str, topic: str, partition: int) -> bool:
        group = self.open.get(group_id)
        return group is not None and (topic, partition) in group

    def of_group(self, group_id: str) -> Iterator[tuple[str, int]]:
        """Every partition with a committed or a pending offset, each once."""
        for topic, partitions in self.offsets.get(group_id, {}).items():
            for partition in partitions:
                yield topic, partition
        for topic, partition in self.open.get(group_id, {}):
            if self.get(group_id, topic, partition) is None:
                yield topic, partition

    def of_topic(self, name: str, topic_id: bytes) -> Iterator[tuple[str, int]]:
        """(group id, partition) of every offset of a topic; old records without a topic id count as this topic's."""
        seen: set[tuple[str, int]] = set()
        for group_id, topics in self.offsets.items():
            for partition, committed in topics.get(name, {}).items():
                if committed.topic_id in (ZERO_UUID, topic_id):
                    seen.add((group_id, partition))
        for group_id, topic, partition, committed in self._all_pending():
            if topic == name and committed.topic_id in (ZERO_UUID, topic_id):
                seen.add((group_id, partition))
        yield from sorted(seen)

    def of_former_topics(self, name: str, topic_id: bytes) -> Iterator[tuple[str, int]]:
        """(group id, partition) of every offset of a topic of this name that was another one."""
        seen: set[tuple[str, int]] = set()
        ours = (ZERO_UUID, topic_id)
        for group_id, topics in self.offsets.items():
            for partition, committed in topics.get(name, {}).items():
                if committed.topic_id not in ours:
                    seen.add((group_id, partition))
        for group_id, topic, partition, committed in self._all_pending():
            if topic == name and committed.topic_id not in ours:
                seen.add((group_id, partition))
        yield from sorted(seen)

    def topics_unlike(self, by_name: Mapping[str, Topic]) -> set[str]:
        """Names of topics with an offset whose topic id is not that of the topic that has the name now."""
        ids = {name: topic.topic_id for name, topic in by_name.items()}
        found = set()
        for topics in self.offsets.values():
            for name, partitions in topics.items():
                now = ids.get(name)
                for committed in partitions.values():
                    if committed.topic_id != now and committed.topic_id != ZERO_UUID:
                        found.add(name)
        for _, name, _, committed in self._all_pending():
            if committed.topic_id != ids.get(name) and committed.topic_id != ZERO_UUID:
                found.add(name)
        return found

    def _all_pending(self) -> Iterator[tuple[str, str, int, CommittedOffset]]:
        for groups in self.pending.values():
            for group_id, entries in groups.items():
                for (topic, partition), committed in entries.items():
                    yield group_id, topic, partition, committed

    # -- replay --------------------------------------------------------------------------------------------------

    def put(self, group_id: str, topic: str, partition: int, committed: CommittedOffset) -> None:
        topics = self.offsets.get(group_id)
        if topics is None:
            topics = self.offsets[group_id] = {}
        partitions = topics.get(topic)
        if partitions is None:
            partitions = topics[topic] = {}
        partitions[partition] = committed

    def put_pending(
        self, producer_id: int, group_id: str, topic: str, partition: int, committed: CommittedOffset
    ) -> None:
        self.pending.setdefault(producer_id, {}).setdefault(group_id, {})[topic, partition] = committed
        self.open.setdefault(group_id, {}).setdefault((topic, partition), set()).add(producer_id)

    def remove(self, group_id: str, topic: str, partition: int) -> None:
        """A tombstone: the offset goes, and so do all that transactions were about to put in its place."""
        topics = self.offsets.get(group_id)
        if topics is not None and topic in topics:
            topics[topic].pop(partition, None)
            if not topics[topic]:
                del topics[topic]
            if not topics:
                del self.offsets[group_id]
        group = self.open.get(group_id)
        if group is None:
            return
        for producer_id in group.pop((topic, partition), set()):
            self.pending[producer_id][group_id].pop((topic, partition), None)
        if not group:
            del self.open[group_id]

    def end_transaction(self, producer_id: int, commit: bool) -> None:
        for group_id, entries in self.pending.pop(producer_id, {}).items():
            group = self.open.get(group_id, {})
            for (topic, partition), committed in entries.items():
                producers = group.get((topic, partition))
                if producers is not None:
                    producers.discard(producer_id)
                    if not producers:
                        del group[topic, partition]
                if commit:
                    now = self.get(group_id, topic, partition)
                    if now is None or committed.record_offset > now.record_offset:
                        self.put(group_id, topic, partition, committed)
            if not group:
                self.open.pop(group_id, None)
