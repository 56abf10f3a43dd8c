"""ListPartitionReassignments, version 0: the moves of replicas under way. Null means those of all topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.wire import messages

if TYPE_CHECKING:
    from tidelog.api.request import Request


def handle(
    body: messages.ListPartitionReassignmentsRequest, request: Request
) -> messages.ListPartitionReassignmentsResponse:
    wanted = None
    if body.topics is not None:
        wanted = [(topic.name, index) for topic in body.topics for index in topic.partition_indexes]
    response = messages.ListPartitionReassignmentsResponse
    topics: dict[str, messages.ListPartitionReassignmentsResponse.OngoingTopicReassignment] = {}
    for partition in request.doors.cluster.controller.list_partition_reassignments(wanted):
        topic = topics.setdefault(partition.topic, response.OngoingTopicReassignment(name=partition.topic))
        topic.partitions.append(
            response.OngoingPartitionReassignment(
                partition_index=partition.partition_index,
                replicas=list(partition.replicas),
                adding_replicas=list(partition.adding),
                removing_replicas=list(partition.removing),
            )
        )
    return response(topics=list(topics.values()))
