"""CreateTopics, versions 2-7. -1 partitions or replicas mean the broker's defaults; a created topic is usable when
this is answered. From version 5 the answer tells the topic's configuration, from 7 its id.

Unlike in Apache Kafka, names that differ in '.' and '_' only collide within one request as they do across requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tidelog.config.describe import describe_topic
from tidelog.control.topics import NewTopic, TopicCreation
from tidelog.wire import messages

if TYPE_CHECKING:
    from tidelog.api.request import Request

    Config = messages.CreateTopicsResponse.CreatableTopicConfigs


def handle(body: messages.CreateTopicsRequest, request: Request) -> None:
    wanted = [
        NewTopic(
            name=topic.name,
            num_partitions=topic.num_partitions,
            replication_factor=topic.replication_factor,
            assignments=[(a.partition_index, a.broker_ids) for a in topic.assignments],
            configs={config.name: config.value for config in topic.configs},
        )
        for topic in body.topics
    ]
    configs = {topic.name: topic.configs for topic in wanted}

    def answer(results: list[TopicCreation]) -> None:
        #: topics that are created together are mostly configured alike
        told: dict[tuple[tuple[str, str], ...], list[Config]] = {}
        answers = [_result(result, configs[result.name], request, told) for result in results]
        request.reply_with_many(messages.CreateTopicsResponse(topics=answers), len(answers))

    request.doors.topics.create(wanted, request.guard(answer), body.validate_only, request.is_wanted)


def _result(
    result: TopicCreation,
    overrides: Mapping[str, str | None],
    request: Request,
    told: dict[tuple[tuple[str, str], ...], list[Config]],
) -> messages.CreateTopicsResponse.CreatableTopicResult:
    response = messages.CreateTopicsResponse
    answer = response.CreatableTopicResult(
        name=result.name,
        topic_id=result.topic_id,
        error_code=result.error.code,
        error_message=result.error.message,
        num_partitions=result.num_partitions,
        replication_factor=result.replication_factor,
    )
    if not result.error.is_failure:
        # A null value is refused, so there is none here.
        key = tuple((name, value) for name, value in overrides.items() if value is not None)
        if key not in told:
            told[key] = [
                response.CreatableTopicConfigs(
                    name=config.name,
                    value=config.value,
                    read_only=config.read_only,
                    config_source=config.source,
                    is_sensitive=config.is_sensitive,
                )
                for config in describe_topic(dict(key), request.doors.config)
            ]
        answer.configs = told[key]
    return answer
