"""One partition as this broker sees it: its log, who leads it, and how far its replicas are.

The leader's high watermark is the smallest log end offset in the ISR (`in_sync`). With one replica it follows each
append at once. Leadership arrives as versioned state (leader epoch, partition epoch) from the controller: what is older
than what is known changes nothing, and a request that names another leader epoch is fenced.

A follower appends what its leader sends, and its high watermark follows the leader's. Where its log has left the
leader's, the leader says at which epoch, and it cuts its log before it appends anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.log.errors import UnexpectedAppendOffset
from tidelog.log.producers import NO_GUARD, AppendOrigin
from tidelog.replica.in_sync import NO_BROKER_EPOCH, REFUSED_MS, InSync, IsrProposal
from tidelog.replica.traffic import Traffic
from tidelog.wire.batch import NO_TIMESTAMP
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.partitions import TopicPartition

if TYPE_CHECKING:
    from tidelog.log.append import AppendInfo
    from tidelog.log.log import Log
    from tidelog.log.segment import Slice
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


class PartitionRead:
    """The answer to one partition of a fetch: a slice of a file, or nothing, and the partition's offsets."""

    __slots__ = (
        "diverging_epoch",
        "high_watermark",
        "last_stable_offset",
        "log_start_offset",
        "preferred_replica",
        "slice",
    )

    def __init__(
        self,
        file_slice: Slice | None,
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
        #: the replica that a consumer is to read from instead of this one, -1 for none
        self.preferred_replica = -1

    @property
    def is_word(self) -> bool:
        """Without records it still says something: that the fetcher's log diverges, or that it is to read elsewhere."""
        return self.diverging_epoch is not None or self.preferred_replica >= 0


class Partition:
    __slots__ = (
        "epoch_start_offset",
        "high_watermark",
        "in_sync",
        "index",
        "key",
        "leader_epoch",
        "leader_id",
        "local_id",
        "log",
        "partition_epoch",
        "replicas",
        "resignations",
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
        self.in_sync = InSync()
        self.high_watermark = log.log_start_offset
        #: where the present leader epoch began; until the high watermark is there, "latest" is not known
        self.epoch_start_offset = 0
        #: how often this broker has stopped leading: what it had appended before may have been cut off since
        self.resignations = 0

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
    def isr(self) -> tuple[int, ...]:
        """As the controller last said."""
        return self.in_sync.isr

    @property
    def last_stable_offset(self) -> int:
        """The first offset of the oldest open transaction, else the high watermark."""
        unstable = self.log.first_unstable_offset
        high_watermark = self.high_watermark
        return high_watermark if unstable is None or unstable > high_watermark else unstable

    @property
    def has_enough_in_sync(self) -> bool:
        """Whether `min.insync.replicas` is met; a minimum above the number of replicas means all of them."""
        return self._suffices(len(self.in_sync.isr))

    @property
    def may_have_enough_in_sync(self) -> bool:
        """The same, but a member counts as soon as the controller was asked to add it."""
        return self._suffices(len(self.in_sync.maximal))

    def _suffices(self, members: int) -> bool:
        return members >= self.log.config.min_insync_replicas or members >= len(self.replicas)

    def why_not_committed_soon(self) -> ErrorCode:
        """Why the high watermark will not reach what was appended, or not soon; NONE where it may."""
        if not self.is_leader:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if not self.may_have_enough_in_sync:
            # Told at once: the high watermark does not move before there are enough again.
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return ErrorCode.NONE

    # --- leadership ---------------------------------------------------------------------------------

    def lead(
        self, leader_epoch: int, partition_epoch: int, replicas: tuple[int, ...], isr: tuple[int, ...], now_ms: int
    ) -> None:
        """This broker leads from now on, or goes on with other replicas or another ISR."""
        if not self._is_news(leader_epoch, partition_epoch):
            return
        new_epoch = leader_epoch > self.leader_epoch
        new_isr = partition_epoch > self.partition_epoch
        assert self.local_id in isr and set(isr) <= set(replicas), f"{self!r} of {replicas} cannot have the ISR {isr}"
        self.leader_id = self.local_id
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.replicas = replicas
        followers = [replica for replica in replicas if replica != self.local_id]
        if new_epoch:
            self.epoch_start_offset = self.log.log_end_offset
            self.log.begin_leader_epoch(leader_epoch)
            self.in_sync.begin(followers, isr, now_ms)
        else:
            self.in_sync.assign(followers)
            if new_isr:
                # Told again of what it knows, it waits on for the answer to its proposal: that may have been accepted.
                self.in_sync.settle(isr)
        if not self.advance_high_watermark():
            self.set_high_watermark(self.high_watermark)

    def resign(
        self, leader_id: int, leader_epoch: int, partition_epoch: int, replicas: tuple[int, ...], isr: tuple[int, ...]
    ) -> None:
        """Another broker leads, or none does."""
        if not self._is_news(leader_epoch, partition_epoch):
            return
        self.resignations += self.is_leader
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.replicas = replicas
        self.in_sync.assign(())
        self.in_sync.settle(isr)

    def retire(self) -> None:
        """Its log is taken out of service: whoever still waits for this partition is told that it is not led here."""
        self.resignations += self.is_leader
        self.leader_id = NO_LEADER
        self.in_sync.assign(())
        self.in_sync.settle(())

    def _is_news(self, leader_epoch: int, partition_epoch: int) -> bool:
        """False for an older state: the answer to a change of the ISR may overtake the controller's word on it."""
        return leader_epoch > self.leader_epoch or (
            leader_epoch == self.leader_epoch and partition_epoch >= self.partition_epoch
        )

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
        # Nor is one without a leader a follower: it does not know whether it has what readers have seen.
        if self.leader_id != self.local_id and (leader_only or self.leader_id == NO_LEADER):
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def check_follower(self, replica: int, current_leader_epoch: int) -> None:
        """Refuses a fetch in the name of a replica that is not one of this leader's followers."""
        self.check_leader(current_leader_epoch)
        if replica not in self.in_sync.followers:
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
        is_alone = len(self.replicas) == 1  # and then enough, whatever the minimum
        if acks == -1 and not (is_alone or self.has_enough_in_sync):
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
        if not self.in_sync.holding and (is_alone or self.has_enough_in_sync):
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
        """Recomputes it from what the followers have; tells whether it moved. Below `min.insync.replicas` it stays."""
        lowest = self.in_sync.lowest_end_offset(self.log.log_end_offset)
        if lowest > self.high_watermark and self.has_enough_in_sync:
            self.set_high_watermark(lowest)
            return True
        return False

    def record_follower_fetch(
        self,
        replica: int,
        fetch_offset: int,
        log_start_offset: int,
        now_ms: int,
        broker_epoch: int = NO_BROKER_EPOCH,
        is_eligible: bool = True,
    ) -> bool:
        """A follower's fetch offset is its log end offset. Tells whether the high or the low watermark may have moved.

        `is_eligible`: the follower may join the ISR, as far as this broker knows.
        """
        follower = self.in_sync.followers.get(replica)
        if follower is None:
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)
        if broker_epoch != NO_BROKER_EPOCH and broker_epoch < follower.broker_epoch:
            # Sent before the follower restarted: what it says is no longer so.
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        follower.broker_epoch = broker_epoch
        end_offset = self.log.log_end_offset
        follower.fetched(fetch_offset, end_offset, now_ms)
        if follower.last_caught_up_ms == now_ms and replica not in self.in_sync.maximal:
            self.in_sync.await_if(follower, is_eligible)
        starts_later = log_start_offset > follower.log_start_offset
        follower.log_start_offset = log_start_offset
        return self.advance_high_watermark() or starts_later

    def record_idle_fetch(self, replica: int, broker_epoch: int, now_ms: int) -> bool:
        """As `record_follower_fetch`, of a member of the ISR that has fetched all there is and stands where it stood.

        False where that is not so: then everything has to be looked at. A follower asks for thousands of partitions
        at a time, and most of them have nothing new.
        """
        in_sync = self.in_sync
        follower = in_sync.followers.get(replica)
        if (
            follower is None
            or follower.log_end_offset != self.log.log_end_offset
            or follower.broker_epoch != broker_epoch
            or replica not in in_sync.maximal
        ):
            return False
        follower.last_caught_up_ms = follower.last_fetch_ms = now_ms
        return True

    # --- the ISR --------------------------------------------------------------------------------------

    def propose_expansion(
        self, replica: int, now_ms: int, local_epoch: int, is_eligible: bool = True
    ) -> IsrProposal | None:
        """The ISR with a follower that has caught up; None where it has not, or another proposal is on its way."""
        in_sync = self.in_sync
        follower = in_sync.followers.get(replica)
        if in_sync.pending is not None or follower is None or replica in in_sync.isr or not is_eligible:
            return None
        if follower.log_end_offset < max(self.high_watermark, self.epoch_start_offset):
            return None
        if now_ms < follower.refused_until_ms:
            return None
        return self._propose(in_sync.members_with(replica, self.local_id, local_epoch))

    def propose_shrinkage(self, now_ms: int, max_lag_ms: int, local_epoch: int) -> IsrProposal | None:
        """The ISR without those that were not caught up for `max_lag_ms`; None where all were."""
        in_sync = self.in_sync
        if self.leader_id != self.local_id or not in_sync.followers:
            return None
        laggards = in_sync.laggards(self.log.log_end_offset, now_ms, max_lag_ms)
        if not laggards or in_sync.pending is not None:
            return None
        return self._propose(in_sync.members_without(laggards, self.local_id, local_epoch))

    def propose_successor(self, local_epoch: int) -> IsrProposal | None:
        """The ISR without this leader, so that another member leads; None where there is none."""
        in_sync = self.in_sync
        if self.leader_id != self.local_id or len(in_sync.isr) < 2 or in_sync.pending is not None:
            return None
        return self._propose(in_sync.members_without((self.local_id,), self.local_id, local_epoch))

    def _propose(self, members: tuple[tuple[int, int], ...]) -> IsrProposal:
        proposal = IsrProposal(self.topic_id, self.index, self.leader_epoch, self.partition_epoch, members)
        self.in_sync.propose(proposal)
        return proposal

    def settle_isr(self, proposal: IsrProposal, leader_epoch: int, partition_epoch: int, isr: tuple[int, ...]) -> bool:
        """Takes the controller's answer to a proposal; returns whether the high watermark moved."""
        if not self._awaits(proposal) or leader_epoch != self.leader_epoch or partition_epoch < self.partition_epoch:
            return False
        self.partition_epoch = partition_epoch
        self.in_sync.settle(isr)
        return self.advance_high_watermark()

    def withdraw_proposal(self, proposal: IsrProposal, now_ms: int) -> bool:
        """The controller has refused a proposal for good; tells whether the high watermark moved."""
        if not self._awaits(proposal):
            return False
        in_sync = self.in_sync
        for replica, _ in proposal.members:
            if replica not in in_sync.isr and (follower := in_sync.followers.get(replica)) is not None:
                follower.refused_until_ms = now_ms + REFUSED_MS
                follower.is_awaited = False
        in_sync.propose(None)
        return self.advance_high_watermark()

    def await_no_longer(self, replica: int) -> bool:
        """A follower has gone that was about to join the ISR; tells whether the high watermark moved."""
        follower = self.in_sync.followers.get(replica)
        if follower is None or not follower.is_awaited:
            return False
        self.in_sync.await_if(follower, False)
        return self.advance_high_watermark()

    def _awaits(self, proposal: IsrProposal) -> bool:
        return self.leader_id == self.local_id and self.in_sync.pending is proposal

    # --- following ------------------------------------------------------------------------------------

    def append_as_follower(self, records: memoryview, now_ms: int) -> AppendInfo:
        """Appends what the leader sent, as it came. Raises LogError or InvalidBatch where it cannot."""
        assert self.leader_id != self.local_id, f"{self!r} would follow itself"
        log = self.log
        try:
            return log.append_as_follower(records, now_ms, self.leader_epoch)
        except UnexpectedAppendOffset as error:
            end_offset = log.log_end_offset
            if log.log_start_offset != end_offset or not error.first_offset < end_offset <= error.last_offset:
                raise
            # The leader's log starts within a batch, and this log at the same offset: the batch comes whole.
            log.truncate_fully_and_start_at(error.first_offset, now_ms)
            self.high_watermark = error.first_offset
            info = log.append_as_follower(records, now_ms, self.leader_epoch)
            log.advance_log_start_offset(end_offset)
            self.set_high_watermark(end_offset)
            return info

    def follow_watermarks(self, high_watermark: int, log_start_offset: int) -> bool:
        """Takes the leader's over, as far as this log has what they speak of; tells whether the high one moved.

        A new leader may not know yet how much is committed: what was known here stays true.
        """
        log = self.log
        visible = min(high_watermark, log.log_end_offset)
        moved = visible > self.high_watermark
        if moved:
            self.set_high_watermark(visible)
        if log_start_offset > log.log_start_offset:
            log.advance_log_start_offset(min(log_start_offset, self.high_watermark))
        return moved

    def truncate_to_divergence(self, epoch: int, end_offset: int, now_ms: int) -> int:
        """Cuts the log where it leaves the leader's, whose `epoch` ends at `end_offset`; where it ends now.

        If the epoch is unknown here, the next answer names an older one.
        """
        log = self.log
        known = log.leader_epochs.end_offset_for(epoch, log.log_end_offset)
        if known is None or epoch == NO_EPOCH:
            target = end_offset
        elif known[0] == epoch:
            target = min(known[1], end_offset)
        else:
            target = known[1]
        return self.truncate_to(min(target, log.log_end_offset), now_ms)

    def truncate_to(self, offset: int, now_ms: int) -> int:
        """Cuts what a follower has past `offset`; where the log ends now, which may be before it."""
        log = self.log
        log.truncate_to(offset, now_ms)
        self.set_high_watermark(max(log.log_start_offset, min(self.high_watermark, log.log_end_offset)))
        return log.log_end_offset

    def start_anew_at(self, offset: int, now_ms: int) -> None:
        """Drops everything: the leader's log begins past the end of this one."""
        self.log.truncate_fully_and_start_at(offset, now_ms)
        self.high_watermark = offset
        self.set_high_watermark(offset)

    # --- deleting from the start ------------------------------------------------------------------------

    @property
    def low_watermark(self) -> int:
        """The smallest log start offset of the leader and those in its ISR; -1 before all of them have fetched."""
        lowest = self.log.log_start_offset
        for replica in self.in_sync.isr:
            follower = self.in_sync.followers.get(replica)
            if follower is not None and follower.log_start_offset < lowest:
                lowest = follower.log_start_offset
        return lowest

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
        leader_only: bool = True,
    ) -> PartitionRead:
        """Whole batches from `fetch_offset` up to what the reader may see; a follower may see the log's end."""
        self.traffic.fetches += 1
        self.check_leader(current_leader_epoch, leader_only)
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

    def continues(self, fetch_offset: int, last_fetched_epoch: int) -> bool:
        """Whether a log that ends at `fetch_offset`, with a record of that epoch, is the beginning of this one."""
        log = self.log
        if not log.log_start_offset <= fetch_offset <= log.log_end_offset:
            return False
        return last_fetched_epoch == NO_EPOCH or self._divergence(fetch_offset, last_fetched_epoch) is None

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
