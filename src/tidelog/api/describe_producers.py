"""DescribeProducers, version 0: what a partition's leader knows of the producers that wrote to it.

`current_txn_start_offset` is -1 where no transaction is open; `last_sequence` where the producer wrote only markers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.control.topic_names import why_invalid
from tidelog.wire import messages
from tidelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from tidelog.api.request import Request


def handle(body: messages.DescribeProducersRequest, request: Request) -> messages.DescribeProducersResponse:
    response = messages.DescribeProducersResponse
    topics = []
    for topic in body.topics:
        invalid = why_invalid(topic.name)
        partitions = []
        for index in topic.partition_indexes:
            answer = response.PartitionResponse(partition_index=index)
            try:
                if invalid is not None:
                    raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, invalid)
                answer.active_producers = _producers(topic.name, index, request)
            except KafkaError as error:
                answer.error_code, answer.error_message = error.code, error.message
            partitions.append(answer)
        topics.append(response.TopicResponse(name=topic.name, partitions=partitions))
    return response(topics=topics)


def _producers(topic: str, index: int, request: Request) -> list[messages.DescribeProducersResponse.ProducerState]:
    partition = request.doors.data.partition(topic, index)
    partition.check_leader()
    return [
        messages.DescribeProducersResponse.ProducerState(
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            last_sequence=producer.last_sequence,
            last_timestamp=producer.last_timestamp,
            coordinator_epoch=producer.coordinator_epoch,
            current_txn_start_offset=max(-1, producer.txn_first_offset),
        )
        for producer in partition.log.producers
    ]
