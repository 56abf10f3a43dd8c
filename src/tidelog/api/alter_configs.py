"""AlterConfigs, versions 0-2: replaces all that was set for a resource; what is not named is the default again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from tidelog.control.configs import ConfigResult, Replacement
from tidelog.control.parts import in_parts
from tidelog.wire import messages

if TYPE_CHECKING:
    from tidelog.api.request import Request
    from tidelog.wire.classes import Message

Result = TypeVar("Result")


def handle(body: messages.AlterConfigsRequest, request: Request) -> None:
    wanted = [
        Replacement(r.resource_type, r.resource_name, [(config.name, config.value) for config in r.configs])
        for r in body.resources
    ]
    response = messages.AlterConfigsResponse
    request.doors.cluster.decide_in_parts(
        in_parts(
            wanted,
            lambda replacement: (replacement.resource_type, replacement.resource_name),
            lambda replacement: sum(len(name) + len(value or "") for name, value in replacement.values),
        ),
        lambda controller, some: controller.alter_configs(some, validate_only=body.validate_only),
        altered(request, response.AlterConfigsResourceResponse, lambda answers: response(responses=answers)),
        request.is_wanted,
    )


def altered(
    request: Request, result_of: Callable[..., Result], response_of: Callable[[list[Result]], Message]
) -> Callable[[list[ConfigResult]], None]:
    """Answers either of the two APIs, which differ in the name of their response only."""

    def answer(results: list[ConfigResult]) -> None:
        answers = [
            result_of(
                resource_type=result.resource_type,
                resource_name=result.resource_name,
                error_code=result.error.code,
                error_message=result.error.message,
            )
            for result in results
        ]
        request.reply_with_many(response_of(answers), len(answers))

    return request.guard(answer)
