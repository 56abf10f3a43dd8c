"""CreatePartitions, versions 0-3: a topic grows to a number of partitions; it never shrinks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.control.parts import in_parts
from tidelog.control.topics import NewPartitions, TopicResult
from tidelog.wire import messages

if TYPE_CHECKING:
    from tidelog.api.request import Request
    from tidelog.control.errors import ApiError


def handle(body: messages.CreatePartitionsRequest, request: Request) -> None:
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
        answers = [
            response.CreatePartitionsTopicResult(name=result.name, error_code=error.code, error_message=error.message)
            for result, error in zip(results, map(why, results), strict=True)
        ]
        request.reply_with_many(response(results=answers), len(answers))

    def why(result: TopicResult) -> ApiError:
        """Partitions that are decided but could not be made here are made as soon as there is room."""
        if result.error.is_failure or body.validate_only:
            return result.error
        return request.doors.topics.why_refused(result.name) or result.error

    request.doors.cluster.decide_in_parts(
        in_parts(wanted, lambda topic: topic.name, lambda topic: 30 * topic.num_partitions),
        lambda controller, some: controller.create_partitions(some, validate_only=body.validate_only),
        request.guard(answer),
        request.is_wanted,
    )
