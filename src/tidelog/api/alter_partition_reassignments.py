"""AlterPartitionReassignments, versions 0-1: replicas move to other brokers, or (null) stay where they were."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.api.said import said
from tidelog.control.reassignment import ReassignmentResult, WantedReassignment
from tidelog.wire import messages

if TYPE_CHECKING:
    from tidelog.api.request import Request


def handle(body: messages.AlterPartitionReassignmentsRequest, request: Request) -> None:
    moves = [
        WantedReassignment(topic.name, p.partition_index, p.replicas) for topic in body.topics for p in topic.partitions
    ]
    may_change = body.allow_replication_factor_change

    def answer(results: list[ReassignmentResult]) -> None:
        response = messages.AlterPartitionReassignmentsResponse
        topics = {topic.name: response.ReassignableTopicResponse(name=topic.name) for topic in body.topics}
        for result in results:
            topics[result.topic].partitions.append(
                response.ReassignablePartitionResponse(
                    partition_index=result.partition, error_code=result.error.code, error_message=said(result.error)
                )
            )
        request.reply(response(allow_replication_factor_change=may_change, responses=list(topics.values())))

    request.doors.cluster.decide(
        lambda controller: controller.alter_partition_reassignments(moves, may_change),
        request.guard(answer),
        request.is_wanted,
    )
