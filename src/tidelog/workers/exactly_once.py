"""Writes what handlers returned in transactions, together with the offsets that it came from: exactly once.

A message is handled, and its results wait here; its key goes on. From time to time a transaction takes all results that
wait, in the order in which they came, and the offsets with their map. Whoever reads with `read_committed` sees the
results of a message exactly once, and a restart begins where the last committed transaction ended.

    begin ── records ── offsets ── commit ──▶ finished
      ▲                                 │ it must be aborted: the results still wait, those whose partition has gone
      └────────────── abort ────────────┘ meanwhile are dropped (its new owner handles these messages again)

The coordinator refuses the offsets of a member that is no longer in the group, so that a transaction of somebody who
was taken for dead fails. What a handler does beside its results (calls, files) is still repeated after a crash.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from tidelog.workers.backlog import Name, WorkItem
from tidelog.workers.deliveries import UNFIT, NotWritten, as_offsets, produce
from tidelog.workers.message import Send
from tidelog.workers.workplace import WorkersFailed, Workplace

_log = logging.getLogger("tidelog.workers")
_TIMEOUT_S: Final = 60.0
_TRIES: Final = 10
_FLUSH_S: Final = 0.1


class InTransactions:
    def __init__(self, place: Workplace, config: Mapping[str, Any]) -> None:
        self._place = place
        self._producer = Producer(dict(config))
        self._lock = threading.Lock()
        self._waiting: list[tuple[WorkItem, tuple[Send, ...]]] = []
        #: whose results a topic does not take
        self._unfit: dict[WorkItem, NotWritten] = {}
        #: since when every transaction had to be aborted
        self._failing_since: float | None = None
        #: told to the backlog as finished, and not committed yet: what an aborted transaction held
        self._unsettled: list[tuple[WorkItem, tuple[Send, ...]]] = []

    def open(self) -> None:
        """Ends what an earlier process with the same transactional id left open."""
        self._retried(lambda: self._producer.init_transactions(_TIMEOUT_S))

    def deliver(self, item: WorkItem, sends: tuple[Send, ...]) -> None:
        with self._lock:
            self._waiting.append((item, sends))
        self._place.released(item)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def is_settled(self) -> bool:
        """Whether everything that was handled is committed."""
        return not self._waiting and not self._unsettled

    def commit(self, consumer: Consumer, limit: int) -> bool:
        """One transaction with everything that waits; whether it was committed, or there was nothing to do."""
        with self._lock:
            taken, self._waiting = self._waiting, []
        self._place.finished(item for item, _ in taken)
        self._unsettled = [each for each in (*self._unsettled, *taken) if each[0].work.is_owned]
        found = self._place.commits(limit)
        if not found:
            return True
        offsets = as_offsets(found)
        try:
            self._producer.begin_transaction()
            for item, sends in self._unsettled:
                for send in sends:
                    produce(self._producer, send, partial(self._written, item))
            member = consumer.consumer_group_metadata()
            self._retried(lambda: self._producer.send_offsets_to_transaction(offsets, member, _TIMEOUT_S))
            if self._is_refused():
                self._try_again(next(iter(self._unfit.values())))
                return False
            self._retried(lambda: self._producer.commit_transaction(_TIMEOUT_S))
        except KafkaException as error:
            self._abort(error)
            return False
        self._unsettled = []
        self._failing_since = None
        for work, at in found:
            work.committed = (at.offset, at.metadata)
            _log.debug("committed %s-%d %d %s", *work.name, at.offset, at.metadata)
        return True

    def _abort(self, failure: KafkaException) -> None:
        error: KafkaError = failure.args[0]
        if error.fatal() or not error.txn_requires_abort():
            raise WorkersFailed(f"the transaction failed: {error.str()}") from failure
        now = time.monotonic()
        self._failing_since = self._failing_since or now
        if now - self._failing_since > _TIMEOUT_S:
            raise WorkersFailed(f"no transaction was committed for {_TIMEOUT_S:.0f} s: {error.str()}") from failure
        self._try_again(error.str())

    def _is_refused(self) -> bool:
        """Waits for what was sent. A client does not send what stands behind a record that was refused, and would wait
        for that until the transaction has timed out."""
        while self._producer.flush(_FLUSH_S) and not self._unfit:
            pass
        return bool(self._unfit)

    def _try_again(self, why: object) -> None:
        _log.warning("the transaction is aborted and tried again: %s", why)
        self._retried(lambda: self._producer.abort_transaction(_TIMEOUT_S))
        self._bury_unfit()

    def _written(self, item: WorkItem, error: KafkaError | None, written: Any) -> None:
        if error is not None and error.code() in UNFIT:
            said = f"{written.topic()} did not take what it led to: {error.str()}"
            self._unfit.setdefault(item, NotWritten(said))

    def _bury_unfit(self) -> None:
        """What no transaction can hold is left out of the next one: its message is a dead letter instead."""
        for at, (item, _) in enumerate(self._unsettled):
            if item in self._unfit and (letter := self._place.died_late(item, self._unfit[item])) is not None:
                self._unsettled[at] = (item, (letter,))
        self._unfit.clear()

    def drop(self, names: set[Name]) -> None:
        """What waits for partitions that have gone is of no use."""
        with self._lock:
            self._waiting = [each for each in self._waiting if each[0].work.name not in names]
        self._unsettled = [each for each in self._unsettled if each[0].work.name not in names]

    def close(self) -> None:
        del self._producer  # ends its connections

    def _retried(self, call: Any) -> None:
        for left in reversed(range(_TRIES)):
            try:
                call()
                return
            except KafkaException as failure:
                error: KafkaError = failure.args[0]
                if not error.retriable() or not left:
                    raise
