"""InitProducerId, versions 0-5: an id for an idempotent producer; for a transactional one, its id and next epoch.

A producer without a transactional id gets a fresh id with epoch 0, whatever it had before. One with a transactional id
fences every earlier producer that had the same; what that left open is aborted first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.api.transacting import decide

if TYPE_CHECKING:
    from tidelog.api.request import Request
    from tidelog.wire import messages


def handle(body: messages.InitProducerIdRequest, request: Request) -> None:
    request.doors.producer_ids.when_ready(
        lambda: decide(request.doors.transactions.room.init_producer_id, body, request)
    )
