"""Replicas of which their brokers say that they cannot lead, though they are in the ISR and their brokers are there.

Remembered by the controller alone, and only for the registration under which it was said. Who is elected next believes
in them again, and is told again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tidelog.control.model import NO_LEADER, Broker, Partition


class Inability(NamedTuple):
    broker_epoch: int
    #: there is a log, from which records are missing; else there is none, as long as its directory is not back
    can_recover: bool


class UnableReplicas:
    def __init__(self, brokers: Mapping[int, Broker]) -> None:
        self._brokers = brokers
        self._said: dict[tuple[str, int], dict[int, Inability]] = {}

    def note(self, partition: Partition, broker_id: int, can_recover: bool) -> None:
        said = self._said.setdefault((partition.topic, partition.partition_index), {})
        said[broker_id] = Inability(self._brokers[broker_id].epoch, can_recover)

    def offline(self, partition: Partition) -> frozenset[int]:
        """Replicas whose log cannot be reached."""
        return self._of(partition, can_recover=False) if self._said else frozenset()

    def incomplete(self, partition: Partition) -> frozenset[int]:
        """Replicas from whose log records are missing."""
        return self._of(partition, can_recover=True) if self._said else frozenset()

    def _of(self, partition: Partition, can_recover: bool) -> frozenset[int]:
        said = self._said.get((partition.topic, partition.partition_index), {})
        return frozenset(
            broker_id
            for broker_id, inability in said.items()
            if inability.can_recover is can_recover
            and broker_id in self._brokers
            and self._brokers[broker_id].epoch == inability.broker_epoch
        )

    def changed(self, partition: Partition) -> None:
        """Who is in the ISR while somebody leads has caught up, or was told to lead nevertheless."""
        said = self._said.get((partition.topic, partition.partition_index))
        if said is not None and partition.leader != NO_LEADER:
            for broker_id in partition.isr:
                said.pop(broker_id, None)

    def forget_topic(self, topic: str) -> None:
        for key in [key for key in self._said if key[0] == topic]:
            del self._said[key]
