"""Answers to requests whose records could not be stored.

The message that was about to leave already has the shape of its API and names every partition that the error must name.
"""

from __future__ import annotations

from tidelog.deciding.storage_errors import translated
from tidelog.txn.transaction import NO_PRODUCER_EPOCH
from tidelog.wire import messages
from tidelog.wire.classes import Message
from tidelog.wire.errors import ErrorCode


def failed(message: Message, error: ErrorCode) -> Message:
    """The error in the shape of `message`."""
    code = translated(error)
    if isinstance(message, messages.AddPartitionsToTxnResponse):
        return _each_partition(message, code)
    if isinstance(message, messages.InitProducerIdResponse):
        return init_failure(code)
    if isinstance(message, messages.AddOffsetsToTxnResponse | messages.EndTxnResponse):
        return type(message)(error_code=int(code))
    raise TypeError(f"{type(message).__name__} answers no request that is stored")


def init_failure(code: ErrorCode) -> messages.InitProducerIdResponse:
    return messages.InitProducerIdResponse(error_code=int(code), producer_epoch=NO_PRODUCER_EPOCH)


def _each_partition(
    message: messages.AddPartitionsToTxnResponse, code: ErrorCode
) -> messages.AddPartitionsToTxnResponse:
    """A partition that was refused keeps its own error: it had no part in the records."""
    topics = [*message.results_by_topic_v3_and_below]
    for result in message.results_by_transaction:
        topics.extend(result.topic_results)
    for topic in topics:
        for partition in topic.results_by_partition:
            partition.partition_error_code = partition.partition_error_code or int(code)
    return message
