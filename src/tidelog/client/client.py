"""The client: the entry point to a cluster.

    with Client("localhost:9092") as client:
        client.admin.create_topic("orders", partitions=3)
        client.produce("orders", [Message(b"one"), Message(b"two", key=b"k")])
        for record in client.read("orders", 0, from_offset="earliest", until_offset="latest"):
            print(record.offset, record.value)

It is blocking and meant for one thread. Temporary failures are retried until `timeout_s` has passed. After that a
`ClientError` is raised that says which request to which broker failed, and what to do next.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any

from tidelog.client.cluster import Cluster, ClusterInfo, TopicInfo
from tidelog.client.errors import ClientError
from tidelog.client.offsets import EARLIEST, OffsetAt, When, check_partitions, list_offsets
from tidelog.client.producer import Delivered, Message, Producer
from tidelog.client.reader import (
    MAX_BYTES,
    MAX_WAIT_MS,
    PARTITION_MAX_BYTES,
    Fetched,
    Isolation,
    Reader,
    Span,
    chunk_records,
)
from tidelog.wire.records import Record

if TYPE_CHECKING:
    from tidelog.client.admin import Admin
    from tidelog.client.delayed_messages import DelayedMessages
    from tidelog.client.group_member import GroupMember
    from tidelog.client.groups import Groups
    from tidelog.client.half_messages import HalfMessages
    from tidelog.client.share_groups import ShareGroups
    from tidelog.client.transactional import TransactionalProducer
    from tidelog.client.transactions import Transactions

DEFAULT_TIMEOUT_S = 30.0


class Client:
    """With `wait_for_first` also a first contact that fails everywhere is tried again, until `timeout_s` is over."""

    def __init__(
        self,
        bootstrap: str,
        client_id: str = "tidelog",
        timeout_s: float = DEFAULT_TIMEOUT_S,
        wait_for_first: bool = False,
    ) -> None:
        self.cluster = Cluster(bootstrap, client_id, timeout_s, wait_for_first)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.cluster.close()

    # --- what there is ------------------------------------------------------------------------------

    def describe(self, topics: Iterable[str] | None = None) -> ClusterInfo:
        """The brokers, and the topics named; all topics for None."""
        wanted = None if topics is None else list(topics)
        return self.cluster.retrying(lambda: self.cluster.describe(wanted))

    def describe_health(self, topics: Iterable[str] | None = None) -> ClusterInfo:
        """As `describe`, knowing which replicas are being added by a move: they do not count as missing."""
        described = self.describe(topics)
        if not any(p.under_replicated for topic in described.topics.values() for p in topic.partitions.values()):
            return described
        try:
            moves = self.admin.reassignments()
        except ClientError:
            # Not every broker that can be asked for the rest knows of moves.
            return described
        for (name, index), move in moves.items():
            partitions = described.topics[name].partitions if name in described.topics else {}
            if index in partitions:
                # A move may have ended since the topics were described, or begun.
                adding = [replica for replica in move.adding if replica in partitions[index].replicas]
                partitions[index] = partitions[index]._replace(adding=adding)
        return described

    def topic(self, name: str) -> TopicInfo:
        return self.cluster.topic(name)

    def offsets(
        self,
        topic: str,
        partitions: Iterable[int] | None = None,
        when: When = "latest",
        isolation: Isolation = "read_uncommitted",
    ) -> dict[int, OffsetAt]:
        """Partition -> offset at "earliest", "latest", "max-timestamp" or a time in milliseconds; of all for None."""
        wanted = None if partitions is None else check_partitions(self.cluster.known_topic(topic), partitions)
        return list_offsets(self.cluster, topic, wanted, when, isolation)

    @cached_property
    def admin(self) -> Admin:
        from tidelog.client.admin import Admin  # late: a reader or writer does not need it

        return Admin(self.cluster)

    @cached_property
    def groups(self) -> Groups:
        from tidelog.client.groups import Groups  # late, as above

        return Groups(self.cluster)

    def group_member(self, group_id: str, topics: Iterable[str]) -> GroupMember:
        """A member of a group, which joins when it is first polled."""
        from tidelog.client.group_member import GroupMember  # late, as above

        return GroupMember(self.cluster, group_id, list(topics))

    @cached_property
    def share_groups(self) -> ShareGroups:
        from tidelog.client.share_groups import ShareGroups  # late, as above

        return ShareGroups(self.cluster)

    @cached_property
    def delays(self) -> DelayedMessages:
        from tidelog.client.delayed_messages import DelayedMessages  # late, as above

        return DelayedMessages(self.cluster)

    @cached_property
    def halves(self) -> HalfMessages:
        from tidelog.client.half_messages import HalfMessages  # late, as above

        return HalfMessages(self)

    @cached_property
    def transactions(self) -> Transactions:
        from tidelog.client.transactions import Transactions  # late, as above

        return Transactions(self.cluster)

    # --- writing ------------------------------------------------------------------------------------

    def producer(self, **options: Any) -> Producer:
        """A producer that keeps its id and sequence numbers; its options are those of `Producer`."""
        return Producer(self.cluster, **options)

    def transactional_producer(self, transactional_id: str, **options: Any) -> TransactionalProducer:
        """Takes the transactional id and fences who had it; its options are those of `TransactionalProducer`."""
        from tidelog.client.transactional import TransactionalProducer  # late: few write in transactions

        return TransactionalProducer(self.cluster, transactional_id, **options)

    def produce(
        self, topic: str, records: Iterable[Message | bytes], *, partition: int | None = None, **options: Any
    ) -> list[Delivered]:
        """Writes records and returns when they are acknowledged: where each run of them went."""
        producer = Producer(self.cluster, **options)
        for record in records:
            if isinstance(record, Message):
                value, key, headers, timestamp_ms = record
                producer.send(topic, value, key, headers, partition=partition, timestamp_ms=timestamp_ms)
            else:
                producer.send(topic, record, partition=partition)
        producer.flush()
        return producer.delivered

    # --- reading ------------------------------------------------------------------------------------

    def read(
        self,
        topic: str,
        partition: int,
        *,
        from_offset: int | When = EARLIEST,
        until_offset: int | When | None = "latest",
        isolation: Isolation = "read_uncommitted",
        partition_max_bytes: int = PARTITION_MAX_BYTES,
    ) -> Iterator[Record]:
        """The records of a partition from an offset up to another, exclusive.

        Both are offsets, or "earliest" or "latest" as of now. Without an end (None) it goes on for ever, and with one
        that does not exist yet it waits for it.
        """
        spans = self.spans(topic, {partition: (from_offset, until_offset)}, isolation)
        reader = Reader(self.cluster, spans, isolation=isolation, partition_max_bytes=partition_max_bytes)
        for chunk in reader.chunks():
            yield from chunk_records(chunk)

    def reader(self, spans: list[Span], **options: Any) -> Reader:
        """Reads several partitions together; its options are those of `Reader`."""
        return Reader(self.cluster, spans, **options)

    def spans(
        self,
        topic: str,
        ranges: Mapping[int, tuple[int | When, int | When | None]],
        isolation: Isolation = "read_uncommitted",
    ) -> list[Span]:
        """Ranges with words in them, resolved to offsets: partition -> (from, until)."""
        check_partitions(self.cluster.known_topic(topic), ranges)
        resolved: dict[tuple[int, str], int] = {}
        for word in ("earliest", "latest"):
            asked = [p for p, ends in ranges.items() if word in ends]
            if asked:
                found = list_offsets(self.cluster, topic, asked, word, isolation)
                resolved.update({(partition, word): at.offset for partition, at in found.items()})

        def offset(partition: int, end: int | When) -> int:
            return resolved[partition, end] if isinstance(end, str) else end

        return [
            Span(topic, partition, offset(partition, first), None if until is None else offset(partition, until))
            for partition, (first, until) in ranges.items()
        ]

    def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        isolation: Isolation = "read_uncommitted",
        max_bytes: int = MAX_BYTES,
        max_wait_ms: int = MAX_WAIT_MS,
        min_bytes: int = 1,
    ) -> Fetched:
        """One fetch: batches as they lie in the log, not decoded; empty where nothing came in `max_wait_ms`."""
        reader = Reader(
            self.cluster,
            [Span(topic, partition, offset)],
            isolation=isolation,
            max_bytes=max_bytes,
            partition_max_bytes=max_bytes,
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
        )
        return reader.once()[0].fetched
