"""ElectLeaders, versions 0-2: preferred leaders back, or (from version 1) an unclean election. Null means all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.control.leadership import ElectionResult
from tidelog.wire import messages

if TYPE_CHECKING:
    from tidelog.api.request import Request


def handle(body: Any, request: Request) -> Any:
    wanted = None
    if body.topic_partitions is not None:
        wanted = [(topic.topic, index) for topic in body.topic_partitions for index in topic.partitions]

    def answer(results: list[ElectionResult]) -> None:
        response = messages.ElectLeadersResponse
        topics: dict[str, Any] = {}
        for result in results:
            topic = topics.setdefault(result.topic, response.ReplicaElectionResult(topic=result.topic))
            topic.partition_result.append(
                response.PartitionResult(
                    partition_id=result.partition, error_code=result.error.code, error_message=result.error.message
                )
            )
        request.reply(response(replica_election_results=list(topics.values())))

    request.broker.decide(
        lambda controller: controller.elect_leaders(body.election_type, wanted), request.guard(answer)
    )
