"""One partition as this broker sees it: its log, who leads it, and how far its replicas are.

The leader's high watermark is the smallest log end offset in the ISR. With one replica it follows each append at once.
Leadership arrives as versioned state (leader epoch, partition epoch) from the controller; a request that names another
leader epoch is fenced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.log.producers import NO_GUARD, AppendOrigin
from tidelog.replica.traffic import Traffic
from tidelog.wire.batch import NO_TIMESTAMP
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.partitions import TopicPartition

if TYPE_CHECKING:
    from tidelog.log.append import AppendInfo
    from tidelog.log.log import Log
    from tidelog.log.segment import FileSlice
    from tidelog.wire.check import CheckedBatch

READ_COMMITTED: Final = 1
NO_EPOCH: Final = -1
NO_LEADER: Final = -1
#: the special timestamps of ListOffsets
LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6
#: replica ids of a Fetch or ListOffsets that does not come from a follower
CONSUMER_REPLICA: Final = -1
DEBUG_REPLICA: Final = -2


class FollowerState:
    """What the leader knows of one follower, from that follower's own fetches."""

    __slots__ = (
        "last_caught_up_ms",
        "last_fetch_leader_end_offset",
        "last_fetch_ms",
        "log_end_offset",
        "log_start_offset",
    )

    def __init__(self) -> None:
        self.log_end_offset = -1
        self.log_start_offset = -1
        self.last_fetch_ms = 0
        #: the leader's end when the follower last fetched: reaching it means having been in sync then
        self.last_fetch_leader_end_offset = 0
        self.last_caught_up_ms = 0


class PartitionRead:
    """The answer to one partition of a fetch: a slice of a file, or nothing, and the partition's offsets."""

    __slots__ = ("diverging_epoch", "high_watermark", "last_stable_offset", "log_start_offset", "slice")

    def __init__(
        self,
        file_slice: FileSlice | None,
        high_watermark: int,
        last_stable_offset: int,
        log_start_offset: int,
        diverging_epoch: tuple[int, int] | None = None,
    ) -> None:
        self.slice = file_slice
        self.high_watermark = high_watermark
        self.last_stable_offset = last_stable_offset
        self.log_start_offset = log_start_offset
        #: (epoch, end offset) at which the fetcher's log leaves ours, where it does
        self.diverging_epoch = diverging_epoch


class Partition:
    __slots__ = (
        "epoch_start_offset",
        "followers",
        "high_watermark",
        "index",
        "isr",
        "key",
        "leader_epoch",
        "leader_id",
        "local_id",
        "log",
        "partition_epoch",
        "replicas",
        "topic",
        "topic_id",
        "traffic",
    )

    def __init__(
        self, topic: str, topic_id: bytes, index: int, log: Log, local_id: int, traffic: Traffic | None = None
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.key = TopicPartition(topic, index)
        self.log = log
        self.local_id = local_id
        self.traffic = traffic or Traffic()
        self.leader_id = NO_LEADER
        self.leader_epoch = NO_EPOCH
        #: grows with every change of leader or ISR; the controller refuses an ISR change that names an older one
        self.partition_epoch = NO_EPOCH
        self.replicas: tuple[int, ...] = ()
        self.isr: tuple[int, ...] = ()
        self.followers: dict[int, FollowerState] = {}
        self.high_watermark = log.log_start_offset
        #: where the present leader epoch began; until the high watermark is there, "latest" is not known
        self.epoch_start_offset = 0

    def __repr__(self) -> str:
        log = self.log
        return (
            f"{log.name} (leader epoch {self.leader_epoch}, partition epoch {self.partition_epoch}, "
            f"{log.log_start_offset} to {self.high_watermark} of {log.log_end_offset})"
        )

    @property
    def is_leader(self) -> bool:
        return self.leader_id == self.local_id

    @property
    def last_stable_offset(self) -> int:
        """The first offset of the oldest open transaction, else the high watermark."""
        unstable = self.log.first_unstable_offset
        high_watermark = self.high_watermark
        return high_watermark if unstable is None or unstable > high_watermark else unstable

    @property
    def has_enough_in_sync(self) -> bool:
        """`min.insync.replicas` is held; a minimum above the number of replicas means all of them."""
        in_sync = len(self.isr)
        return in_sync >= self.log.config.min_insync_replicas or in_sync >= len(self.replicas)

    # --- leadership ---------------------------------------------------------------------------------

    def lead(
        self, leader_epoch: int, partition_epoch: int, replicas: tuple[int, ...], isr: tuple[int, ...], now_ms: int
    ) -> None:
        """This broker leads from now on; followers must show themselves anew."""
        if leader_epoch < self.leader_epoch:
            return
        new_epoch = leader_epoch > self.leader_epoch
        assert new_epoch or partition_epoch >= self.partition_epoch, f"{self!r} is told of an older state"
        assert self.local_id in isr and set(isr) <= set(replicas), f"{self!r} of {replicas} cannot have the ISR {isr}"
        self.leader_id = self.local_id
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.replicas = replicas
        self.isr = isr
        if new_epoch:
            self.epoch_start_offset = self.log.log_end_offset
            self.log.begin_leader_epoch(leader_epoch)
            self.followers = {replica: FollowerState() for replica in replicas if replica != self.local_id}
            for follower in self.followers.values():
                follower.last_caught_up_ms = now_ms
        if not self.advance_high_watermark():
            self.set_high_watermark(self.high_watermark)

    def resign(self, leader_id: int, leader_epoch: int, partition_epoch: int) -> None:
        """Another broker leads, or none does."""
        if leader_epoch < self.leader_epoch:
            return
        assert leader_epoch > self.leader_epoch or partition_epoch >= self.partition_epoch, f"{self!r}: an older state"
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.followers = {}

    def adopt_log(self, log: Log) -> None:
        """The same records in another directory take the place of the log."""
        assert log.log_start_offset <= self.high_watermark <= log.log_end_offset, f"{self!r} cannot live in {log.path}"
        log.config = self.log.config
        log.producers.take_verifications(self.log.producers)
        if self.is_leader:
            # An epoch in which nothing was written is not in the copy.
            log.begin_leader_epoch(self.leader_epoch)
        self.log = log
        self.set_high_watermark(self.high_watermark)

    def check_leader(self, current_leader_epoch: int = NO_EPOCH, leader_only: bool = True) -> None:
        """Fences a caller that speaks of another leader epoch, or wants a leader where there is none."""
        if current_leader_epoch != NO_EPOCH and current_leader_epoch != self.leader_epoch:
            if current_leader_epoch < self.leader_epoch:
                raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)
        if leader_only and self.leader_id != self.local_id:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def check_follower(self, replica: int, current_leader_epoch: int) -> None:
        """Refuses a fetch in the name of a replica that is not one of this leader's followers."""
        self.check_leader(current_leader_epoch)
        if replica not in self.followers:
            # With the right epoch it may be a replica that this broker has not heard of yet: it is to try again.
            known = current_leader_epoch != NO_EPOCH
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH if known else ErrorCode.NOT_LEADER_OR_FOLLOWER)

    # --- writing ------------------------------------------------------------------------------------

    def append(
        self,
        records: memoryview,
        acks: int,
        now_ms: int,
        zstd_allowed: bool = True,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        guard: int = NO_GUARD,
        transaction_version: int = 0,
        checked: CheckedBatch | None = None,
    ) -> AppendInfo:
        """Appends a message set. With acks=all the ISR must be large enough before it is written."""
        if self.leader_id != self.local_id:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        log = self.log
        if acks == -1 and not self.has_enough_in_sync:
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
        # Before the write: a log that was written to is not left half known.
        assert self.high_watermark <= log.log_end_offset, f"{self!r} has promised more than is in its log"
        info = log.append_as_leader(
            records,
            self.leader_epoch,
            now_ms,
            zstd_allowed,
            origin=origin,
            guard=guard,
            transaction_version=transaction_version,
            checked=checked,
        )
        if len(self.isr) == 1:
            self.set_high_watermark(log.log_end_offset)
        traffic = self.traffic
        traffic.produces += 1
        if info.size_bytes:  # a duplicate has none
            traffic.messages_in += info.last_offset - info.first_offset + 1
            traffic.bytes_in += info.size_bytes
        return info

    def set_high_watermark(self, offset: int) -> None:
        """The one way in which it changes: the log learns which of its transactions are decided for good.

        It must be told even where nothing rises: a log that was opened or cut counts all that it replayed as undecided.
        """
        log = self.log
        assert log.log_start_offset <= offset <= log.log_end_offset, f"{self!r} cannot have the high watermark {offset}"
        assert offset >= self.high_watermark or self.leader_id != self.local_id, f"{self!r} takes back {offset}"
        self.high_watermark = offset
        log.producers.on_high_watermark(offset)

    def advance_high_watermark(self) -> bool:
        """Recomputes the smallest log end offset in the ISR; tells whether the high watermark moved."""
        lowest = self.log.log_end_offset
        for replica in self.isr:
            follower = self.followers.get(replica)
            if follower is not None and follower.log_end_offset < lowest:
                lowest = follower.log_end_offset
        if lowest > self.high_watermark:
            self.set_high_watermark(lowest)
            return True
        return False

    def record_follower_fetch(self, replica: int, fetch_offset: int, log_start_offset: int, now_ms: int) -> bool:
        """A follower's fetch offset is its log end offset. Tells whether the high watermark moved."""
        follower = self.followers.get(replica)
        if follower is None:
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)
        end = self.log.log_end_offset
        if fetch_offset >= end:
            follower.last_caught_up_ms = now_ms
        elif fetch_offset >= follower.last_fetch_leader_end_offset:
            follower.last_caught_up_ms = max(follower.last_caught_up_ms, follower.last_fetch_ms)
        follower.log_end_offset = fetch_offset
        follower.log_start_offset = log_start_offset
        follower.last_fetch_leader_end_offset = end
        follower.last_fetch_ms = now_ms
        return self.advance_high_watermark()

    def delete_records(self, offset: int) -> int:
        """Moves the log's start up to `offset`, -1 for the high watermark; returns where it starts now."""
        self.check_leader()
        if offset == -1:
            offset = self.high_watermark
        if offset < 0 or offset > self.high_watermark:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        self.log.advance_log_start_offset(offset)
        return self.log.log_start_offset

    # --- reading ------------------------------------------------------------------------------------

    def read(
        self,
        fetch_offset: int,
        max_bytes: int,
        min_one_batch: bool,
        isolation_level: int = 0,
        current_leader_epoch: int = NO_EPOCH,
        last_fetched_epoch: int = NO_EPOCH,
        to_log_end: bool = False,
    ) -> PartitionRead:
        """Whole batches from `fetch_offset` up to what the reader may see; a follower may see the log's end."""
        self.traffic.fetches += 1
        self.check_leader(current_leader_epoch)
        log = self.log
        high_watermark = self.high_watermark
        last_stable_offset = self.last_stable_offset
        if last_fetched_epoch != NO_EPOCH:
            diverging = self._divergence(fetch_offset, last_fetched_epoch)
            if diverging is not None:
                return PartitionRead(None, high_watermark, last_stable_offset, log.log_start_offset, diverging)
        if to_log_end:
            visible_end = log.log_end_offset
        elif isolation_level == READ_COMMITTED:
            visible_end = last_stable_offset
        else:
            visible_end = high_watermark
        found = log.read(fetch_offset, max_bytes, visible_end, min_one_batch)
        return PartitionRead(found, high_watermark, last_stable_offset, log.log_start_offset)

    def _divergence(self, fetch_offset: int, last_fetched_epoch: int) -> tuple[int, int] | None:
        """Where the fetcher's log leaves ours: it holds records of an epoch that ended before its offset here."""
        end = self.end_offset_for_epoch(last_fetched_epoch)
        if end is None or fetch_offset < self.log.log_start_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        epoch, end_offset = end
        if epoch < last_fetched_epoch or end_offset < fetch_offset:
            return epoch, end_offset
        return None

    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int] | None:
        """(largest known epoch <= the one asked, the offset at which it ended), or None where none is known."""
        return self.log.leader_epochs.end_offset_for(leader_epoch, self.log.log_end_offset)

    def offset_for_timestamp(self, timestamp: int, isolation_level: int | None) -> tuple[int, int, int]:
        """(timestamp, offset, leader epoch) at a time or special place; offset -1 where there is none.

        `isolation_level` None is a replica's question, which may see up to the log's end.
        """
        log = self.log
        if isolation_level is None:
            visible_end = log.log_end_offset
        elif isolation_level == READ_COMMITTED:
            visible_end = self.last_stable_offset
        else:
            visible_end = self.high_watermark
        lagging = isolation_level is not None and self.epoch_start_offset > self.high_watermark
        if timestamp == LATEST:
            if lagging:
                raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)
            return NO_TIMESTAMP, visible_end, self.leader_epoch
        if timestamp in (EARLIEST, EARLIEST_LOCAL):
            start = log.log_start_offset
            return NO_TIMESTAMP, start, log.leader_epochs.earliest_epoch_at(start)
        if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
            return NO_TIMESTAMP, -1, NO_EPOCH
        found = log.max_timestamp_offset() if timestamp == MAX_TIMESTAMP else log.offset_for_timestamp(timestamp)
        if found is None or found.offset >= visible_end:
            if lagging:
                raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)
            return NO_TIMESTAMP, -1, NO_EPOCH
        return found.timestamp, found.offset, found.leader_epoch
