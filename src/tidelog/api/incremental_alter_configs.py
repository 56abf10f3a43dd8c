"""IncrementalAlterConfigs, versions 0-1: set, delete, append to and subtract from single values of a resource."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.api.alter_configs import altered
from tidelog.control.configs import ConfigOp, IncrementalChange
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

    request.broker.decide(
        lambda controller: controller.incremental_alter_configs(wanted, validate_only=body.validate_only),
        altered(request, messages.IncrementalAlterConfigsResponse),
    )
