"""DeleteTopics, versions 1-6: by name, from version 6 by id as well."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.api.said import said
from tidelog.control.parts import in_parts
from tidelog.control.topics import TopicDeletion, TopicRef
from tidelog.wire import messages
from tidelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from tidelog.api.request import Request

#: before this version clients do not know TOPIC_DELETION_DISABLED
FIRST_VERSION_WITH_DISABLED: Final = 3


def handle(body: messages.DeleteTopicsRequest, request: Request) -> None:
    wanted = [TopicRef(topic.name, topic.topic_id) for topic in body.topics]
    wanted += [TopicRef(name) for name in body.topic_names]
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

    # A topic that is named by both its name and its id counts as named twice: only what is named in one way is parted.
    named_alike = len({ref.name is None for ref in wanted}) == 1
    parts = in_parts(wanted, lambda ref: ref) if named_alike else [wanted]
    request.doors.cluster.decide_in_parts(
        parts, lambda controller, some: controller.delete_topics(some), request.guard(answer), request.is_wanted
    )
