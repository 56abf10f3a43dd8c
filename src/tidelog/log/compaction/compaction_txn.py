"""CompactedTransactions, as a compaction meets them on its way through the log.

    a batch of an aborted transaction           its records go
    a marker of a transaction, of which         stays; if it aborted, its entry stays in the transaction index,
    batches were met in this round              for the bare header of a producer's last batch may be among them
    a marker without any batch left             may go: it gets a delete horizon now, and goes when that is over

A consumer that has read a part of a transaction must come to its marker, so a marker never goes before its records.
Only transactions that are decided lie in the range of a compaction, for it ends at the last stable offset.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.log.txn_index import AbortedTxn
from tidelog.wire.batch import BatchHeader
from tidelog.wire.records import ABORT, COMMIT


class _Aborted:
    __slots__ = ("met", "txn")

    def __init__(self, txn: AbortedTxn) -> None:
        self.txn = txn
        #: whether a batch of it is still in the log
        self.met = False


class CompactedTransactions:
    """`aborted` are the transactions whose markers lie ahead; batches come in the order of the log."""

    __slots__ = ("_aborted", "_committed", "_pending", "still_indexed")

    def __init__(self, aborted: Iterable[AbortedTxn]) -> None:
        #: by first offset, the next one last
        self._pending = sorted(aborted, key=lambda txn: txn.first_offset, reverse=True)
        self._aborted: dict[int, _Aborted] = {}
        #: producers of which a batch was met that is not of an aborted transaction
        self._committed: set[int] = set()
        #: aborted transactions whose markers were met and whose entries stay in the index
        self.still_indexed: list[AbortedTxn] = []

    def _reach(self, offset: int) -> None:
        while self._pending and self._pending[-1].first_offset <= offset:
            txn = self._pending.pop()
            self._aborted.setdefault(txn.producer_id, _Aborted(txn))

    def is_aborted(self, header: BatchHeader) -> bool:
        """A batch of records comes: whether its transaction was aborted."""
        if not header.is_transactional:
            return False
        self._reach(header.last_offset)
        aborted = self._aborted.get(header.producer_id)
        if aborted is None:
            self._committed.add(header.producer_id)
            return False
        aborted.met = True
        return True

    def may_go(self, header: BatchHeader, kind: int | None) -> bool:
        """A control batch comes: whether nothing needs it any more. `kind` is that of its record, None without one."""
        self._reach(header.last_offset)
        if kind == ABORT:
            aborted = self._aborted.pop(header.producer_id, None)
            if aborted is None or not aborted.met:
                return True
            self.still_indexed.append(aborted.txn)
            return False
        if kind == COMMIT:
            if header.producer_id not in self._committed:
                return True
            self._committed.discard(header.producer_id)
            return False
        # A control batch that was emptied before has nothing more to say; one of an unknown kind is not touched.
        return header.record_count == 0

    def take_indexed(self) -> list[AbortedTxn]:
        taken, self.still_indexed = self.still_indexed, []
        return taken
