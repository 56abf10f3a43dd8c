"""Replicas whose log directory has failed, or is missing: the broker goes on with its other directories without them.

They are taken out of service, so that clients and coordinators look elsewhere. The controller is told
(`unfit_replicas`): others lead what this broker led, and nobody waits for what it followed.
"""

from __future__ import annotations

from collections.abc import Callable

from tidelog.node.data_plane import DataPlane
from tidelog.node.unfit_replicas import UnfitReplicas
from tidelog.timer.host import Host
from tidelog.wire.partitions import TopicPartition


class OfflineReplicas:
    """`take_offline` takes a replica out of service whose log is lost."""

    def __init__(
        self,
        data: DataPlane,
        take_offline: Callable[[TopicPartition], None],
        unfit: UnfitReplicas,
        host: Host,
    ) -> None:
        self._data = data
        self._take_offline = take_offline
        self._unfit = unfit
        self._host = host

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
        self._unfit.tell()
        return None
