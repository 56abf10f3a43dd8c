"""AlterPartition, versions 2-3: a leader changes the ISR of its partitions; from version 3 with the brokers' epochs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.control.leadership import IsrChange, IsrResult
from tidelog.node.controller_door import FIRST_VERSION_WITH_EPOCHS, RECOVERING
from tidelog.wire import messages
from tidelog.wire.errors import ErrorCode

if TYPE_CHECKING:
    from tidelog.api.request import Request

UNKNOWN_EPOCH: Final = -1
#: what is wrong with the sender, not with one of its partitions
OF_ALL: Final = frozenset((ErrorCode.NOT_CONTROLLER, ErrorCode.STALE_BROKER_EPOCH))


def handle(body: messages.AlterPartitionRequest, request: Request) -> None:
    has_epochs = request.version >= FIRST_VERSION_WITH_EPOCHS
    changes = [
        IsrChange(
            topic.topic_id,
            each.partition_index,
            each.leader_epoch,
            each.partition_epoch,
            [(state.broker_id, state.broker_epoch) for state in each.new_isr_with_epochs]
            if has_epochs
            else [(broker, UNKNOWN_EPOCH) for broker in each.new_isr],
            each.leader_recovery_state == RECOVERING,
        )
        for topic in body.topics
        for each in topic.partitions
    ]

    def answer(results: list[IsrResult]) -> None:
        response = messages.AlterPartitionResponse
        codes = {result.error.code for result in results}
        if len(codes) == 1 and codes <= OF_ALL:
            request.reply(response(error_code=codes.pop()))
            return
        topics: dict[bytes, messages.AlterPartitionResponse.TopicData] = {}
        for result in results:
            topic = topics.setdefault(result.topic_id, response.TopicData(topic_id=result.topic_id))
            topic.partitions.append(_told(result))
        request.reply(response(topics=list(topics.values())))

    request.doors.cluster.decide_at_once(
        lambda controller: controller.alter_partition(body.broker_id, body.broker_epoch, changes),
        request.guard(answer),
    )


def _told(result: IsrResult) -> messages.AlterPartitionResponse.PartitionData:
    told = messages.AlterPartitionResponse.PartitionData(partition_index=result.partition, error_code=result.error.code)
    if result.state is not None:
        told.leader_id = result.state.leader
        told.leader_epoch = result.state.leader_epoch
        told.isr = list(result.state.isr)
        told.leader_recovery_state = RECOVERING if result.state.recovering else 0
        told.partition_epoch = result.state.partition_epoch
    return told
