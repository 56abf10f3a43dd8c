"""CreatePartitions, versions 0-3: a topic grows to a number of partitions; it never shrinks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.control.topics import NewPartitions, TopicResult
from tidelog.wire import messages

if TYPE_CHECKING:
    from tidelog.api.request import Request


def handle(body: Any, request: Request) -> Any:
    wanted = [
        NewPartitions(
            name=topic.name,
            num_partitions=topic.count,
            assignments=None if topic.assignments is None else [a.broker_ids for a in topic.assignments],
        )
        for topic in body.topics
    ]

    def answer(results: list[TopicResult]) -> None:
        response = messages.CreatePartitionsResponse
        request.reply(
            response(
                results=[
                    response.CreatePartitionsTopicResult(
                        name=result.name, error_code=result.error.code, error_message=result.error.message
                    )
                    for result in results
                ]
            )
        )

    request.broker.decide(
        lambda controller: controller.create_partitions(wanted, validate_only=body.validate_only), request.guard(answer)
    )
