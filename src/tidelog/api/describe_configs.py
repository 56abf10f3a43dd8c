"""DescribeConfigs, versions 1-4: every value of a resource with its source and synonyms.

Topics, brokers (an empty name: what was altered for all of them), their loggers, groups and client metrics. A broker's
own values are known to itself only, so the request goes to that broker.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING, Final

from tidelog.api import broker_loggers
from tidelog.api.parts import distinct_resources
from tidelog.config import describe
from tidelog.control.model import ConfigResource, ResourceType
from tidelog.control.topic_names import why_invalid
from tidelog.wire import messages
from tidelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from tidelog.api.request import Request

    Entry = messages.DescribeConfigsResponse.DescribeConfigsResourceResult


def handle(body: messages.DescribeConfigsRequest, request: Request) -> messages.DescribeConfigsResponse:
    response = messages.DescribeConfigsResponse
    #: resources that are described together are mostly configured alike
    told = request.shared()
    results = []
    for resource in distinct_resources(body.resources):
        result = response.DescribeConfigsResult(
            resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        try:
            result.configs = _configs(resource, body, request, told)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
        results.append(result)
    return response(results=results)


def _configs(
    resource: messages.DescribeConfigsRequest.DescribeConfigsResource,
    body: messages.DescribeConfigsRequest,
    request: Request,
    told: dict[Hashable, list[Entry]],
) -> list[Entry]:
    kind, name, keys = resource.resource_type, resource.resource_name, resource.configuration_keys
    _check(kind, name, request)
    if kind not in _OVERRIDING:
        return [_entry(config, body) for config in _describe(kind, name, keys, request)]
    overrides = request.doors.cluster.image.config(ConfigResource(ResourceType(kind), name))
    alike = kind, tuple(overrides.items()), tuple(keys or ())
    if alike not in told:
        described = _OVERRIDING[kind](overrides, request.doors.config, keys)
        told[alike] = [_entry(config, body) for config in described]
    return told[alike]


#: resources of which nothing is told but what was set for them, and what holds for all where nothing was
_OVERRIDING: Final[dict[int, Callable[..., list[describe.DescribedConfig]]]] = {
    ResourceType.TOPIC: describe.describe_topic,
    ResourceType.GROUP: describe.describe_group,
    ResourceType.CLIENT_METRICS: lambda overrides, _, keys: describe.describe_client_metrics(overrides, keys),
}


def _check(kind: int, name: str, request: Request) -> None:
    if kind == ResourceType.TOPIC:
        why = why_invalid(name)
        if why is not None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, why)
        if name not in request.doors.cluster.image.topics:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    elif kind == ResourceType.GROUP and not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a group has a name")
    elif kind == ResourceType.CLIENT_METRICS and not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a client metrics subscription has a name")


def _describe(kind: int, name: str, keys: Iterable[str] | None, request: Request) -> list[describe.DescribedConfig]:
    doors = request.doors
    if kind == ResourceType.BROKER:
        if not name:
            return describe.describe_all_brokers(doors.config, keys)
        if name != str(doors.cluster.id):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"this is broker {doors.cluster.id}: ask broker {name} itself, or name none for what is set for all",
            )
        return describe.describe_broker(doors.config, keys)
    if kind == broker_loggers.BROKER_LOGGER:
        return broker_loggers.describe(name, keys, request)
    raise KafkaError(ErrorCode.INVALID_REQUEST, f"resources of type {kind} have no configuration here")


def _entry(config: describe.DescribedConfig, body: messages.DescribeConfigsRequest) -> Entry:
    response = messages.DescribeConfigsResponse
    entry = response.DescribeConfigsResourceResult(
        name=config.name,
        value=config.value,
        read_only=config.read_only,
        config_source=config.source,
        is_sensitive=config.is_sensitive,
        config_type=config.config_type,
    )
    if body.include_synonyms:
        entry.synonyms = [
            response.DescribeConfigsSynonym(name=name, value=value, source=source)
            for name, value, source in config.synonyms
        ]
    entry.documentation = config.documentation if body.include_documentation else None
    return entry
