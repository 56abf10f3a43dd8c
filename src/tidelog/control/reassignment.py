"""Replicas move between brokers, on demand; see `partitions` for the steps that each move goes through."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tidelog.control.draft import REPLICA_BYTES, Draft, topic_bytes
from tidelog.control.errors import NO_ERROR, ApiError, Rejected
from tidelog.control.image import Image
from tidelog.control.leadership import Leadership
from tidelog.control.model import NO_STATE, Partition
from tidelog.control.partition_changes import Election, change_partition, revert_reassignment, start_reassignment
from tidelog.control.topics import Topics
from tidelog.wire.errors import ErrorCode


class WantedReassignment(NamedTuple):
    """`replicas` None: cancel the move that is under way."""

    topic: str
    partition: int
    replicas: Sequence[int] | None


class ReassignmentResult(NamedTuple):
    topic: str
    partition: int
    error: ApiError = NO_ERROR


class Reassignment:
    def __init__(self, image: Image, topics: Topics, leadership: Leadership) -> None:
        self._image = image
        self._topics = topics
        self._leadership = leadership

    def alter(
        self, moves: Sequence[WantedReassignment], allow_replication_factor_change: bool, draft: Draft
    ) -> list[ReassignmentResult]:
        results = []
        sizes: dict[str, int] = {}
        for move in moves:
            try:
                partition = self._find(move)
                if move.replicas is None:
                    after = self._cancelled(partition)
                else:
                    after = self._started(partition, tuple(move.replicas), allow_replication_factor_change)
                if after is not None:
                    self._check_size(partition, after, sizes)
                    draft.change(after)
                results.append(ReassignmentResult(move.topic, move.partition))
            except Rejected as rejected:
                results.append(ReassignmentResult(move.topic, move.partition, rejected.error))
        return results

    def _check_size(self, before: Partition, after: Partition, sizes: dict[str, int]) -> None:
        """A topic's node names what comes and what goes as well; `sizes` are those of the topics so far."""
        topic = before.topic
        size = sizes.get(topic) or topic_bytes(topic, self._image.topics[topic].partitions)
        more, less = (sum(map(len, (p.replicas, p.adding, p.removing))) for p in (after, before))
        size += REPLICA_BYTES * (more - less)
        self._topics.check_node(topic, size)
        sizes[topic] = size

    def list(self, partitions: Iterable[tuple[str, int]] | None) -> list[Partition]:
        """Those under way, of these partitions or (None) of all."""
        if partitions is None:
            found: Iterable[Partition | None] = (p for t in self._image.topics.values() for p in t.partitions)
        else:
            found = (self._image.partition(*key) for key in partitions)
        return [p for p in found if p is not None and p.is_reassigning]

    def _find(self, move: WantedReassignment) -> Partition:
        if move.topic not in self._image.topics:
            raise Rejected(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {move.topic}.")
        partition = self._image.partition(move.topic, move.partition)
        if partition is None or partition.partition_epoch == NO_STATE:
            raise Rejected(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {move.topic}:{move.partition}."
            )
        return partition

    def _started(self, partition: Partition, target: tuple[int, ...], factor_may_change: bool) -> Partition | None:
        self._topics.check_assignment(target, None)
        factor = partition.target_factor
        if not factor_may_change and len(target) != factor:
            raise Rejected(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"The replication factor is changed from {factor} to {len(target)}",
            )
        replicas, adding, removing = start_reassignment(partition, target)
        isr = tuple(r for r in partition.isr if r in replicas)
        if not isr:
            raise Rejected(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Unable to change the assignment of {partition.topic}:{partition.partition_index}: every replica in "
                "sync was being added by the move that this one replaces.",
            )
        may_lead = self._leadership.may_be_elected(partition)
        return change_partition(partition, may_lead, isr=isr, replicas=replicas, adding=adding, removing=removing)

    def _cancelled(self, partition: Partition) -> Partition | None:
        if not partition.is_reassigning:
            raise Rejected(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
        replicas, isr, unclean = revert_reassignment(partition)
        unclean_allowed = self._leadership.unclean_allowed(partition.topic)
        if unclean and not unclean_allowed:
            raise Rejected(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Unable to revert partition assignment for {partition.topic}:{partition.partition_index} because it "
                "would require an unclean leader election.",
            )
        election = Election.UNCLEAN if unclean_allowed else Election.ONLINE
        may_lead = self._leadership.may_be_elected(partition)
        return change_partition(partition, may_lead, election, isr=isr, replicas=replicas, adding=(), removing=())
