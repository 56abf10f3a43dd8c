"""AlterConfigs, versions 0-2: replaces all that was set for a resource; what is not named is the default again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tidelog.control.configs import ConfigResult, Replacement
from tidelog.wire import messages

if TYPE_CHECKING:
    from tidelog.api.request import Request


def handle(body: Any, request: Request) -> Any:
    wanted = [
        Replacement(r.resource_type, r.resource_name, [(config.name, config.value) for config in r.configs])
        for r in body.resources
    ]

    request.doors.cluster.decide(
        lambda controller: controller.alter_configs(wanted, validate_only=body.validate_only),
        altered(request, messages.AlterConfigsResponse),
    )


def altered(request: Request, response: Any) -> Callable[[list[ConfigResult]], None]:
    """Answers either of the two APIs, which differ in the name of their response only."""

    def answer(results: list[ConfigResult]) -> None:
        answers = [
            response.AlterConfigsResourceResponse(
                resource_type=result.resource_type,
                resource_name=result.resource_name,
                error_code=result.error.code,
                error_message=result.error.message,
            )
            for result in results
        ]
        request.reply_with_many(response(responses=answers), len(answers))

    return request.guard(answer)
