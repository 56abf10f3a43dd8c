"""DeleteTopics, versions 1-6: by name, from version 6 by id as well."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.api.said import said
from tidelog.control.topics import TopicDeletion, TopicRef
from tidelog.wire import messages
from tidelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from tidelog.api.request import Request

#: before this version clients do not know TOPIC_DELETION_DISABLED
FIRST_VERSION_WITH_DISABLED: Final = 3


def handle(body: messages.DeleteTopicsRequest, request: Request) -> None:
    if request.version >= 6:
        wanted = [TopicRef(topic.name, topic.topic_id) for topic in body.topics]
    else:
        wanted = [TopicRef(name) for name in body.topic_names]
    if request.version < FIRST_VERSION_WITH_DISABLED and not request.doors.config.values.delete_topic_enable:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "this broker does not delete topics (delete.topic.enable)")

    def answer(results: list[TopicDeletion]) -> None:
        response = messages.DeleteTopicsResponse
        answers = [
            response.DeletableTopicResult(
                name=result.name,
                topic_id=result.topic_id,
                error_code=result.error.code,
                error_message=said(result.error),
            )
            for result in results
        ]
        request.reply_with_many(response(responses=answers), len(answers))

    request.doors.cluster.decide(lambda controller: controller.delete_topics(wanted), request.guard(answer))
