"""Outcomes of requests whose records could not be stored.

The outcome that was about to be told has the shape that the request's answer needs, and names every partition that the
error must name.
"""

from __future__ import annotations

from typing import TypeAlias

from tidelog.deciding.storage_errors import translated
from tidelog.txn.adding import AdditionResults
from tidelog.txn.transaction import ProducerIdentity
from tidelog.wire.errors import ErrorCode
from tidelog.wire.partitions import TopicPartition

#: what a ticket is told: the producer's identity from now on, why the request is refused, or how each partition fared
TxnOutcome: TypeAlias = ProducerIdentity | ErrorCode | AdditionResults


def failed(outcome: TxnOutcome, error: ErrorCode) -> TxnOutcome:
    """The error in the shape of `outcome`."""
    code = translated(error)
    if isinstance(outcome, dict):
        return {transactional_id: _each_partition(codes, code) for transactional_id, codes in outcome.items()}
    return code


def _each_partition(codes: dict[TopicPartition, ErrorCode], code: ErrorCode) -> dict[TopicPartition, ErrorCode]:
    """A partition that was refused keeps its own error: it had no part in the records."""
    return {at: code if earlier is ErrorCode.NONE else earlier for at, earlier in codes.items()}
