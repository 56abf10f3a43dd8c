"""IncrementalAlterConfigs, versions 0-1: set, delete, append to and subtract from single values of a resource."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.api import broker_loggers
from tidelog.api.alter_configs import altered
from tidelog.api.broker_loggers import BROKER_LOGGER
from tidelog.api.relaying import must_relay, relay
from tidelog.control.configs import ConfigOp, ConfigResult, IncrementalChange
from tidelog.control.errors import ApiError
from tidelog.control.parts import in_parts
from tidelog.wire import messages
from tidelog.wire.errors import ErrorCode

if TYPE_CHECKING:
    from tidelog.api.request import Request


def handle(body: messages.IncrementalAlterConfigsRequest, request: Request) -> None:
    # A broker's loggers are its own affair, and nobody else's after its end.
    own = [r for r in body.resources if r.resource_type == BROKER_LOGGER]
    done = [broker_loggers.alter(resource, request, body.validate_only) for resource in own]
    response = messages.IncrementalAlterConfigsResponse
    answer = altered(request, response.AlterConfigsResourceResponse, lambda answers: response(responses=answers))
    wanted = [
        IncrementalChange(
            r.resource_type,
            r.resource_name,
            [ConfigOp(config.name, config.config_operation, config.value) for config in r.configs],
        )
        for r in body.resources
        if r.resource_type != BROKER_LOGGER
    ]
    if done and not wanted:
        answer(done)
        return
    if must_relay(request):
        body.resources = [r for r in body.resources if r.resource_type != BROKER_LOGGER]
        relay(
            body,
            request,
            handle,
            lambda told: answer([*map(_result, told.responses), *done]),
        )
        return
    request.doors.cluster.decide_in_parts(
        in_parts(
            wanted,
            lambda change: (change.resource_type, change.resource_name),
            lambda change: sum(len(op.name) + len(op.value or "") for op in change.ops),
        ),
        lambda controller, some: controller.incremental_alter_configs(some, validate_only=body.validate_only),
        lambda results: answer([*results, *done]),
        request.is_wanted,
    )


def _result(told: messages.IncrementalAlterConfigsResponse.AlterConfigsResourceResponse) -> ConfigResult:
    error = ApiError(ErrorCode.of(told.error_code), told.error_message)
    return ConfigResult(told.resource_type, told.resource_name, error)
