"""Follows one leader: fetches what its partitions have, and appends it as it came.

A fetcher has one link and one fetch on its way, in which all of its partitions travel; the leader parks it while there
is nothing new. If a partition joins meanwhile, a second fetch is sent behind the first: the leader then answers the
first one at once. What the answer has for a partition is appended with one write, then the watermarks follow, and the
next fetch tells the leader how far this log is.

Trouble with one partition stops only that one: it is left out for a while, longer each time, and the others go on.

    the answer says                     what is done
    a diverging epoch                   the log is cut there; nothing is appended before it agrees with the leader's
    OFFSET_OUT_OF_RANGE                 the leader tells where its log begins and ends: this one is cut or begins anew
    another leader epoch, no leader     tried again: the controller's word has not reached one of the two
    records that are damaged            tried again; nothing of them was written
    … and the disk refuses them         tried again, as soon as there may be room
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from tidelog.log.log import Log
from tidelog.peers.requester import Answered, Failure, Link
from tidelog.replica.follower_session import FetchPosition, FollowerSession, NextFetch, Place
from tidelog.replica.partition import EARLIEST, LATEST, Partition
from tidelog.replica.throttle import ReplicationThrottle
from tidelog.timer.host import Host
from tidelog.timer.wheel import TimerTask
from tidelog.wire import messages
from tidelog.wire.apis import ApiKey
from tidelog.wire.batch import InvalidBatch
from tidelog.wire.errors import CodedError, ErrorCode

#: the first wait after an error; it doubles up to `replica.fetch.backoff.ms`
FIRST_BACKOFF_MS: Final = 20
#: fetches that may be on their way together
MOST_UNDER_WAY: Final = 2
#: between two looks whether a throttled partition may go on
THROTTLED_MS: Final = 100


class FetchTerms(Protocol):
    """What fetchers go by."""

    @property
    def local_id(self) -> int: ...

    @property
    def broker_epoch(self) -> int:
        """The epoch of this broker's current registration."""

    @property
    def max_bytes(self) -> int: ...

    @property
    def response_max_bytes(self) -> int: ...

    @property
    def min_bytes(self) -> int: ...

    @property
    def wait_max_ms(self) -> int: ...

    @property
    def backoff_ms(self) -> int: ...

    @property
    def timeout_ms(self) -> int: ...

    @property
    def throttle(self) -> ReplicationThrottle: ...

    def is_throttled(self, partition: Partition) -> bool:
        """Whether the replica on this broker is one of those that a throttle is for."""

    def appended(self, partition: Partition) -> None:
        """Something was appended to a replica that follows."""

    def high_watermark_moved(self, partition: Partition) -> None: ...

    def flush(self, log: Log, done: Callable[[ErrorCode], None]) -> None: ...

    def write_out(self) -> None:
        """Writes appends that were put off, because the next fetch tells the leader about them."""
        ...


class Following:
    """One partition that is fetched."""

    __slots__ = ("backoff_ms", "damaged", "is_busy", "is_in_sync", "partition", "place", "waiting")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.place: Place = (partition.topic_id, partition.index)
        self.backoff_ms = 0
        #: how often in a row damaged batches came
        self.damaged = 0
        #: left out while something else must be done first
        self.is_busy = False
        #: left out until this is due
        self.waiting: TimerTask | None = None
        #: it had all that the leader had, when it last heard from it
        self.is_in_sync = False

    @property
    def position(self) -> FetchPosition:
        log = self.partition.log
        return FetchPosition(
            log.log_end_offset, log.log_start_offset, self.partition.leader_epoch, log.leader_epochs.latest
        )

    def is_at(self, asked: FetchPosition) -> bool:
        partition = self.partition
        return asked.fetch_offset == partition.log.log_end_offset and asked.leader_epoch == partition.leader_epoch


class Fetcher:
    def __init__(self, link: Link, terms: FetchTerms, host: Host) -> None:
        self._link = link
        self._terms = terms
        self._host = host
        self._session = FollowerSession()
        self._followed: dict[Place, Following] = {}
        #: partitions that the next fetch may have to name, or to forget
        self._changed: dict[Place, None] = {}
        self._throttled: list[Following] = []
        #: fetches on their way
        self._under_way = 0
        self._is_about_to = False
        self._retry: TimerTask | None = None
        self._backoff_ms = 0
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._followed)

    def add(self, partition: Partition) -> None:
        """Follows a partition from where its log ends; one that is known begins anew, under its new leader epoch."""
        following = Following(partition)
        self.remove(following.place)
        self._followed[following.place] = following
        self._touch(following)

    def remove(self, place: Place) -> None:
        following = self._followed.pop(place, None)
        if following is not None:
            self._changed[place] = None
            if following.waiting is not None:
                following.waiting.cancel()

    def close(self) -> None:
        self._is_closed = True
        if self._retry is not None:
            self._retry.cancel()
        for place in list(self._followed):
            self.remove(place)
        self._link.close()

    # --- asking ---------------------------------------------------------------------------------------

    def _touch(self, following: Following) -> None:
        """The next fetch has to look at this partition; it is sent in the next turn."""
        self._changed[following.place] = None
        if not self._is_about_to:
            self._is_about_to = True
            self._host.workers.call_soon(self._fetch)

    def _fetch(self) -> None:
        self._is_about_to = False
        session = self._session
        if self._is_closed or self._retry is not None or self._under_way >= (1 if session.is_full else MOST_UNDER_WAY):
            return
        self._terms.write_out()
        places = self._followed if session.is_full else self._changed
        wanted = [(place, self._wanted(place)) for place in places]
        self._changed = {}
        if self._under_way and not session.has_news(wanted):
            return
        fetch = session.next(wanted)
        if not len(session):
            # Nothing to fetch: what was forgotten is told with the next fetch that there is.
            session.begin_anew()
            return
        self._under_way += 1
        self._link.send(
            ApiKey.FETCH,
            self._request(fetch),
            lambda outcome: self._answered(fetch, outcome),
            self._terms.timeout_ms,
        )

    def _wanted(self, place: Place) -> FetchPosition | None:
        """Where a partition is to be fetched from; None where it is not to be."""
        following = self._followed.get(place)
        if following is None or following.is_busy or following.waiting is not None:
            return None
        if following.partition.log.directory.failure is not None:
            return None
        if not following.is_in_sync and self._terms.is_throttled(following.partition):
            now_ms = self._host.clock.monotonic_ms()
            if self._terms.throttle.is_exceeded(now_ms):
                self._wait(following, THROTTLED_MS)
                return None
            # Whether it still may is looked at before each fetch.
            self._throttled.append(following)
        return following.position

    def _request(self, fetch: NextFetch) -> messages.FetchRequest:
        terms, request = self._terms, messages.FetchRequest
        topics: dict[bytes, list[messages.FetchRequest.FetchPartition]] = {}
        for (topic_id, index), position in fetch.named:
            topics.setdefault(topic_id, []).append(
                request.FetchPartition(
                    partition=index,
                    current_leader_epoch=position.leader_epoch,
                    fetch_offset=position.fetch_offset,
                    last_fetched_epoch=position.last_fetched_epoch,
                    log_start_offset=position.log_start_offset,
                    partition_max_bytes=terms.max_bytes,
                )
            )
        gone: dict[bytes, list[int]] = {}
        for topic_id, index in fetch.forgotten:
            gone.setdefault(topic_id, []).append(index)
        return request(
            replica_state=request.ReplicaState(replica_id=terms.local_id, replica_epoch=terms.broker_epoch),
            max_wait_ms=terms.wait_max_ms,
            min_bytes=terms.min_bytes,
            max_bytes=terms.response_max_bytes,
            session_id=fetch.session_id,
            session_epoch=fetch.session_epoch,
            topics=[request.FetchTopic(topic_id=key, partitions=each) for key, each in topics.items()],
            forgotten_topics_data=[request.ForgottenTopic(topic_id=key, partitions=each) for key, each in gone.items()],
        )

    # --- answers --------------------------------------------------------------------------------------

    def _answered(self, fetch: NextFetch, outcome: Answered[messages.FetchResponse] | Failure) -> None:
        self._under_way -= 1
        if self._is_closed:
            return
        if isinstance(outcome, Failure) or outcome.message.error_code:
            self._session.begin_anew()
            self._try_again_later()
            return
        if self._retry is not None:
            # It was sent before the one that failed, or with it: nobody knows what the leader thinks it has told.
            return
        self._backoff_ms = 0
        self._session.answered(fetch, outcome.message.session_id)
        now_ms = self._host.clock.wall_ms()
        for topic in outcome.message.responses:
            for data in topic.partitions:
                place = (topic.topic_id, data.partition_index)
                following, asked = self._followed.get(place), self._session.asked(place, fetch.number)
                if following is None:
                    continue
                self._changed[place] = None
                if asked is not None and following.is_at(asked) and not following.is_busy:
                    self._take(following, data, now_ms)
                else:
                    # What was asked in another epoch, or before the log was changed otherwise, says nothing any more.
                    # But the leader takes it for told, and would tell the high watermark again only when it moves.
                    self._session.begin_anew()
        for following in self._throttled:
            self._changed[following.place] = None
        self._throttled = []
        if not self._under_way:
            self._fetch()

    def _try_again_later(self) -> None:
        if self._retry is not None:
            return
        self._backoff_ms = self._longer(self._backoff_ms)

        def again() -> None:
            self._retry = None
            self._fetch()

        self._retry = self._host.timer.add(self._host.clock.monotonic_ms() + self._backoff_ms, again)

    def _longer(self, backoff_ms: int) -> int:
        return min(max(2 * backoff_ms, FIRST_BACKOFF_MS), max(self._terms.backoff_ms, 1))

    def _take(self, following: Following, data: messages.FetchResponse.PartitionData, now_ms: int) -> None:
        partition = following.partition
        try:
            if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                self._ask_for_range(following)
            elif data.error_code:
                self._back_off(following)
            elif data.diverging_epoch is not None:
                epoch, end_offset = data.diverging_epoch.epoch, data.diverging_epoch.end_offset
                self._cut(partition, lambda: partition.truncate_to_divergence(epoch, end_offset, now_ms))
            else:
                self._append(following, data, now_ms)
                following.backoff_ms = following.damaged = 0
        except CodedError as error:
            # A full disk is told of once, for all that it refuses; a directory that fails likewise.
            if isinstance(error, InvalidBatch):
                self._tell_of_damage(following, error)
            elif error.code != ErrorCode.KAFKA_STORAGE_ERROR:
                self._host.report(f"{partition.log.name} cannot follow {self._link.peer}", error)
            self._back_off(following)
        except Exception as error:
            # What is wrong with one partition stops none of the others.
            self._host.report(f"{partition.log.name} cannot follow {self._link.peer}", error)
            self._back_off(following)

    def _tell_of_damage(self, following: Following, error: CodedError) -> None:
        """Once, until something could be copied again, and not before it came a second time: a leader that is deposed
        cuts its log under what is being sent from it."""
        following.damaged += 1
        if following.damaged == 2:
            self._host.notice(
                f"{following.partition.log.name} cannot follow {self._link.peer}, whose copy is damaged: {error}. Stop "
                "that broker, so that another replica leads; `tidelog doctor --deep` names the damaged file and byte"
            )

    def _append(self, following: Following, data: messages.FetchResponse.PartitionData, now_ms: int) -> None:
        partition = following.partition
        flush_due = False
        if data.records:
            info = partition.append_as_follower(data.records, now_ms)
            flush_due = info.flush_due
            partition.traffic.replication_bytes_in += len(data.records)
            if self._terms.is_throttled(partition):
                self._terms.throttle.record(len(data.records), self._host.clock.monotonic_ms())
        following.is_in_sync = partition.log.log_end_offset >= data.high_watermark
        if partition.follow_watermarks(data.high_watermark, data.log_start_offset):
            self._terms.high_watermark_moved(partition)
        if data.records:
            self._terms.appended(partition)
        if flush_due:
            self._flush(following)

    def _flush(self, following: Following) -> None:
        """What is to be on the device before it counts is not acknowledged, by the next fetch, before it is there."""
        following.is_busy = True

        def flushed(error: ErrorCode) -> None:
            following.is_busy = False
            if error is not ErrorCode.NONE:
                self._back_off(following)
            self._go_on_with(following)

        self._terms.flush(following.partition.log, flushed)

    def _cut(self, partition: Partition, cut: Callable[[], int]) -> None:
        """Has a log cut, and says so where it loses what was committed as far as this broker knew."""
        before, high_watermark = partition.log.log_end_offset, partition.high_watermark
        end_offset = cut()
        if end_offset < high_watermark:
            self._host.notice(
                f"{partition.log.name} is cut from offset {before} to {end_offset}, below its high watermark "
                f"{high_watermark}: its leader, {self._link.peer}, does not have these records. Records that were "
                "acknowledged are lost if the leader was elected from outside the ISR, or lost its disk"
            )

    def _back_off(self, following: Following) -> None:
        following.backoff_ms = self._longer(following.backoff_ms)
        self._wait(following, following.backoff_ms)

    def _wait(self, following: Following, wait_ms: int) -> None:
        def over() -> None:
            following.waiting = None
            self._go_on_with(following)

        following.waiting = self._host.timer.add(self._host.clock.monotonic_ms() + wait_ms, over)

    def _go_on_with(self, following: Following) -> None:
        if self._followed.get(following.place) is following:
            self._touch(following)

    # --- a log that has nothing in common with its leader's ---------------------------------------------

    def _ask_for_range(self, following: Following) -> None:
        """Asks where the leader's log begins and ends, since this one ends outside of it."""
        following.is_busy = True
        epoch = following.partition.leader_epoch
        found: dict[int, int] = {}
        answers = 0

        def answered(timestamp: int, outcome: Answered[messages.ListOffsetsResponse] | Failure) -> None:
            nonlocal answers
            answers += 1
            if not isinstance(outcome, Failure):
                (topic,) = outcome.message.topics
                (partition,) = topic.partitions
                if not partition.error_code:
                    found[timestamp] = partition.offset
            if answers == 2:
                following.is_busy = False
                if self._followed.get(following.place) is following and following.partition.leader_epoch == epoch:
                    self._fit_into(following, found)

        for timestamp in (LATEST, EARLIEST):
            self._link.send(
                ApiKey.LIST_OFFSETS,
                self._range_request(following.partition, timestamp),
                lambda outcome, timestamp=timestamp: answered(timestamp, outcome),  # type: ignore[misc]
                self._terms.timeout_ms,
            )

    def _range_request(self, partition: Partition, timestamp: int) -> messages.ListOffsetsRequest:
        request = messages.ListOffsetsRequest
        wanted = request.ListOffsetsPartition(
            partition_index=partition.index, current_leader_epoch=partition.leader_epoch, timestamp=timestamp
        )
        return request(
            replica_id=self._terms.local_id,
            topics=[request.ListOffsetsTopic(name=partition.topic, partitions=[wanted])],
        )

    def _fit_into(self, following: Following, found: dict[int, int]) -> None:
        partition, now_ms = following.partition, self._host.clock.wall_ms()
        log = partition.log
        try:
            if len(found) == 2 and found[LATEST] < log.log_end_offset:
                self._cut(partition, lambda: partition.truncate_to(found[LATEST], now_ms))
            elif len(found) == 2 and found[EARLIEST] > log.log_end_offset:
                self._host.notice(
                    f"{log.name} ends at offset {log.log_end_offset}, before that of its leader begins: "
                    f"it starts anew at offset {found[EARLIEST]}"
                )
                partition.start_anew_at(found[EARLIEST], now_ms)
            else:
                self._back_off(following)
        except CodedError as error:
            self._host.report(f"{log.name} cannot follow {self._link.peer}", error)
            self._back_off(following)
        self._touch(following)
