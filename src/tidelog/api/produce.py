"""Produce, versions 0-13: append each partition's message set to the log that this broker leads.

Versions 0-2 carry message formats that are no longer taken: they are advertised, because librdkafka reads
compression support off the minimum, and answered with UNSUPPORTED_VERSION. Topic ids from 13, leader hints from 10.
acks=0 has no answer; an error then closes the connection, which is the only way to tell the producer.
acks=all with other replicas in the ISR is parked until the high watermark has passed its records; a topic that
flushes on append is answered after the flush. In the shared layout all that a turn of the loop appends is written at
its end, and answered then. Batches that unpack to much are checked on a worker's thread, and many
partitions are written in slices: others are served meanwhile.

Unlike Apache Kafka, every refusal says why in its error message, and a partition that is named twice in a request is
written and answered twice: Kafka keeps one of the two and drops the other's records in silence.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from tidelog.api.produce_reply import FIRST_VERSION, WITHOUT_LOG_START, ProduceReplies, single_response
from tidelog.control.topic_names import INTERNAL_TOPICS
from tidelog.coordinator.parcel_delivery import is_delivery, known_delivery
from tidelog.coordinator.transactions import producer_error
from tidelog.log.producers import NO_GUARD, NOT_REQUIRED, ProducerRefused
from tidelog.node.data_plane import Held
from tidelog.wire import messages
from tidelog.wire.batch import ATTRIBUTES_AT, HEADER_SIZE, TRANSACTIONAL_FLAG, NotOneBatch, read_header
from tidelog.wire.check import MEDIUM_BYTES, CheckedBatch, TakesLong, check_produced
from tidelog.wire.errors import CodedError, ErrorCode, KafkaError, untraced
from tidelog.wire.partitions import TopicPartition

if TYPE_CHECKING:
    from tidelog.api.request import Request
    from tidelog.log.append import AppendInfo
    from tidelog.log.log_dir import LogDir
    from tidelog.replica.partition import Partition
    from tidelog.timer.parking import Parked
    from tidelog.timer.slices import Job, Work

    Answer = messages.ProduceResponse.PartitionProduceResponse

FIRST_SUPPORTED_VERSION: Final = 3
FIRST_VERSION_WITH_ZSTD: Final = 7
FIRST_VERSION_WITH_LEADER_HINTS: Final = 10
#: transactions of the newer kind: an error that only aborts, and partitions that are added by writing to them
FIRST_VERSION_WITH_ABORTABLE: Final = 11
FIRST_VERSION_THAT_ADDS: Final = 12
FIRST_VERSION_WITH_TOPIC_IDS: Final = 13
ADMIN_CLIENT: Final = "__admin_client"
#: of one request, after which others are served
SLICE_MS: Final = 5
_REPLIES: Final = ProduceReplies()
#: the lower byte of a batch's attributes
_FLAGS_AT: Final = ATTRIBUTES_AT + 1


def handle(body: messages.ProduceRequest, request: Request) -> None:
    topics = body.topic_data
    if len(topics) == 1 and len(topics[0].partition_data) == 1 and _append_single(body, topics[0], request):
        return
    produce = PendingProduce(request, body)
    if any(_is_transactional(data.records) for topic in topics for data in topic.partition_data):
        produce.verify()
    else:
        produce.append_all()


def _append_single(
    body: messages.ProduceRequest, topic: messages.ProduceRequest.TopicProduceData, request: Request
) -> bool:
    """Records of one partition: most requests are this, and it is answered without building a message.

    False where it is anything else; nothing has happened then, and the general way is taken.
    """
    version, acks = request.version, body.acks
    if version < FIRST_VERSION or acks not in (1, -1):
        return False
    doors = request.doors
    by_id = version >= FIRST_VERSION_WITH_TOPIC_IDS
    name = doors.cluster.topic_name(topic.topic_id) if by_id else topic.name
    data = topic.partition_data[0]
    index, records = data.index, data.records
    partition = doors.data.replicas.partitions.get((name, index))
    if partition is None or name in INTERNAL_TOPICS or records is None:
        return False
    if len(records) >= HEADER_SIZE and records[_FLAGS_AT] & TRANSACTIONAL_FLAG:
        return False  # as `_is_transactional`, without the call
    try:
        info = partition.append(records, acks, doors.host.clock.wall_ms(), version >= FIRST_VERSION_WITH_ZSTD)
    except TakesLong:
        return False
    except CodedError as error:
        # Not to be tried a second time: a write that failed has left its offset in the batch.
        produce = PendingProduce(request, body)
        produce.refusals[partition.key] = untraced(error)
        produce.append_all()
        return True
    doors.data.appended(partition)
    named = topic.topic_id if by_id else name
    if acks == -1 and partition.high_watermark <= info.last_offset:
        AwaitedProduce(request, partition, info.last_offset + 1, named, info).wait(body.timeout_ms)
    elif info.flush_due or doors.data.writing.is_due:
        AwaitedProduce(request, partition, 0, named, info).wait(body.timeout_ms)
    else:
        request.exchange.reply((_REPLIES.frame(version, named, index, request.correlation_id, info),))
    return True


class AwaitedProduce:
    """Records of one partition that are appended, and acknowledged as soon as they are written, or flushed where the
    topic wants that, and all in the ISR have them."""

    __slots__ = ("end_offset", "info", "is_stored", "named", "parked", "partition", "request")

    def __init__(
        self, request: Request, partition: Partition, end_offset: int, named: str | bytes, info: AppendInfo
    ) -> None:
        self.request = request
        self.partition = partition
        #: the high watermark that acknowledges them; 0 where none is waited for
        self.end_offset = end_offset
        #: the topic as the client calls it, by name or by id
        self.named = named
        self.info = info
        self.is_stored = True
        self.parked: Parked | None = None

    def wait(self, timeout_ms: int) -> None:
        doors = self.request.doors
        if self.end_offset or self.info.flush_due:
            # Of a flush nobody tells by way of the partition; but a device may take its time.
            keys = (self.partition.key,) if self.end_offset else ()
            deadline_ms = doors.host.clock.monotonic_ms() + timeout_ms
            self.parked = doors.data.parking.park(keys, deadline_ms, self.try_complete, self.expire)
        if self.info.flush_due:
            # What was put off is written before it is synced.
            self.is_stored = False
            doors.data.flushing.flush(self.partition.log, self._stored)
        elif doors.data.writing.is_due:
            self.is_stored = False
            doors.data.writing.when_written(self._written)
        if not self.request.exchange.answered:
            self.request.exchange.allow_next()

    def try_complete(self) -> bool:
        if self.end_offset:
            error = self.partition.why_not_committed_soon()
            if error is not ErrorCode.NONE:
                self._fail(error)
                return True
            if self.partition.high_watermark < self.end_offset:
                return False
            # Whatever becomes of the leader from here on, nothing but the disk is waited for.
            self.end_offset = 0
        if not self.is_stored:
            return False
        self._acknowledge()
        return True

    def _written(self, failed: Collection[LogDir]) -> None:
        is_lost = self.partition.log.directory in failed
        self._stored(ErrorCode.KAFKA_STORAGE_ERROR if is_lost else ErrorCode.NONE)

    def _stored(self, error: ErrorCode) -> None:
        self.is_stored = True
        if self.request.exchange.answered:
            return
        if error is not ErrorCode.NONE:
            self._fail(error)
        elif self.parked is None:
            self._acknowledge()
        elif not self.try_complete():
            return
        if self.parked is not None:
            self.parked.cancel()

    def _acknowledge(self) -> None:
        request, index = self.request, self.partition.index
        frame = _REPLIES.frame(request.version, self.named, index, request.correlation_id, self.info)
        request.exchange.reply((frame,))

    def expire(self) -> None:
        self._fail(ErrorCode.REQUEST_TIMED_OUT)

    def _fail(self, error: ErrorCode) -> None:
        info = self.info
        offsets = (info.first_offset, info.log_append_time_ms, info.log_start_offset)
        self.request.reply(single_response(self.named, self.partition.index, *offsets, error_code=error))


class AtLength:
    """Work that takes long even for what is done elsewhere: it waits among its like, and nothing else behind it."""

    __slots__ = ("_work",)

    def __init__(self, work: Callable[[], CheckedBatch]) -> None:
        self._work = work

    def __call__(self) -> CheckedBatch:
        return self._work()


class PendingProduce:
    __slots__ = (
        "body",
        "failed",
        "flushing",
        "guards",
        "parked",
        "put_off",
        "refusals",
        "request",
        "response",
        "unverified",
        "waits",
    )

    def __init__(self, request: Request, body: messages.ProduceRequest) -> None:
        self.request = request
        self.body = body
        self.failed = False
        #: there as soon as everything is appended or refused
        self.response: messages.ProduceResponse
        #: what followers must have before the answer, and what is answered of it
        self.waits: list[tuple[Held, Answer]] = []
        #: what was appended and is still to be written, and what is answered of it
        self.put_off: list[tuple[Partition, Answer]] = []
        #: writes and flushes on their way: a topic that flushes on append is not acknowledged before
        self.flushing = 0
        #: what the coordinator said of partitions that a transaction writes to: a guard for the append, or an error
        self.guards: dict[TopicPartition, int] = {}
        self.refusals: dict[TopicPartition, CodedError] = {}
        self.unverified: set[TopicPartition] = set()
        self.parked: Parked | None = None

    def append_all(self) -> None:
        """Appends, then answers: at once, or where it takes long in slices and beside the broker's thread."""
        job = self._appending()
        try:
            first = next(job)
        except StopIteration:
            return
        self._go_on(job, first, self._keep_records())

    def _go_on(self, job: Job, work: Work | None, size_bytes: int) -> None:
        """Has the rest of a job that has begun, and wants `work` done, done in its turn."""
        request, doors = self.request, self.request.doors
        at_length = isinstance(work, AtLength)
        lane = doors.unpacking_much if at_length else doors.unpacking
        if not lane.add(self._resumed(job, work, size_bytes, at_length), size_bytes):
            request.exchange.hang_up("too many long requests wait to be written")

    def _resumed(self, job: Job, work: Work | None, size_bytes: int, at_length: bool) -> Job:
        request = self.request
        try:
            while at_length or not isinstance(work, AtLength):
                try:
                    result = yield work
                except Exception as error:
                    work = job.throw(error)
                else:
                    work = job.send(result)
            self._go_on(job, work, size_bytes)
        except StopIteration:
            return
        except Exception as error:
            request.doors.host.report(f"{request} failed", error)
            if not request.exchange.answered:
                request.exchange.close()

    def finish(self) -> None:
        """Everything is appended or refused: answers, or waits for what must come before the answer."""
        request = self.request
        if self.body.acks == 0:
            if self.failed:
                request.exchange.close()
            else:
                request.no_reply()
            return
        if request.doors.data.writing.is_due:
            self.flushing += 1
            request.doors.data.writing.when_written(self._written)
        if not (self.waits or self.flushing):
            request.reply(self.response)
        elif not self.try_complete():  # the followers may have caught up while the rest was appended in its turn
            self.park()

    def verify(self) -> None:
        """Asks the coordinator about the partitions that a transaction writes to for the first time, then appends."""
        body, request = self.body, self.request
        adds = request.version >= FIRST_VERSION_THAT_ADDS
        # Without a transactional id nobody can be asked, and the records are refused.
        transactional_id = body.transactional_id
        unverified = None if transactional_id is None else self._begin_verifications(adds)
        if transactional_id is None or not unverified:
            self.append_all()
            return
        answered = False

        def verified(codes: Mapping[TopicPartition, ErrorCode]) -> None:
            nonlocal answered
            answered = True
            for key, code in codes.items():
                if code is not ErrorCode.NONE:
                    self.refusals[key] = producer_error(code, request.version >= FIRST_VERSION_WITH_ABORTABLE, adds)
                    self.unverified.add(key)
            self.append_all()

        producer_id, producer_epoch = unverified
        request.doors.transactions.verify(
            transactional_id, producer_id, producer_epoch, list(self.guards), adds, verified
        )
        if not answered:
            self._keep_records()  # the coordinator takes its time

    def _keep_records(self) -> int:
        """Copies the records, since the frame is only lent; how many bytes that are."""
        size_bytes = 0
        for topic in self.body.topic_data:
            for data in topic.partition_data:
                if data.records is not None:
                    data.records = memoryview(bytearray(data.records))
                    size_bytes += len(data.records)
        return size_bytes

    def _begin_verifications(self, adds: bool) -> tuple[int, int] | None:
        """Takes a guard from each log where the transaction has nothing yet; the producer's id and epoch if any had."""
        doors, request = self.request.doors, self.request
        by_id = request.version >= FIRST_VERSION_WITH_TOPIC_IDS
        batches = []
        for topic in self.body.topic_data:
            name = doors.cluster.topic_name(topic.topic_id) if by_id else topic.name
            for data in topic.partition_data:
                partition = doors.data.replicas.partitions.get((name, data.index))
                records = data.records
                if partition is None or records is None or not _is_transactional(records):
                    continue
                if partition.is_leader:
                    batches.append((partition, read_header(records)))
                else:
                    # Before anybody is asked: a client that comes to the wrong broker is to look for the right one.
                    self.refusals[partition.key] = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if len({(header.producer_id, header.producer_epoch) for _, header in batches}) > 1:
            self._refuse_several_producers(partition for partition, _ in batches)
            return None
        producer = None
        for partition, header in batches:
            if not adds and not doors.config.values.transaction_partition_verification_enable:
                self.guards[partition.key] = NOT_REQUIRED
                continue
            try:
                guard = partition.log.producers.begin_verification(
                    header.producer_id,
                    header.base_sequence,
                    header.producer_epoch,
                    supports_epoch_bump=adds,
                    now_ms=doors.host.clock.wall_ms(),
                )
            except ProducerRefused as refused:
                self.refusals[partition.key] = untraced(refused)
                self.unverified.add(partition.key)
                continue
            if guard != NO_GUARD:
                self.guards[partition.key] = guard
                producer = (header.producer_id, header.producer_epoch)
        return producer

    def _refuse_several_producers(self, partitions: Iterable[Partition]) -> None:
        """The coordinator would be asked about one of them, and its answer be taken for the others."""
        for partition in partitions:
            why = "the transactional records of a request must be of one producer"
            self.refusals[partition.key] = KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, why)
            self.unverified.add(partition.key)

    def _appending(self) -> Job:
        body, request = self.body, self.request
        doors = request.doors
        now_ms = doors.host.clock.wall_ms()
        slice_end_ms = doors.host.clock.monotonic_ms() + SLICE_MS
        by_id = request.version >= FIRST_VERSION_WITH_TOPIC_IDS
        topic_response = messages.ProduceResponse.TopicProduceResponse
        topics = []
        for topic in body.topic_data:
            name = doors.cluster.topic_name(topic.topic_id) if by_id else topic.name
            partitions = []
            for data in topic.partition_data:
                try:
                    try:
                        answer = self._append(name, data, now_ms)
                    except TakesLong as long:
                        checked = yield from self._check(name, data, now_ms, long.expected_bytes)
                        answer = self._append(name, data, now_ms, checked)
                except CodedError as error:
                    answer = self._refuse_unless_known(name, data, error)
                except Exception as broken:
                    # That partition's trouble alone; and nobody else would answer a request that has waited.
                    doors.host.report(f"{request} could not be appended to {name}-{data.index}", broken)
                    answer = self._refuse(name, data.index, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))
                partitions.append(answer)
                if doors.host.clock.monotonic_ms() >= slice_end_ms:
                    yield None
                    slice_end_ms = doors.host.clock.monotonic_ms() + SLICE_MS
            if partitions:
                topics.append(topic_response(name=topic.name, topic_id=topic.topic_id, partition_responses=partitions))
        self.response = messages.ProduceResponse(responses=topics)
        if self.failed and request.version >= FIRST_VERSION_WITH_LEADER_HINTS:
            self._add_endpoints()
        self.finish()

    def _check(
        self, name: str, data: messages.ProduceRequest.PartitionProduceData, now_ms: int, expected_bytes: int
    ) -> Generator[Work, CheckedBatch, CheckedBatch]:
        """On another thread; where it does not say that it takes long, only as long as others may wait at first.

        The records are those that `data` has by then.
        """
        rules = self.request.doors.data.replicas.partitions[name, data.index].log.config.rules

        def check(most_bytes: int = rules.max_unpacked_bytes) -> CheckedBatch:
            assert data.records is not None  # what takes long is there
            return check_produced(data.records, rules, now_ms, most_bytes=most_bytes)

        if expected_bytes <= MEDIUM_BYTES:
            try:
                return (yield lambda: check(MEDIUM_BYTES))
            except TakesLong:
                pass
        return (yield AtLength(check))

    def _append(
        self,
        name: str,
        data: messages.ProduceRequest.PartitionProduceData,
        now_ms: int,
        checked: CheckedBatch | None = None,
    ) -> Answer:
        request = self.request
        doors = request.doors
        acks = self.body.acks
        partition = doors.data.replicas.partitions.get((name, data.index))
        if partition is None:
            raise self._missing(name, data.index)
        if acks not in (-1, 0, 1):
            raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)
        if request.version < FIRST_SUPPORTED_VERSION:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        if name in INTERNAL_TOPICS and request.client_id != ADMIN_CLIENT:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} is written by the broker only")
        records = data.records
        if records is None:
            raise KafkaError(ErrorCode.INVALID_RECORD, "a produce without records")
        if self.body.transactional_id is None and _is_transactional(records):
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "transactional records need an id")
        refusal = self.refusals.get(partition.key)
        if refusal is not None:
            # Not raised: its traceback would tie this very object, and the request with it, into a cycle.
            return self._refuse_unless_known(name, data, refusal)
        guard = self.guards.get(partition.key, NO_GUARD)
        zstd_allowed = request.version >= FIRST_VERSION_WITH_ZSTD
        info = partition.append(records, acks, now_ms, zstd_allowed, guard=guard, checked=checked)
        doors.data.appended(partition)
        return self._acknowledge(partition, info)

    def _acknowledge(self, partition: Partition, info: AppendInfo) -> Answer:
        """At once, or as soon as enough replicas have what was appended, and it is on the disk."""
        doors = self.request.doors
        response = messages.ProduceResponse.PartitionProduceResponse(
            index=partition.index,
            base_offset=info.first_offset,
            log_append_time_ms=info.log_append_time_ms,
            log_start_offset=partition.log.log_start_offset,
        )
        if doors.data.writing.is_due:
            self.put_off.append((partition, response))
        if self.body.acks == -1 and partition.high_watermark <= info.last_offset:
            self.waits.append((Held(partition, info.last_offset + 1, partition.resignations), response))
        if info.flush_due:
            self._flush(partition, response)
        return response

    def _missing(self, name: str, index: int) -> KafkaError:
        doors = self.request.doors
        if not name and self.request.version >= FIRST_VERSION_WITH_TOPIC_IDS:
            return KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        return KafkaError(doors.cluster.why_missing(name, index))

    def _refuse_unless_known(
        self, name: str, data: messages.ProduceRequest.PartitionProduceData, error: CodedError
    ) -> Answer:
        """What another broker delivers, and delivered before, is acknowledged whatever the topic refuses by now."""
        partition = self.request.doors.data.replicas.partitions.get((name, data.index))
        if partition is not None and data.records is not None and is_delivery(self.request.client_id):
            known = known_delivery(partition, data.records, error)
            if not isinstance(known, CodedError):
                return self._acknowledge(partition, known)
            error = untraced(known)
        return self._refuse(name, data.index, error)

    def _refuse(self, name: str, index: int, error: CodedError) -> Answer:
        self.failed = True
        response = messages.ProduceResponse
        code = error.code
        self.request.meter.failed(code)
        self.request.doors.data.replicas.traffic_of(name).failed_produces += 1
        refusal = response.PartitionProduceResponse(
            index=index,
            error_code=code,
            base_offset=-1,
            log_append_time_ms=-1,
            log_start_offset=self._log_start_offset(name, index, error),
            error_message=str(error),
            record_errors=[
                response.BatchIndexAndErrorMessage(batch_index=at, batch_index_error_message=why)
                for at, why in getattr(error, "record_errors", ())
            ],
        )
        if code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            leader = self.request.doors.cluster.leader_of(name, index)
            if leader is not None:
                refusal.current_leader = response.LeaderIdAndEpoch(leader_id=leader[0], leader_epoch=leader[1])
        return refusal

    def _log_start_offset(self, name: str, index: int, error: CodedError) -> int:
        """Where the log begins, told with a refusal that came from the log; -1 with one that came before it."""
        partition = self.request.doors.data.replicas.partitions.get((name, index))
        before_log = isinstance(error, NotOneBatch) or error.code in WITHOUT_LOG_START
        if partition is None or before_log or (name, index) in self.unverified:
            return -1
        return partition.log.log_start_offset

    def _add_endpoints(self) -> None:
        leaders = {
            partition.current_leader.leader_id
            for topic in self.response.responses
            for partition in topic.partition_responses
            if partition.current_leader is not None
        }
        endpoint = messages.ProduceResponse.NodeEndpoint
        self.response.node_endpoints = [
            endpoint(node_id=node.id, host=node.host, port=node.port, rack=node.rack)
            for node in self.request.doors.cluster.nodes(self.request.exchange.connection)
            if node.id in leaders
        ]

    # --- waiting for other replicas, and for the disk -------------------------------------------------

    def _written(self, failed: Collection[LogDir]) -> None:
        for partition, response in self.put_off if failed else ():
            if partition.log.directory in failed:
                response.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        self._one_less()

    def _one_less(self) -> None:
        """Something that belongs on the disk is there, or cannot be."""
        self.flushing -= 1
        if self.parked is not None and self.parked.waiting and self.try_complete():
            self.parked.cancel()

    def _flush(self, partition: Partition, response: Answer) -> None:
        def flushed(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                response.error_code = error
            self._one_less()

        self.flushing += 1
        self.request.doors.data.flushing.flush(partition.log, flushed)

    def park(self) -> None:
        request = self.request
        doors = request.doors
        self.parked = doors.data.parking.park(
            [held.partition.key for held, _ in self.waits],
            doors.host.clock.monotonic_ms() + self.body.timeout_ms,
            self.try_complete,
            self.expire,
        )
        request.exchange.allow_next()

    def try_complete(self) -> bool:
        still_waiting = []
        for held, response in self.waits:
            # It is not parked before all is appended: a leader may have stopped leading, and begun again, by then.
            error = held.partition.why_not_committed_soon() if held.is_led else ErrorCode.NOT_LEADER_OR_FOLLOWER
            if error is not ErrorCode.NONE:
                response.error_code = error
            elif held.partition.high_watermark < held.end_offset:
                still_waiting.append((held, response))
        self.waits = still_waiting
        if still_waiting or self.flushing:
            return False
        self.request.reply(self.response)
        return True

    def expire(self) -> None:
        for _, response in self.waits:
            response.error_code = ErrorCode.REQUEST_TIMED_OUT
        if self.flushing:
            for topic in self.response.responses:
                for partition in topic.partition_responses:
                    partition.error_code = partition.error_code or ErrorCode.REQUEST_TIMED_OUT
        self.request.reply(self.response)


def _is_transactional(records: memoryview | None) -> bool:
    return records is not None and len(records) >= HEADER_SIZE and bool(records[_FLAGS_AT] & TRANSACTIONAL_FLAG)
