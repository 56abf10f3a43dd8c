"""What groups have to tell, of those that this broker coordinates: their members, offsets and lags."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.metrics.exposition import labelled

if TYPE_CHECKING:
    from tidelog.group.groups import Groups
    from tidelog.metrics.exposition import Page
    from tidelog.replica.replicas import Replicas
    from tidelog.timer.slices import Job

#: offsets of one slice, which takes about a millisecond
SLICE_OFFSETS: Final = 250
_PREFIX: Final = "kafka_consumergroup_"


class GroupMetrics:
    def __init__(self, groups: Groups, replicas: Replicas) -> None:
        self._groups = groups
        self._replicas = replicas

    def tell(self, page: Page) -> Job:
        """What changes between two slices may be told as it was or as it is."""
        groups = offsets = told = 0
        for shard in self._groups.loaded():
            groups += len(shard.groups)
            for group_id, group in list(shard.groups.items()):
                page.add(f"{_PREFIX}members", len(group.members), labelled(consumergroup=group_id))
            for group_id, topics in list(shard.offsets.offsets.items()):
                for topic, partitions in list(topics.items()):
                    for some in _slices([(index, at.offset) for index, at in partitions.items()]):
                        told += len(some)
                        if told >= SLICE_OFFSETS:
                            told = 0
                            page.end_slice()
                            yield None
                        self._tell_partitions(page, group_id, topic, some)
                    offsets += len(partitions)
                    self._tell_sums(page, group_id, topic, {index: at.offset for index, at in partitions.items()})
        page.add("kafka_coordinator_group_groupmetadatamanager_numgroups", groups)
        page.add("kafka_coordinator_group_groupmetadatamanager_numoffsets", offsets)

    def _lag(self, topic: str, index: int, offset: int) -> int | None:
        """None where no replica on this broker tells how far the partition is."""
        partition = self._replicas.partitions.get((topic, index))
        return None if partition is None else max(0, partition.high_watermark - offset)

    def _tell_partitions(self, page: Page, group_id: str, topic: str, some: list[tuple[int, int]]) -> None:
        for index, offset in some:
            labels = labelled(consumergroup=group_id, topic=topic, partition=index)
            page.add(f"{_PREFIX}current_offset", offset, labels)
            lag = self._lag(topic, index, offset)
            if lag is not None:
                page.add(f"{_PREFIX}lag", lag, labels)

    def _tell_sums(self, page: Page, group_id: str, topic: str, committed: dict[int, int]) -> None:
        labels = labelled(consumergroup=group_id, topic=topic)
        lags = [lag for index, at in committed.items() if (lag := self._lag(topic, index, at)) is not None]
        page.add(f"{_PREFIX}current_offset_sum", sum(committed.values()), labels)
        if lags:
            page.add(f"{_PREFIX}lag_sum", sum(lags), labels)


def _slices(items: list[tuple[int, int]]) -> list[list[tuple[int, int]]]:
    return [items[at : at + SLICE_OFFSETS] for at in range(0, len(items), SLICE_OFFSETS)]
