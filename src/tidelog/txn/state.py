"""The states of a transactional id, and which may follow which.

    Empty ----------> Ongoing ----------> PrepareCommit ---> CompleteCommit
      |                  |  (commit)                              |
      |                  |  (abort, timeout, a new producer)      |
      +------------------+--------------> PrepareAbort ----> CompleteAbort

Complete* is Empty with a memory: a new transaction goes back to Ongoing, a new producer to Empty. Since transactions
version 2 an abort is taken without a transaction too (the line from Empty), because a client may not know whether its
partitions reached the coordinator.

Two of Kafka's states are never stored. PrepareEpochFence is the moment between fencing a producer and aborting its
transaction, Dead the moment between an expiry and its tombstone; here both pass within one decision. They keep their
place in the table because operators may filter by their names.
"""

from __future__ import annotations

from enum import IntEnum


class TransactionState(IntEnum):
    """The number is the one that is stored, `label` the one that operators see."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def label(self) -> str:
        return _LABELS[self]

    @property
    def is_prepared(self) -> bool:
        return self is _S.PREPARE_COMMIT or self is _S.PREPARE_ABORT

    @property
    def is_at_rest(self) -> bool:
        """No transaction is open: the id may expire, and its producer id may change."""
        return self in AT_REST


_S = TransactionState

AT_REST = frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT})

# State -> the states it may be entered from.
PREVIOUS: dict[TransactionState, frozenset[TransactionState]] = {
    _S.EMPTY: AT_REST,
    _S.ONGOING: AT_REST | {_S.ONGOING},
    _S.PREPARE_COMMIT: frozenset({_S.ONGOING}),
    _S.PREPARE_ABORT: AT_REST | {_S.ONGOING, _S.PREPARE_EPOCH_FENCE},
    _S.COMPLETE_COMMIT: frozenset({_S.PREPARE_COMMIT}),
    _S.COMPLETE_ABORT: frozenset({_S.PREPARE_ABORT}),
    _S.DEAD: AT_REST,
    _S.PREPARE_EPOCH_FENCE: frozenset({_S.ONGOING}),
}

# "PREPARE_COMMIT" -> "PrepareCommit"
_LABELS = {state: "".join(word.capitalize() for word in state.name.split("_")) for state in TransactionState}
BY_LABEL = {label: state for state, label in _LABELS.items()}
