"""Asks the coordinator of a transaction about the partitions that it writes to, wherever the coordinator is (KIP-890).

The leader of a partition asks before it appends the first batch of a transaction, and the coordinator of a group before
it stores offsets as part of one. No answer is no: the client hears an error that it may try again on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, TypeAlias

from tidelog.control.model import NO_LEADER
from tidelog.coordinator.peer_queues import PeerQueues
from tidelog.node.cluster_view import ClusterView
from tidelog.node.internal_topics import TRANSACTIONS_TOPIC
from tidelog.peers.requester import Requester
from tidelog.timer.host import Host
from tidelog.txn.adding import Addition, AdditionResults
from tidelog.txn.records import by_topic
from tidelog.wire import messages
from tidelog.wire.apis import ApiKey
from tidelog.wire.errors import ErrorCode
from tidelog.wire.partitions import TopicPartition

PURPOSE: Final = "verification"

Results: TypeAlias = Mapping[TopicPartition, ErrorCode]
Told: TypeAlias = Callable[[Results], None]


class Asked(NamedTuple):
    addition: Addition
    told: Told


class TransactionVerifier:
    """`partition_for` says which partition of the transactions topic an id belongs to; `here` asks this broker."""

    def __init__(
        self,
        cluster: ClusterView,
        requester: Requester | None,
        host: Host,
        partition_for: Callable[[str], int],
        here: Callable[[list[Addition], Callable[[AdditionResults], None]], None],
    ) -> None:
        self._cluster = cluster
        self._host = host
        self._partition_for = partition_for
        self._here = here
        self._elsewhere = VerificationQueues(cluster, requester, lambda: cluster.config.values.request_timeout_ms)

    def ask(self, addition: Addition, told: Told) -> None:
        """`told` gets one result for each partition.

        The producer may have begun its next transaction while the markers of the last one are still being written. What
        is to be added is then asked for again, for a short time: its client would have to wait far longer.
        """
        if addition.verify_only:
            self._ask(addition, told)
            return
        values = self._cluster.config.values
        most_ms = min(values.add_partitions_to_txn_retry_backoff_max_ms, values.request_timeout_ms)
        self._ask_until(self._host.clock.monotonic_ms() + most_ms, addition, told)

    def _ask_until(self, deadline_ms: int, addition: Addition, told: Told) -> None:
        def answered(results: Results) -> None:
            now_ms = self._host.clock.monotonic_ms()
            if now_ms >= deadline_ms or ErrorCode.CONCURRENT_TRANSACTIONS not in results.values():
                told(results)
            else:
                again_ms = now_ms + self._cluster.config.values.add_partitions_to_txn_retry_backoff_ms
                # Not by its own name: a closure that knows itself is left to the cyclic collector.
                self._host.timer.add(again_ms, lambda: self._ask_until(deadline_ms, addition, told))

        self._ask(addition, answered)

    def _ask(self, addition: Addition, told: Told) -> None:
        coordinator = self._cluster.leader_of(TRANSACTIONS_TOPIC, self._partition_for(addition.transactional_id))
        if coordinator is None or coordinator[0] == NO_LEADER:
            told(dict.fromkeys(addition.partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE))
        elif coordinator[0] == self._cluster.id:
            self._here([addition], lambda results: told(results[addition.transactional_id]))
        else:
            self._elsewhere.put(coordinator[0], Asked(addition, told))

    def close(self) -> None:
        self._elsewhere.close()


class VerificationQueues(PeerQueues[Asked, "messages.AddPartitionsToTxnResponse"]):
    api_key = ApiKey.ADD_PARTITIONS_TO_TXN
    purpose = PURPOSE

    def _take(self, waiting: list[Asked]) -> tuple[list[Asked], list[Asked]]:
        """A request names a transaction once."""
        batch: dict[str, Asked] = {}
        left = [each for each in waiting if batch.setdefault(each.addition.transactional_id, each) is not each]
        return list(batch.values()), left

    def _request(self, batch: list[Asked]) -> messages.AddPartitionsToTxnRequest:
        request = messages.AddPartitionsToTxnRequest
        return request(
            transactions=[
                request.AddPartitionsToTxnTransaction(
                    transactional_id=addition.transactional_id,
                    producer_id=addition.producer.producer_id,
                    producer_epoch=addition.producer.producer_epoch,
                    verify_only=addition.verify_only,
                    topics=[
                        request.AddPartitionsToTxnTopic(name=name, partitions=indexes)
                        for name, indexes in by_topic(addition.partitions).items()
                    ],
                )
                for addition, _ in batch
            ]
        )

    def _answered(self, batch: list[Asked], answer: messages.AddPartitionsToTxnResponse | None) -> None:
        if answer is None:
            missing = ErrorCode.NETWORK_EXCEPTION
        else:
            missing = ErrorCode.of(answer.error_code) if answer.error_code else ErrorCode.UNKNOWN_SERVER_ERROR
        codes = {
            (transaction.transactional_id, topic.name, result.partition_index): result.partition_error_code
            for transaction in ([] if answer is None else answer.results_by_transaction)
            for topic in transaction.topic_results
            for result in topic.results_by_partition
        }
        for addition, told in batch:
            told(
                {
                    at: ErrorCode.of(codes.get((addition.transactional_id, *at), int(missing)))
                    for at in addition.partitions
                }
            )
