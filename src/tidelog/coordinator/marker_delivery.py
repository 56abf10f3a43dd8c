"""Brings transaction markers to the leaders of their partitions, on this broker and on others.

Each marker is tried once, with the leader that is known now, and whoever sent it hears what became of it: the
coordinator sends again what failed, and finds the next leader then. A partition that was deleted needs no marker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from tidelog.control.model import NO_LEADER
from tidelog.coordinator.markers import Markers
from tidelog.coordinator.peer_queues import PeerQueues
from tidelog.node.cluster_view import ClusterView
from tidelog.peers.requester import Requester
from tidelog.txn.records import by_topic
from tidelog.txn.turn import TxnMarkers
from tidelog.wire import messages
from tidelog.wire.apis import ApiKey
from tidelog.wire.errors import ErrorCode
from tidelog.wire.partitions import TopicPartition

PURPOSE: Final = "markers"
#: so long a leader has to answer beyond the time that it waits for its followers itself
MARGIN_MS: Final = 1_000

Results: TypeAlias = Mapping[TopicPartition, ErrorCode]
Told: TypeAlias = Callable[[Results], None]


class Parcel(NamedTuple):
    """The markers of one transaction for partitions that one broker leads."""

    markers: TxnMarkers
    partitions: list[TopicPartition]
    told: Told


class MarkerDelivery:
    def __init__(self, cluster: ClusterView, here: Markers, requester: Requester | None) -> None:
        self._cluster = cluster
        self._here = here
        values = cluster.config.values
        self._elsewhere = MarkerQueues(cluster, requester, lambda: values.request_timeout_ms + MARGIN_MS)

    def deliver(self, markers: TxnMarkers, told: Told) -> None:
        """`told` gets one result for each partition, in as many calls as there are leaders."""
        by_leader: dict[int, list[TopicPartition]] = {}
        undeliverable: dict[TopicPartition, ErrorCode] = {}
        for at in markers.partitions:
            leader = self._cluster.leader_of(*at)
            if leader is None:
                undeliverable[at] = ErrorCode.NONE
            elif leader[0] == NO_LEADER:
                undeliverable[at] = ErrorCode.LEADER_NOT_AVAILABLE
            else:
                by_leader.setdefault(leader[0], []).append(at)
        for leader_id, partitions in by_leader.items():
            if leader_id == self._cluster.id:
                self._write(markers, partitions, told)
            else:
                self._elsewhere.put(leader_id, Parcel(markers, partitions, told))
        if undeliverable:
            told(undeliverable)

    def _write(self, markers: TxnMarkers, partitions: list[TopicPartition], told: Told) -> None:
        results: dict[TopicPartition, ErrorCode] = {}

        def written(at: TopicPartition, code: ErrorCode) -> None:
            results[at] = code
            if len(results) == len(partitions):
                told(results)

        for at in partitions:
            self._here.write(at.topic, at.partition, markers, partial(written, at))

    def close(self) -> None:
        self._elsewhere.close()


class MarkerQueues(PeerQueues[Parcel, "messages.WriteTxnMarkersResponse"]):
    api_key = ApiKey.WRITE_TXN_MARKERS
    purpose = PURPOSE

    def _take(self, waiting: list[Parcel]) -> tuple[list[Parcel], list[Parcel]]:
        return waiting, []

    def _request(self, batch: list[Parcel]) -> messages.WriteTxnMarkersRequest:
        request = messages.WriteTxnMarkersRequest
        return request(
            markers=[
                request.WritableTxnMarker(
                    producer_id=markers.producer_id,
                    producer_epoch=markers.producer_epoch,
                    transaction_result=markers.commit,
                    topics=[
                        request.WritableTxnMarkerTopic(name=name, partition_indexes=indexes)
                        for name, indexes in by_topic(partitions).items()
                    ],
                    coordinator_epoch=markers.coordinator_epoch,
                    transaction_version=markers.transaction_version,
                )
                for markers, partitions, _ in batch
            ]
        )

    def _answered(self, batch: list[Parcel], answer: messages.WriteTxnMarkersResponse | None) -> None:
        codes = {} if answer is None else _codes(answer.markers)
        missing = ErrorCode.NETWORK_EXCEPTION if answer is None else ErrorCode.UNKNOWN_SERVER_ERROR
        for markers, partitions, told in batch:
            told({at: codes.get((markers.producer_id, at), missing) for at in partitions})


def _codes(
    results: Iterable[messages.WriteTxnMarkersResponse.WritableTxnMarkerResult],
) -> dict[tuple[int, TopicPartition], ErrorCode]:
    """By producer id and partition: a producer has one transaction at a time, and so at most one marker on its way."""
    return {
        (marker.producer_id, TopicPartition(topic.name, result.partition_index)): ErrorCode.of(result.error_code)
        for marker in results
        for topic in marker.topics
        for result in topic.partitions
    }
