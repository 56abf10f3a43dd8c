"""Fetch, versions 4-18: read from the leader, with sessions (7), leader epochs (9), divergence (12), topic ids (13).

A follower reads to the end of the log, and its request says how far its own log is: that is taken note of before the
answer is made, so that the answer has the high watermark that follows from it. A consumer from version 11 on may read
from a follower too, up to what that follower knows to be committed, and the leader may send it there (KIP-392).

The answer holds slices of segment files; net sends them from page cache to socket. A fetch that finds fewer
than `min_bytes` is parked on its partitions until an append or its `max_wait_ms`. An error in any partition
answers at once. The first partition with data gives at least one whole batch even past `max_bytes`; unlike Apache
Kafka, a batch is never cut in two. A partition that is named twice in a request is answered twice. A fetch of many
partitions is read and answered in slices, between which others are served.

A follower's fetch that waits for records is answered without any soon after the high watermark has moved if consumers
may read from that follower (`DataPlane.high_watermark_moved`).

Not done: throttling by quota.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from tidelog.node.data_plane import Follower, waiting_followers
from tidelog.replica.fetch_sessions import FetchContext, FetchPartition, key_of
from tidelog.replica.partition import READ_COMMITTED, Partition, PartitionRead
from tidelog.wire import messages
from tidelog.wire.errors import CodedError, ErrorCode, KafkaError

if TYPE_CHECKING:
    from tidelog.api.request import Request
    from tidelog.timer.parking import Parked
    from tidelog.timer.slices import Job

    TopicAnswer = messages.FetchResponse.FetchableTopicResponse

#: consumers say which rack they are in, and understand that they are sent elsewhere
FIRST_VERSION_WITH_RACKS: Final = 11
FIRST_VERSION_WITH_TOPIC_IDS: Final = 13
FIRST_VERSION_WITH_LEADER_HINTS: Final = 16
EMPTY_RECORDS: Final = b""
#: what a follower gets of a partition that a throttle holds back: not even one batch
HELD_BACK: Final = -1
#: partitions that are read and answered in one go
SLICE_PARTITIONS: Final = 300


def handle(body: messages.FetchRequest, request: Request) -> messages.FetchResponse | None:
    doors = request.doors
    uses_topic_ids = request.version >= FIRST_VERSION_WITH_TOPIC_IDS
    if body.replica_state is not None:
        body.replica_id = body.replica_state.replica_id
    if body.replica_id >= 0:
        request.comes_from_follower()
    if body.isolation_level >> 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"there is no isolation level {body.isolation_level}")
    context = doors.data.fetch_sessions.begin(
        body, uses_topic_ids, doors.cluster.topic_name, doors.host.clock.monotonic_ms()
    )
    if context.error_code:
        return messages.FetchResponse(error_code=context.error_code)
    # A follower whose fetch begins a session cannot tell of another partition before it knows that session's id.
    begins_session = body.replica_id >= 0 and context.session is not None and not context.incremental
    may_wait = body.max_wait_ms > 0 and not begins_session
    if len(context.partitions) > SLICE_PARTITIONS:
        doors.slices.add(LongFetch(request, body, context, uses_topic_ids).answer(may_wait))
        return None
    fetch = PendingFetch(request, body, context, uses_topic_ids)
    enough = fetch.read()
    if enough or not may_wait or not (context.partitions or context.session):
        return fetch.response()
    fetch.park()
    return None


#: what was asked for, where it is, what was found there, and the error that was found instead
Read: TypeAlias = tuple[FetchPartition, Partition | None, PartitionRead | None, int]


class PendingFetch:
    """One fetch on its way: read now, or again when something was appended."""

    __slots__ = (
        "answer_now",
        "body",
        "context",
        "follower",
        "found",
        "is_new",
        "isolation_level",
        "leader_only",
        "listed",
        "now_ms",
        "parked",
        "rack",
        "reads",
        "remaining",
        "request",
        "uses_topic_ids",
    )

    def __init__(
        self, request: Request, body: messages.FetchRequest, context: FetchContext, uses_topic_ids: bool
    ) -> None:
        self.request = request
        self.body = body
        self.context = context
        self.uses_topic_ids = uses_topic_ids
        self.isolation_level = body.isolation_level
        #: a follower sees what is not committed yet; a replica id below zero is some kind of consumer
        self.follower: Follower | None = None
        self.rack = ""
        if body.replica_id >= 0:
            broker_epoch = body.replica_state.replica_epoch if body.replica_state is not None else -1
            self.follower = request.doors.data.follower(body.replica_id, broker_epoch)
        elif request.version >= FIRST_VERSION_WITH_RACKS:
            self.rack = body.rack_id
        #: the session of a follower, which lists what may have something new
        self.listed = context.session if context.incremental and self.follower is not None else None
        self.leader_only = body.replica_id >= 0 or request.version < FIRST_VERSION_WITH_RACKS
        #: what a follower says of itself counts once, when its request arrives
        self.is_new = True
        self.parked: Parked | None = None
        self.reads: list[Read] = []

    def park(self) -> None:
        doors = self.request.doors
        parked = doors.data.parking.park(
            self._parking_keys(),
            doors.host.clock.monotonic_ms() + self.body.max_wait_ms,
            self.try_complete,
            self.expire,
        )
        self.parked = parked
        self.request.exchange.on_abandoned = parked.cancel
        if self.follower is not None and self.context.session is not None:
            self.context.session.interrupt = self.interrupt
            self.request.exchange.allow_next()

    def _parking_keys(self) -> Iterable[Hashable]:
        if self.listed is not None:
            return (self.listed,)
        keys = [(p.topic, p.index) for p in self.context.partitions]
        return keys if self.follower is None else map(waiting_followers, keys)

    def interrupt(self) -> None:
        """The follower has sent another fetch behind this one."""
        if self.parked is not None and self.parked.cancel():
            self.expire()

    @property
    def has_news(self) -> bool:
        """There is a high watermark or a log start offset that a follower has not heard of."""
        if self.follower is None or self.context.session is None:
            return False
        return any(
            read is not None
            and (
                read.high_watermark > wanted.told_high_watermark or read.log_start_offset > wanted.told_log_start_offset
            )
            for wanted, _, read, _ in self.reads
        )

    def read(self) -> bool:
        """Reads every partition in turn within the limits; tells whether the answer need not wait."""
        self.begin_reading()
        self.read_on(self.context.partitions)
        self.is_new = False
        return self.enough

    @property
    def enough(self) -> bool:
        return self.answer_now or self.found >= self.body.min_bytes

    def begin_reading(self) -> None:
        self.remaining = min(self.body.max_bytes, self.request.doors.config.values.fetch_max_bytes)
        self.found = 0
        self.answer_now = False
        self.reads = []
        if self.follower is not None:
            self.now_ms = self.request.doors.host.clock.monotonic_ms()
        if self.listed is not None and not self.is_new:
            self.context.partitions = self.listed.due()

    def read_on(self, some: list[FetchPartition]) -> None:
        body = self.body
        remaining, found = self.remaining, self.found
        answer_now = self.answer_now
        reads = self.reads
        data = self.request.doors.data
        partitions = data.replicas.partitions
        for wanted in some:
            partition = partitions.get((wanted.topic, wanted.index))
            if partition is None or (self.uses_topic_ids and partition.topic_id != wanted.topic_id):
                reads.append((wanted, None, None, self._missing(wanted)))
                answer_now = True
                if self.listed is not None:
                    self.listed.stirred[wanted] = None
                continue
            if wanted.is_settled and self._has_nothing_new(partition, wanted):
                if self.listed is not None and self.is_new:
                    self.listed.stirred.pop(wanted, None)
                continue
            if self.listed is not None:
                self.listed.stirred[wanted] = None
            try:
                most_bytes = min(wanted.max_bytes, remaining)
                if self.follower is not None:
                    partition.check_follower(body.replica_id, wanted.current_leader_epoch)
                    if self.listed is not None:
                        partition.in_sync.followers[body.replica_id].fetches_in(self.listed, wanted)
                    if self.is_new:
                        self._hear_of(partition, wanted)
                    if data.throttles.holds_back(partition, body.replica_id, self.now_ms):
                        most_bytes = HELD_BACK
                elif self.rack and (elsewhere := self._elsewhere(partition, wanted)) is not None:
                    reads.append((wanted, partition, elsewhere, 0))
                    answer_now = True
                    continue
                read = partition.read(
                    wanted.fetch_offset,
                    most_bytes,
                    found == 0 and most_bytes != HELD_BACK,
                    self.isolation_level,
                    wanted.current_leader_epoch,
                    wanted.last_fetched_epoch,
                    self.follower is not None,
                    self.leader_only,
                )
            except CodedError as error:
                reads.append((wanted, partition, None, error.code))
                answer_now = True
                continue
            reads.append((wanted, partition, read, 0))
            wanted.is_settled = self.context.incremental and read.slice is None and not read.is_word
            if read.slice is not None:
                size = read.slice.size_bytes
                found += size
                remaining = max(0, remaining - size)
            elif read.diverging_epoch is not None:
                answer_now = True
        self.remaining, self.found, self.answer_now = remaining, found, answer_now

    def _has_nothing_new(self, partition: Partition, wanted: FetchPartition) -> bool:
        """Whether a follower stands at the end of the log, in sync, and knows all that could be told."""
        follower, log = self.follower, partition.log
        if (
            follower is None
            or wanted.fetch_offset != log.log_end_offset
            or wanted.told_high_watermark != partition.high_watermark
            or wanted.told_log_start_offset != log.log_start_offset
            or wanted.current_leader_epoch != partition.leader_epoch
            or not partition.is_leader
        ):
            return False
        return not self.is_new or partition.record_idle_fetch(follower.replica, follower.broker_epoch, self.now_ms)

    def _hear_of(self, partition: Partition, wanted: FetchPartition) -> None:
        """Takes note of how far a follower is, unless its log is not the beginning of this one."""
        assert self.follower is not None
        if partition.continues(wanted.fetch_offset, wanted.last_fetched_epoch):
            self.request.doors.data.follower_fetched(
                partition, self.follower, wanted.fetch_offset, wanted.log_start_offset
            )

    def _elsewhere(self, partition: Partition, wanted: FetchPartition) -> PartitionRead | None:
        """The answer that sends a consumer to a replica nearer to it; None where it is to read here."""
        preferred = self.request.doors.data.preferred_replica(partition, self.rack, wanted.fetch_offset)
        if preferred is None:
            return None
        partition.check_leader(wanted.current_leader_epoch)
        read = PartitionRead(
            None, partition.high_watermark, partition.last_stable_offset, partition.log.log_start_offset
        )
        read.preferred_replica = preferred
        return read

    def _missing(self, wanted: FetchPartition) -> int:
        doors = self.request.doors
        if self.uses_topic_ids and not wanted.topic:
            return ErrorCode.UNKNOWN_TOPIC_ID
        if self.uses_topic_ids and doors.cluster.topic_id(wanted.topic) != wanted.topic_id:
            return ErrorCode.INCONSISTENT_TOPIC_ID
        return doors.cluster.why_missing(wanted.topic, wanted.index)

    def try_complete(self) -> bool:
        if self.read() or self.has_news:
            self.request.reply(self.response())
            return True
        return False

    def expire(self) -> None:
        self.read()
        self.request.reply(self.response())

    def response(self) -> messages.FetchResponse:
        topics: list[TopicAnswer] = []
        self.tell(self.reads, topics)
        return self.told(topics)

    def tell(self, reads: list[Read], topics: list[TopicAnswer]) -> None:
        """Adds what was read to what has been told."""
        context = self.context
        session = context.session
        current = topics[-1] if topics else None
        for wanted, partition, read, error in reads:
            has_records = read is not None and read.slice is not None
            if session is not None:
                has_news = has_records or error != 0 or (read is not None and read.is_word)
                # Who is told of an error or a divergence does not take note of the offsets: they are told again.
                if read is None or read.diverging_epoch is not None:
                    known = -1, -1
                else:
                    known = read.high_watermark, read.log_start_offset
                if not wanted.must_tell(*known, has_news) and context.incremental:
                    continue
                if has_records:
                    session.move_to_end(key_of(wanted, self.uses_topic_ids))
            if self.follower is not None and read is not None and read.slice is not None and partition is not None:
                self.request.doors.data.throttles.sent(partition, read.slice.size_bytes, self.now_ms)
            if current is None or current.topic != wanted.topic or current.topic_id != wanted.topic_id:
                current = messages.FetchResponse.FetchableTopicResponse.of(
                    topic=wanted.topic, topic_id=wanted.topic_id, partitions=[]
                )
                topics.append(current)
            current.partitions.append(self._partition_data(wanted, partition, read, error))

    def told(self, topics: list[TopicAnswer]) -> messages.FetchResponse:
        response = messages.FetchResponse.of(session_id=self.context.session_id, responses=topics)
        if self.request.version >= FIRST_VERSION_WITH_LEADER_HINTS and any(error for *_, error in self.reads):
            response.node_endpoints = self._leader_endpoints()
        return response

    def _partition_data(
        self, wanted: FetchPartition, partition: Partition | None, read: PartitionRead | None, error: int
    ) -> messages.FetchResponse.PartitionData:
        response = messages.FetchResponse
        if read is None:
            self.request.meter.failed(error)
            self.request.doors.data.replicas.traffic_of(wanted.topic).failed_fetches += 1
            data = response.PartitionData(
                partition_index=wanted.index, error_code=error, high_watermark=-1, records=EMPTY_RECORDS
            )
            if partition is not None:
                data.aborted_transactions = None
            if (
                error in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
                and self.request.version >= FIRST_VERSION_WITH_LEADER_HINTS
            ):
                hint = self.request.doors.cluster.leader_of(wanted.topic, wanted.index)
                if hint is not None:
                    data.current_leader = response.LeaderIdAndEpoch(leader_id=hint[0], leader_epoch=hint[1])
            return data
        data = response.PartitionData.of(
            partition_index=wanted.index,
            high_watermark=read.high_watermark,
            last_stable_offset=read.last_stable_offset,
            log_start_offset=read.log_start_offset,
            aborted_transactions=None,
            preferred_read_replica=read.preferred_replica,
            records=EMPTY_RECORDS if read.slice is None else read.slice.part(),
        )
        if read.slice is not None and partition is not None:
            if self.follower is not None:
                partition.traffic.replication_bytes_out += read.slice.size_bytes
            else:
                partition.traffic.bytes_out += read.slice.size_bytes
        if read.diverging_epoch is not None:
            epoch, end_offset = read.diverging_epoch
            data.diverging_epoch = response.EpochEndOffset(epoch=epoch, end_offset=end_offset)
        if self.isolation_level == READ_COMMITTED and self.follower is None:
            data.aborted_transactions = []
            if read.slice is not None and partition is not None:
                aborted = partition.log.aborted_transactions(wanted.fetch_offset, read.slice.next_offset)
                data.aborted_transactions = [
                    response.AbortedTransaction(producer_id=a.producer_id, first_offset=a.first_offset) for a in aborted
                ]
        return data

    def _leader_endpoints(self) -> list[messages.FetchResponse.NodeEndpoint]:
        hints = {
            leader[0]
            for wanted, _, _, error in self.reads
            if error in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
            and (leader := self.request.doors.cluster.leader_of(wanted.topic, wanted.index)) is not None
        }
        endpoint = messages.FetchResponse.NodeEndpoint
        return [
            endpoint(node_id=node.id, host=node.host, port=node.port, rack=node.rack)
            for node in self.request.doors.cluster.nodes(self.request.exchange.connection)
            if node.id in hints
        ]


class LongFetch(PendingFetch):
    """A fetch of so many partitions that others would wait for it: its steps take several turns of the loop."""

    __slots__ = ("looking",)

    def __init__(
        self, request: Request, body: messages.FetchRequest, context: FetchContext, uses_topic_ids: bool
    ) -> None:
        super().__init__(request, body, context, uses_topic_ids)
        #: it is being read again already, or about to be
        self.looking = False

    def answer(self, may_wait: bool) -> Job:
        exchange, listed = self.request.exchange, self.listed
        self.looking = False
        seen = 0 if listed is None else listed.stirs
        self.begin_reading()
        for some in _slices(self.context.partitions):
            if exchange.answered or exchange.connection.closed:
                return
            self.read_on(some)
            yield None
        self.is_new = False
        if not self.enough and may_wait and (self.parked is None or not self.has_news):
            if self.parked is None:
                self.park()
                if listed is not None and listed.stirs != seen:
                    # Something happened to partitions that had been looked at, when this fetch could not be woken yet.
                    self.try_complete()
            return
        if self.parked is not None:
            self.parked.cancel()
        topics: list[TopicAnswer] = []
        for reads in _slices(self.reads):
            self.tell(reads, topics)
            yield None
        response = self.told(topics)
        parts = yield lambda: self.request.encode(response)
        if not exchange.answered:
            exchange.reply(parts)

    def try_complete(self) -> bool:
        """Has it read again, once however often it is woken until then; the answer, if any, ends the wait."""
        if not self.looking:
            self.looking = True
            self.request.doors.slices.add(self.answer(may_wait=True))
        return False

    def expire(self) -> None:
        self.request.doors.slices.add(self.answer(may_wait=False))


T = TypeVar("T")


def _slices(items: list[T]) -> Iterator[list[T]]:
    for at in range(0, len(items), SLICE_PARTITIONS):
        yield items[at : at + SLICE_PARTITIONS]
