"""DeleteTopics, versions 1-6: by name, from version 6 by id as well."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.control.topics import TopicDeletion, TopicRef
from tidelog.wire import messages

if TYPE_CHECKING:
    from tidelog.api.request import Request


def handle(body: Any, request: Request) -> Any:
    if request.version >= 6:
        wanted = [TopicRef(topic.name, topic.topic_id) for topic in body.topics]
    else:
        wanted = [TopicRef(name) for name in body.topic_names]

    def answer(results: list[TopicDeletion]) -> None:
        response = messages.DeleteTopicsResponse
        request.reply(
            response(
                responses=[
                    response.DeletableTopicResult(
                        name=result.name,
                        topic_id=result.topic_id,
                        error_code=result.error.code,
                        error_message=result.error.message,
                    )
                    for result in results
                ]
            )
        )

    request.broker.decide(lambda controller: controller.delete_topics(wanted), request.guard(answer))
