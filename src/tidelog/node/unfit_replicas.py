"""Replicas on this broker that cannot do what the controller counts on them for: it is told so.

    their log directory has failed, or is missing,   the broker leaves the ISR
    or their log cannot be opened
    records are missing from their log               the broker leaves the ISR, and copies them from whoever leads
    a start found their log damaged, and has cut     the broker says so when it registers: it stands back for members of
    off what followed                                the ISR to whom that has not happened, if need be until they come
    their log knows later leader epochs              the leader epoch is raised above them: the metadata store was
                                                     restored from an old copy, and followers would be kept out

Where this broker is the only member of an ISR it stays in it, for nobody else has everything. But it does not lead as
if nothing had happened: the partition has no leader until the directory is back, or an operator has decided that what
is left is to be served (an unclean election). A log from which records are missing says so on disk, until it was copied
again or that was decided.
"""

from __future__ import annotations

from tidelog.control.leadership import IsrChange, IsrResult
from tidelog.control.model import NO_LEADER
from tidelog.control.model import Partition as Assignment
from tidelog.log.errors import LogError, WriteRefused
from tidelog.log.log import Log
from tidelog.node.cluster_view import NO_EPOCH, ClusterView
from tidelog.node.data_plane import DataPlane
from tidelog.node.isr_changes import AlterPartition
from tidelog.timer.host import Host
from tidelog.wire.partitions import TopicPartition


class UnfitReplicas:
    def __init__(self, cluster: ClusterView, data: DataPlane, alter_partition: AlterPartition, host: Host) -> None:
        self._cluster = cluster
        self._data = data
        self._alter_partition = alter_partition
        self._host = host
        #: partitions whose log was found wanting; looked at again until it is not
        self._doubtful: set[TopicPartition] = set()
        self._is_asking = False

    def is_fit(self, key: TopicPartition, assigned: Assignment) -> bool:
        """Whether the log of a partition is fit for what the controller has decided; raises LogError."""
        log = self._data.logs.logs.get(key)
        if log is None or not self._cluster.is_shared:
            return True
        if self._known_epoch(key, log) <= assigned.leader_epoch:
            if not log.notes.incomplete:
                return True
            if assigned.leader == self._cluster.id and assigned.recovering:
                self._data.logs.mark_incomplete(log, False)
                return True
        self.doubt(key)
        return False

    def decided(self, log: Log, assigned: Assignment) -> None:
        """Forgets damage of which the controller knew when it said who leads."""
        if log.notes.damaged and assigned.leader != NO_LEADER and not self._cluster.is_of_before(assigned):
            try:
                self._data.logs.forget_damage(log)
            except WriteRefused:
                return  # a full disk is told of once, for all that it refuses
            except LogError as error:
                self._host.report(f"it could not be written down that {log.name} is no longer damaged", error)

    def doubt(self, key: TopicPartition) -> None:
        self._doubtful.add(key)
        self._host.workers.call_soon(self.tell)

    def _known_epoch(self, key: TopicPartition, log: Log) -> int:
        partition = self._data.replicas.partitions.get(key)
        return max(log.leader_epochs.latest, NO_EPOCH if partition is None else partition.leader_epoch)

    def tell(self) -> None:
        """Tells the controller what it does not know of yet. Whatever it answers: where the image still counts on a
        replica that is not fit, it is told again."""
        if self._is_asking or self._cluster.broker_epoch == NO_EPOCH:
            return
        changes = [self._of_offline(key) for key in sorted(self._data.logs.out_of_reach)]
        changes += [self._of_doubtful(key) for key in sorted(self._doubtful)]
        wanted = [change for change in changes if change is not None]
        if wanted:
            self._is_asking = True
            self._alter_partition(wanted, self._answered)

    def _answered(self, results: list[IsrResult]) -> None:
        self._is_asking = False

    def _of_offline(self, key: TopicPartition) -> IsrChange | None:
        assigned = self._cluster.image.partition(*key)
        return None if assigned is None else self._leaving(assigned, can_recover=False)

    def _of_doubtful(self, key: TopicPartition) -> IsrChange | None:
        assigned, log = self._cluster.image.partition(*key), self._data.logs.logs.get(key)
        if assigned is None or log is None or self._cluster.id not in assigned.replicas:
            self._doubtful.discard(key)
            return None
        known = self._known_epoch(key, log)
        if known > assigned.leader_epoch:
            return self._change(assigned, [(member, NO_EPOCH) for member in assigned.isr], assigned.recovering, known)
        if log.notes.incomplete and self._cluster.id in assigned.isr:
            return self._leaving(assigned, can_recover=True)
        # Nobody counts on it: whoever leads is copied.
        self._doubtful.discard(key)
        self._complete(log)
        return None

    def _complete(self, log: Log) -> None:
        try:
            self._data.logs.mark_incomplete(log, False)
        except LogError as error:
            self._host.report(f"it could not be written down that {log.name} is copied anew", error)

    def _leaving(self, assigned: Assignment, can_recover: bool) -> IsrChange | None:
        own = self._cluster.id
        if own not in assigned.isr:
            return None
        others = [(member, NO_EPOCH) for member in assigned.isr if member != own]
        if not others and assigned.leader != own:
            return None  # nobody leads, and that is known
        return self._change(assigned, others, can_recover and not others, assigned.leader_epoch)

    def _change(
        self, assigned: Assignment, isr: list[tuple[int, int]], recovering: bool, leader_epoch: int
    ) -> IsrChange:
        topic_id = self._cluster.image.topics[assigned.topic].topic_id
        return IsrChange(topic_id, assigned.partition_index, leader_epoch, assigned.partition_epoch, isr, recovering)
