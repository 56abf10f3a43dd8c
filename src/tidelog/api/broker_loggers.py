"""BROKER_LOGGER resources: how much a broker says, asked and altered while it runs, and forgotten when it ends.

There is one logger, `root`. Its levels are those that Apache Kafka's tools know; the two that the journal does not have
say as much as their neighbours.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from tidelog.config.describe import DescribedConfig, describe_logger
from tidelog.control.configs import ConfigResult, OpType
from tidelog.control.errors import ApiError
from tidelog.journal import KAFKA_LEVELS
from tidelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from tidelog.api.request import Request
    from tidelog.wire import messages

BROKER_LOGGER: Final = 8
ROOT: Final = "root"


def describe(name: str, keys: Iterable[str] | None, request: Request) -> list[DescribedConfig]:
    _check_name(name, request)
    wanted = ROOT in keys if keys else True
    return [describe_logger(ROOT, request.doors.log_level.level)] if wanted else []


def alter(
    resource: messages.IncrementalAlterConfigsRequest.AlterConfigsResource, request: Request, validate_only: bool
) -> ConfigResult:
    """One resource of IncrementalAlterConfigs."""
    key = (resource.resource_type, resource.resource_name)
    try:
        _check_name(resource.resource_name, request)
        levels = [_level(op) for op in resource.configs]
    except KafkaError as error:
        return ConfigResult(*key, ApiError(error.code, error.message))
    if not validate_only:
        for level in levels:
            request.doors.log_level.set(level)
    return ConfigResult(*key)


def _check_name(name: str, request: Request) -> None:
    if name != str(request.doors.cluster.id):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"this is broker {request.doors.cluster.id}, and {name!r} is not: ask that one itself",
        )


def _level(op: messages.IncrementalAlterConfigsRequest.AlterableConfig) -> str:
    if op.config_operation not in (OpType.SET, OpType.DELETE):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the level of a logger can be set, and nothing else")
    if op.name != ROOT:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"there is no logger {op.name}: the only one is {ROOT}")
    if op.config_operation == OpType.DELETE:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"the level of {ROOT} can be set, but not removed")
    if op.value is None or op.value not in KAFKA_LEVELS:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{op.value} is not a level: take one of {', '.join(KAFKA_LEVELS)}")
    return op.value
