"""IncrementalAlterConfigs, versions 0-1: set, delete, append to and subtract from single values of a resource."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.control.configs import ConfigOp, ConfigResult, IncrementalChange
from tidelog.wire import messages

if TYPE_CHECKING:
    from tidelog.api.request import Request


def handle(body: Any, request: Request) -> Any:
    wanted = [
        IncrementalChange(
            r.resource_type,
            r.resource_name,
            [ConfigOp(config.name, config.config_operation, config.value) for config in r.configs],
        )
        for r in body.resources
    ]

    def answer(results: list[ConfigResult]) -> None:
        response = messages.IncrementalAlterConfigsResponse
        request.reply(
            response(
                responses=[
                    response.AlterConfigsResourceResponse(
                        resource_type=result.resource_type,
                        resource_name=result.resource_name,
                        error_code=result.error.code,
                        error_message=result.error.message,
                    )
                    for result in results
                ]
            )
        )

    request.broker.decide(
        lambda controller: controller.incremental_alter_configs(wanted, validate_only=body.validate_only),
        request.guard(answer),
    )
