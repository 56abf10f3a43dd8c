"""The end that a client asks for: commit or abort, once, however often it asks.

A client of transactions version 1 keeps its epoch from one transaction to the next, so a repeated request looks like a
new one, and the state alone says what it means. In version 2 the epoch grows at every end: a request with the epoch
before the current one is a repeat, one with the current epoch is new. A client of version 2 may abort what the
coordinator has never heard of, since its partitions are added by the brokers it writes to, and it cannot know whether
one of them got that far.

The answer depends on the state of the id and on what is asked:

    state           asked    version 1    version 2: repeat    version 2: new
    Empty           commit   invalid      fenced               invalid
                    abort    invalid      fenced               end
    Ongoing         either   end          fenced               end
    CompleteCommit  commit   done         done                 invalid
                    abort    invalid      invalid              end
    CompleteAbort   commit   invalid      invalid              invalid
                    abort    done         done                 end

While a transaction is prepared everybody waits, with a retriable error. In version 2 that comes before a look at who
asks: the producer has been told of the identity that only completing puts in place.
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog.deciding.turn import Refusal
from tidelog.txn.completion import prepare
from tidelog.txn.shard import Shard
from tidelog.txn.state import TransactionState
from tidelog.txn.transaction import EPOCH_BUMP_VERSION, MAX_EPOCH, ProducerIdentity, Transaction
from tidelog.txn.turn import TxnDecision
from tidelog.wire.errors import ErrorCode

_E = ErrorCode
_S = TransactionState

_INVALID = _E.INVALID_TXN_STATE
_FENCED = _E.PRODUCER_FENCED
_DONE = _E.NONE
_END = None

_COMMIT, _ABORT = True, False

# (state, what is asked) -> (version 1, a repeat in version 2, a new request in version 2)
_ANSWERS: dict[tuple[TransactionState, bool], tuple[ErrorCode | None, ErrorCode | None, ErrorCode | None]] = {
    (_S.EMPTY, _COMMIT): (_INVALID, _FENCED, _INVALID),
    (_S.EMPTY, _ABORT): (_INVALID, _FENCED, _END),
    (_S.ONGOING, _COMMIT): (_END, _FENCED, _END),
    (_S.ONGOING, _ABORT): (_END, _FENCED, _END),
    (_S.COMPLETE_COMMIT, _COMMIT): (_DONE, _DONE, _INVALID),
    (_S.COMPLETE_COMMIT, _ABORT): (_INVALID, _INVALID, _END),
    (_S.COMPLETE_ABORT, _COMMIT): (_INVALID, _INVALID, _INVALID),
    (_S.COMPLETE_ABORT, _ABORT): (_DONE, _DONE, _END),
}


class TransactionEnd(NamedTuple):
    """`client_version` is the transactions version of the client that asks."""

    transactional_id: str
    producer: ProducerIdentity
    commit: bool
    client_version: int


def end(shard: Shard, turn: TxnDecision, wanted: TransactionEnd) -> Transaction:
    """The id as its producer will know it from now on."""
    transaction = shard.existing(wanted.transactional_id)
    prepared = transaction.state.is_prepared
    if prepared and wanted.client_version >= EPOCH_BUMP_VERSION:
        raise Refusal(_E.CONCURRENT_TRANSACTIONS)
    column = _column(transaction, wanted)
    if prepared:
        raise Refusal(_E.CONCURRENT_TRANSACTIONS)
    answer = _ANSWERS[transaction.state, wanted.commit][column]
    if answer is _END:
        return prepare(shard, turn, transaction, wanted.commit, wanted.client_version)
    if answer is not _DONE:
        raise Refusal(answer)
    return transaction


def _column(transaction: Transaction, wanted: TransactionEnd) -> int:
    """Which column of the table the request is in."""
    producer_id, epoch = wanted.producer
    current_epoch = transaction.producer_epoch
    if wanted.client_version < EPOCH_BUMP_VERSION:
        if producer_id != transaction.producer_id:
            raise Refusal(_E.INVALID_PRODUCER_ID_MAPPING)
        if epoch != current_epoch:
            raise Refusal(_FENCED)
        return 0
    # The end that used up the epochs also changed the producer id; its repeat still names the old one.
    if producer_id == transaction.previous_producer_id and epoch == MAX_EPOCH - 1 and current_epoch == 0:
        return 1
    if producer_id != transaction.producer_id:
        raise Refusal(_E.INVALID_PRODUCER_ID_MAPPING)
    if epoch + 1 == current_epoch:
        return 1
    if epoch != current_epoch:
        raise Refusal(_FENCED)
    return 2
