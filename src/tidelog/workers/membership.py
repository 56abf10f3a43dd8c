"""A member of a consumer group: which partitions it has, and what is read and committed of them.

Everything here happens in the thread that polls, the callbacks of the client included.

    assigned   the committed offset and its map are read, and the partition is read from there
    revoked    nothing more is begun; what is under way may finish, for so long; then what is finished is committed
    lost       somebody else may have it already: nothing is committed
"""

from __future__ import annotations

import logging
import time
from typing import Any, Final

from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka import Message as KafkaMessage

from tidelog.workers.backlog import Name, PartitionWork
from tidelog.workers.deliveries import as_offsets
from tidelog.workers.exactly_once import InTransactions
from tidelog.workers.intake import Intake
from tidelog.workers.message import Message
from tidelog.workers.offset_map import DEFAULT_LIMIT
from tidelog.workers.worker_options import WorkerOptions
from tidelog.workers.workplace import WorkersFailed, Workplace

_log = logging.getLogger("tidelog.workers")
#: records taken from the client at once
_BATCH: Final = 500
#: How long the offsets of new partitions are asked for: a broker that restarts comes back within it.
_ASK_S: Final = 120.0
_ASK_ONCE_S: Final = 10.0
#: While there is no room, the broker must hear from us at least this often.
_PATIENCE_S: Final = 0.5
#: after which a commit is taken for lost, and the next one sent
_ACKNOWLEDGED_S: Final = 60.0
#: how often a transaction is tried before its partitions go
_LAST_TRIES: Final = 3
#: below it, maps are not worth their while
_LEAST_LIMIT: Final = 64
#: What is wrong for good: waiting does not help.
_FATAL: Final = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.INVALID_GROUP_ID,
    KafkaError.INCONSISTENT_GROUP_PROTOCOL,
    KafkaError.FENCED_INSTANCE_ID,
    KafkaError._AUTHENTICATION,
    KafkaError.UNSUPPORTED_VERSION,
}


class WorkMembership:
    def __init__(self, options: WorkerOptions, place: Workplace, transactions: InTransactions | None) -> None:
        self._options = options
        self._place = place
        self._transactions = transactions
        self._limit = DEFAULT_LIMIT
        self._intake = Intake(options.limits, _PATIENCE_S)
        #: sent and not acknowledged yet; only one at a time, so that none overtakes another
        self._committing: dict[Name, tuple[PartitionWork, tuple[int, str]]] | None = None
        self._given_up_at = 0.0
        self._next_commit = 0.0
        self._at_end: set[Name] = set()
        self._was_assigned = False
        self._is_leaving = False
        self.lag: int | None = None
        self._consumer = Consumer(
            {**options.consumer_config(), "on_commit": self._acknowledged, "error_cb": self._told}
        )

    def join(self) -> None:
        self._consumer.subscribe(
            list(self._options.topics), on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
        )

    # --- one turn -----------------------------------------------------------------------------------

    def turn(self, timeout_s: float) -> None:
        """Receives what there is room for, and commits what is due."""
        valve = self._intake.plan(self._place.works(), time.monotonic())
        if valve.pause:
            self._consumer.pause([TopicPartition(*name) for name in valve.pause])
        if valve.resume:
            self._consumer.resume([TopicPartition(*name) for name in valve.resume])
        if valve.room:
            self._receive(valve.room, timeout_s)
        else:
            self._place.wait_for_room(timeout_s)
        self._place.wake()
        now = time.monotonic()
        if now >= self._next_commit or self._has_much_to_commit():
            self._next_commit = now + self._options.commit_interval_s
            self.commit()
            self._look_at_lag()

    def _receive(self, room: int, timeout_s: float) -> None:
        # `consume` waits until it has as many as it is asked for: the first one is polled for, the rest is there.
        first = self._consumer.poll(timeout_s)
        if first is None:
            return
        # It is handed on before the next call, in which its partition may go and come back.
        self._hand_on([first])
        if room > 1:
            self._hand_on(self._consumer.consume(min(room - 1, _BATCH), 0))

    def _hand_on(self, found: list[KafkaMessage]) -> None:
        rewound = self._place.counts().rewound
        self._place.receive([_message(each) for each in found if each.error() is None])
        if self._place.counts().rewound != rewound:
            _log.warning("a log ends before what was committed of it: it is read from where it is now")
        for each in found:
            if (error := each.error()) is not None:
                self._heard(each, error)

    def _heard(self, record: Any, error: KafkaError) -> None:
        if error.code() == KafkaError._PARTITION_EOF:
            self._at_end.add((record.topic(), record.partition()))
        elif error.fatal() or error.code() in _FATAL:
            raise WorkersFailed(f"{error.name()}: {error.str()}")
        else:
            _log.warning("%s: %s", error.name(), error.str())

    def _told(self, error: KafkaError) -> None:
        if error.fatal() or error.code() in _FATAL:
            self._place.fail(WorkersFailed(f"{error.name()}: {error.str()}"))
        else:
            _log.warning("%s: %s", error.name(), error.str())

    @property
    def is_at_end(self) -> bool:
        """Whether everything that the partitions held is finished."""
        works = self._place.works()
        is_committed = self._transactions is None or self._transactions.is_settled
        return self._was_assigned and is_committed and all(w.name in self._at_end and not w.pending for w in works)

    @property
    def paused(self) -> int:
        return len(self._intake.paused)

    def _look_at_lag(self) -> None:
        lag = None
        for work in self._place.works():
            ends = self._consumer.get_watermark_offsets(TopicPartition(*work.name), cached=True)
            if ends is not None and ends[1] >= 0:
                lag = (lag or 0) + max(0, ends[1] - work.tracker.base)
        self.lag = lag

    # --- commits ------------------------------------------------------------------------------------

    def _has_much_to_commit(self) -> bool:
        return self._transactions is not None and self._transactions.waiting > self._options.limits.pending // 2

    def commit(self) -> None:
        """In a transaction, or without waiting for the answer."""
        if self._transactions is not None:
            self._transactions.commit(self._consumer, self._limit)
            return
        if self._committing is not None and time.monotonic() < self._given_up_at:
            return
        found = self._place.commits(self._limit)
        if not found:
            return
        self._committing = {work.name: (work, (at.offset, at.metadata)) for work, at in found}
        self._given_up_at = time.monotonic() + _ACKNOWLEDGED_S
        try:
            self._consumer.commit(offsets=as_offsets(found), asynchronous=True)
        except KafkaException as failure:
            self._committing = None
            self._refused(failure.args[0])

    def _acknowledged(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        sent, self._committing = self._committing, None
        if error is not None and not partitions:
            self._refused(error)
        for at in partitions:
            failure = error or at.error
            if failure is not None:
                self._refused(failure)
                continue
            work, what = (sent or {}).get((at.topic, at.partition), (None, None))
            if work is not None and what is not None and (at.offset, at.metadata or "") == what:
                work.committed = what
            _log.debug("committed %s-%d %d %s", at.topic, at.partition, at.offset, at.metadata or "")

    def _refused(self, error: KafkaError) -> None:
        """It is tried again with the next commit, and nothing depends on this one."""
        if error.code() == KafkaError.OFFSET_METADATA_TOO_LARGE:
            self._limit = self._limit // 2 if self._limit > _LEAST_LIMIT else 0
            _log.warning(
                "the broker takes no metadata of this size (offset.metadata.max.bytes): at most %d", self._limit
            )
        else:
            _log.warning("a commit was refused: %s", error.str())

    def _commit_now(self, names: set[Name]) -> None:
        """What is finished of these partitions, before they go."""
        if self._transactions is not None:
            for _ in range(_LAST_TRIES):
                if self._transactions.commit(self._consumer, self._limit):
                    return
            return
        found = self._place.commits(self._limit, names)
        if not found:
            return
        try:
            for at in self._consumer.commit(offsets=as_offsets(found), asynchronous=False):
                if at.error is None:
                    _log.debug("committed %s-%d %d %s", at.topic, at.partition, at.offset, at.metadata or "")
                else:
                    self._refused(at.error)
        except KafkaException as failure:
            self._refused(failure.args[0])

    # --- partitions come and go ---------------------------------------------------------------------

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if self._is_leaving:
            return  # a client that is being closed answers no questions, and these partitions go again at once
        self._was_assigned = True
        starts = []
        for at in self._committed(partitions):
            offset = at.offset if at.offset >= 0 else None
            work = self._place.assign((at.topic, at.partition), offset, at.metadata)
            starts.append(TopicPartition(at.topic, at.partition, OFFSET_INVALID if offset is None else offset))
            self._at_end.discard(work.name)
        if self._options.is_incremental:
            consumer.incremental_assign(starts)
        else:
            consumer.assign(starts)

    def _committed(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Their committed offsets, from a broker that may just be restarting."""
        if not partitions:
            return []
        until = time.monotonic() + _ASK_S
        while True:
            try:
                found = self._consumer.committed(partitions, timeout=_ASK_ONCE_S)
                failures = [at.error for at in found if at.error is not None]
                if not failures:
                    return list(found)
                failure = failures[0]
            except KafkaException as error:
                failure = error.args[0]
            if time.monotonic() > until:
                raise WorkersFailed(f"the committed offsets cannot be read: {failure.str()}")
            time.sleep(0.1)

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.release({(at.topic, at.partition) for at in partitions})

    def _lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        _log.warning("the group has taken %d partitions away", len(partitions))
        self._drop({(at.topic, at.partition) for at in partitions})

    def release(self, names: set[Name]) -> None:
        """Finishes what is under way of these partitions, as long as that may take, and commits it."""
        names = names & {work.name for work in self._place.works()}
        if not names:
            return
        left = self._place.drain(names, self._options.drain_timeout_s)
        if left:
            _log.warning(
                "%d messages were still being handled when their partitions had to go: they are repeated", left
            )
        try:
            self._commit_now(names)
            self._look_at_lag()  # while the partitions are here: what is told after the end is of this moment
        finally:
            self._drop(names)

    def _drop(self, names: set[Name]) -> None:
        self._place.revoke(names)
        if self._transactions is not None:
            self._transactions.drop(names)

    def leave(self) -> None:
        self._is_leaving = True
        self._consumer.close()


def _message(record: Any) -> Message:
    """The client's types allow that a record has no place; those without an error have one."""
    return Message(
        record.topic(), record.partition(), record.offset(), record.key(), record.value(), _headers(record),
        record.timestamp()[1],
    )  # fmt: skip


def _headers(record: Any) -> tuple[tuple[str, bytes | None], ...]:
    try:
        return tuple(record.headers() or ())
    except UnicodeDecodeError:
        # A name that is no text. The message is worth more than its headers.
        return (("tidelog-unreadable-headers", b"1"),)
