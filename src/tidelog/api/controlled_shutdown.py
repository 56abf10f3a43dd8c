"""ControlledShutdown, versions 0-3: a broker is about to stop, and this one, the controller, moves its leaders away.

The partitions that are answered are those that it still leads, as no other replica is in sync.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.control.controller import ShutdownReply
from tidelog.wire import messages

if TYPE_CHECKING:
    from tidelog.api.request import Request


def handle(body: messages.ControlledShutdownRequest, request: Request) -> None:
    def answer(reply: ShutdownReply) -> None:
        response = messages.ControlledShutdownResponse
        remaining = [
            response.RemainingPartition(topic_name=topic, partition_index=index) for topic, index in reply.remaining
        ]
        request.reply(response(error_code=reply.error.code, remaining_partitions=remaining))

    request.doors.cluster.decide(
        lambda controller: controller.controlled_shutdown(body.broker_id, body.broker_epoch), request.guard(answer)
    )
