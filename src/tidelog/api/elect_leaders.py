"""ElectLeaders, versions 0-2: preferred leaders back, or (from version 1) an unclean election. Null means all.

Every topic that was asked about is named in the answer. Where all are meant these are all topics, of which only the
partitions are listed that needed an election.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.api.said import said
from tidelog.control.leadership import ElectionResult, ElectionType
from tidelog.wire import messages
from tidelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from tidelog.api.request import Request


def handle(body: messages.ElectLeadersRequest, request: Request) -> None:
    if body.election_type not in list(ElectionType):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"there is no election type {body.election_type}")
    named = body.topic_partitions
    wanted = None if named is None else [(topic.topic, index) for topic in named for index in topic.partitions]

    def answer(results: list[ElectionResult]) -> None:
        response = messages.ElectLeadersResponse
        asked = list(request.doors.cluster.image.topics) if named is None else [topic.topic for topic in named]
        topics = {name: response.ReplicaElectionResult(topic=name) for name in asked}
        for result in results:
            # One that was asked for with all others may be deleted by now.
            told = topics.setdefault(result.topic, response.ReplicaElectionResult(topic=result.topic))
            told.partition_result.append(
                response.PartitionResult(
                    partition_id=result.partition, error_code=result.error.code, error_message=said(result.error)
                )
            )
        request.reply(response(replica_election_results=list(topics.values())))

    request.doors.cluster.decide(
        lambda controller: controller.elect_leaders(body.election_type, wanted),
        request.guard(answer),
        request.is_wanted,
    )
