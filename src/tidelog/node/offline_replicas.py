"""Replicas whose log directory has failed, or is missing: the broker goes on with its other directories without them.

They are taken out of service, so that clients and coordinators look elsewhere. The controller is asked to leave this
broker out of their ISRs: others lead what it led, and nobody waits for what it followed. Where it is the only member of
an ISR it stays, for nobody else has everything; the partition is served again when the directory is back.
"""

from __future__ import annotations

from collections.abc import Callable

from tidelog.control.leadership import IsrChange, IsrResult
from tidelog.node.cluster_view import NO_EPOCH, ClusterView
from tidelog.node.data_plane import DataPlane
from tidelog.node.isr_changes import AlterPartition
from tidelog.timer.host import Host
from tidelog.wire.partitions import TopicPartition


class OfflineReplicas:
    """`take_offline` takes a replica out of service whose log is lost."""

    def __init__(
        self,
        cluster: ClusterView,
        data: DataPlane,
        take_offline: Callable[[TopicPartition], None],
        alter_partition: AlterPartition,
        host: Host,
    ) -> None:
        self._cluster = cluster
        self._data = data
        self._take_offline = take_offline
        self._alter_partition = alter_partition
        self._host = host
        self._is_asking = False

    def look(self) -> str | None:
        """Looks for directories that have failed; the reason to stop where all of them have."""
        logs = self._data.logs
        lost = [key for directory in logs.dirs if directory.failure is not None for key in directory.logs]
        failures = {directory.path: directory.failure for directory in logs.dirs}
        for path in logs.lose_failed():
            self._host.report(f"log directory {path} has failed ({failures[path]}): its partitions are offline", None)
        for key in lost:
            self._take_offline(key)
        if None not in failures.values():
            why = "; ".join(f"{path}: {failure}" for path, failure in failures.items())
            return f"every log directory has failed: the broker stops. Check the disks ({why})"
        self._leave_isrs()
        return None

    def _leave_isrs(self) -> None:
        if self._is_asking or self._cluster.broker_epoch == NO_EPOCH:
            return
        changes = [change for key in self._data.logs.offline if (change := self._leaving(key)) is not None]
        if changes:
            self._is_asking = True
            self._alter_partition(changes, self._answered)

    def _leaving(self, key: TopicPartition) -> IsrChange | None:
        image, own = self._cluster.image, self._cluster.id
        assigned = image.partition(*key)
        if assigned is None or own not in assigned.isr:
            return None
        others = [(member, NO_EPOCH) for member in assigned.isr if member != own]
        if not others:
            return None
        topic_id = image.topics[assigned.topic].topic_id
        return IsrChange(topic_id, assigned.partition_index, assigned.leader_epoch, assigned.partition_epoch, others)

    def _answered(self, results: list[IsrResult]) -> None:
        """Whatever they say: who is still in an ISR according to the image asks again."""
        self._is_asking = False
