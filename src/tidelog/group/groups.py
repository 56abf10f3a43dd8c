"""The door of the room: every event a group coordinator can meet, and the decision that answers it.

    groups = Groups(GroupConfig.from_properties(broker_config))
    groups.load_begin(7, leader_epoch); groups.replay(7, record, producer_id, offset) …
    groups.load_end(7, now_ms, wall_ms)
    decision = groups.join(ticket, joining, now_ms, wall_ms)

A decision is carried out before the next event is handed in: append its records as one batch (transactional where
`producer_id` is set), hand each to `replay`, set its timers, and send its replies once the records are committed. A
decision without records whose `partition` is not -1 has replies that tell of records appended before it: they leave
when everything in that partition up to now is committed. If the append fails, `append_failed` gives the decision to
carry out instead; if the commit takes too long, `failed(outcome, error)` says what to answer.

`now_ms` is monotonic time, `wall_ms` stamps records. A ticket is any hashable object; it gets exactly one outcome
(`tidelog.group.outcomes`). What is asked comes as one of `tidelog.group.requests`, so that nothing here depends on the
version of an API. Questions that change nothing are answered at once, without a decision.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tidelog.deciding.decision import CancelTimer, CoordinatorRecord, Decision, Ticket, TimerKey
from tidelog.deciding.shards import Shards
from tidelog.deciding.storage_errors import translated
from tidelog.deciding.turn import Refusal, Turn
from tidelog.group import (
    admin,
    classic_member,
    classic_rebalance,
    consumer_heartbeat,
    migration,
    offset_commit,
    stale_offsets,
)
from tidelog.group import offset_fetch as fetching
from tidelog.group import replay as replaying
from tidelog.group.classic_group import ABANDONED, ClassicGroup
from tidelog.group.classic_join import join
from tidelog.group.config import RETRY_BACKOFF_MS, GroupConfig, GroupOverrides
from tidelog.group.consumer_group import ConsumerGroup
from tidelog.group.outcomes import (
    ClassicDescription,
    ConsumerDescription,
    GroupListing,
    GroupsDeleted,
    JoinRefusal,
    MembersLeft,
    Outcome,
    failed,
    offsets_fetched,
)
from tidelog.group.requests import (
    ConsumerHeartbeat,
    Joining,
    Leaving,
    Membership,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    Syncing,
    TxnOffsetCommit,
)
from tidelog.group.shard import Group, GroupSurroundings, Shard
from tidelog.group.topics_image import Topic
from tidelog.wire.errors import ErrorCode

_E = ErrorCode


def random_uuid(new_id: Callable[[], bytes] = lambda: os.urandom(16)) -> str:
    """`new_id` gives 16 bytes by chance."""
    raw = bytearray(new_id())
    raw[6] = raw[6] & 0x0F | 0x40
    raw[8] = raw[8] & 0x3F | 0x80
    text = raw.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


class Groups:
    def __init__(self, config: GroupConfig | None = None, new_uuid: Callable[[], str] = random_uuid) -> None:
        self._around = GroupSurroundings(config or GroupConfig(), new_uuid)
        self._shards: Shards[Shard] = Shards(lambda: self._around.config.offsets_topic_num_partitions)
        self.sized = self._shards.sized
        self.partition_for = self._shards.partition_for

    # -- coming and going of partitions --------------------------------------------------------------------------

    def loaded(self) -> list[Shard]:
        """The partitions that this broker answers for, to be looked at."""
        return self._shards.active()

    def load_begin(self, partition: int, leader_epoch: int) -> Decision:
        """Whoever waits here since an earlier time is sent away."""
        dropped = self.unload(partition)
        self._shards[partition] = Shard(partition, self._around)
        return dropped

    def replay(self, partition: int, record: CoordinatorRecord, producer_id: int = -1, offset: int = -1) -> None:
        meaning = record.meaning or replaying.decoded(record.key, record.value)
        replaying.replay(self._shards[partition], meaning, producer_id, offset)

    def replay_end(self, partition: int, producer_id: int, commit: bool) -> None:
        self._shards[partition].offsets.end_transaction(producer_id, commit)

    def transaction_ended(self, partition: int, producer_id: int, commit: bool) -> None:
        """A control marker was appended just now. In a partition that loads it ends nothing yet: what is replayed by
        then may be half of an earlier transaction of the producer, and loading comes to the marker in its place. Of a
        partition that could not be loaded nobody knows the offsets.
        """
        shard = self._shards.get(partition)
        if shard is not None and not shard.loading:
            shard.offsets.end_transaction(producer_id, commit)

    def load_end(self, partition: int, now_ms: int, wall_ms: int) -> Decision:
        """From now on the partition answers; the members it found are given a full session to show up."""
        shard = self._shards[partition]
        shard.loading = False
        turn = Turn(now_ms, wall_ms)
        turn.atomic = False
        stale_offsets.loaded(shard, turn)
        for group in list(shard.groups.values()):
            if isinstance(group, ConsumerGroup):
                consumer_heartbeat.loaded(shard, turn, group)
                continue
            for member in group.members.values():
                shard.touch_session(turn, group.group_id, member.member_id, member.session_timeout_ms)
            if len(group.members) > shard.config.group_max_size:
                classic_rebalance.prepare_rebalance(shard, turn, group)
        self._schedule_cleanup(shard, turn)
        return shard.close(turn)

    def unload(self, partition: int) -> Decision:
        """Another broker leads now: whoever waits here is sent away."""
        turn = Turn()
        shard = self._shards.pop(partition, None)
        if shard is None:
            return turn
        for group in shard.groups.values():
            if isinstance(group, ClassicGroup):
                for member in group.members.values():
                    classic_rebalance.send_away(shard, turn, group, member, _E.NOT_COORDINATOR)
        turn.timers.extend(CancelTimer(key) for key in shard.deadlines)
        return turn

    def append_failed(self, decision: Decision, error: ErrorCode, now_ms: int, wall_ms: int) -> Decision:
        """What to carry out in place of a decision whose records could not be appended."""
        code = translated(error)
        turn = Turn(now_ms, wall_ms)
        turn.timers.extend(decision.timers)
        for reply in decision.replies:
            turn.reply(reply.ticket, failed(reply.message, code))
        shard = self._shards.get(decision.partition)
        if shard is None or not isinstance(decision, Turn):
            return turn
        for undo in reversed(decision.undo):
            undo(turn, code)
        if decision.fired is not None:
            shard.deadlines.set(turn, decision.fired, now_ms + RETRY_BACKOFF_MS)
        return shard.close(turn)

    @staticmethod
    def failed(outcome: Outcome, error: ErrorCode) -> Outcome:
        """What to tell instead of `outcome` where `error` befell its records."""
        return failed(outcome, translated(error))

    def cancel(self, ticket: Ticket) -> None:
        """The connection has gone. Its member stays until its session runs out, as it would for a slow client."""
        for shard in self._shards.values():
            where = shard.parked.pop(ticket, None)
            group = None if where is None else shard.classic(where[0])
            if where is None or group is None or where[1] not in group.members:
                continue
            member = group.members[where[1]]
            if member.awaiting_join is ticket:
                member.awaiting_join = ABANDONED
            if member.awaiting_sync is ticket:
                member.awaiting_sync = ABANDONED

    # -- settings, topics, time ----------------------------------------------------------------------------------

    def configure(self, config: GroupConfig) -> None:
        """The broker's settings; deadlines that are set already stay as they are."""
        self._around.config = config

    def configure_group(self, group_id: str, properties: Mapping[str, Any]) -> None:
        """The settings of one group; an empty mapping takes them away."""
        if properties:
            self._around.overrides[group_id] = GroupOverrides.from_properties(properties)
        else:
            self._around.overrides.pop(group_id, None)

    def on_topics_changed(self, changes: Mapping[str, Topic | None], now_ms: int, wall_ms: int) -> list[Decision]:
        """Topics that came, changed or went (None); consumer groups that read them follow at their next heartbeat."""
        changed = self._around.topics.change(changes, wall_ms)
        for shard in self._shards.values():
            for group in shard.groups.values():
                if isinstance(group, ConsumerGroup) and not changed.isdisjoint(group.subscribed_topics()):
                    group.refresh_deadline_ms = 0
        waiting = [shard for shard in self._shards.active() if shard.ownerless_topics]
        return self._on_each(waiting, stale_offsets.drop_ownerless, now_ms, wall_ms)

    def on_topic_deleted(self, name: str, topic_id: bytes, now_ms: int, wall_ms: int) -> list[Decision]:
        """The offsets committed for the topic go with it."""

        def deleted(shard: Shard, turn: Turn) -> None:
            stale_offsets.topic_deleted(shard, turn, name, topic_id)

        return self._on_each(self._shards.values(), deleted, now_ms, wall_ms)

    @staticmethod
    def _on_each(
        shards: Iterable[Shard], decide: Callable[[Shard, Turn], None], now_ms: int, wall_ms: int
    ) -> list[Decision]:
        """What each shard has to store, in as many batches as it takes."""
        decisions: list[Decision] = []
        for shard in shards:
            turn = Turn(now_ms, wall_ms)
            turn.atomic = False
            decide(shard, turn)
            if turn.records:
                decisions.append(shard.close(turn))
        return decisions

    def on_timer(self, key: TimerKey, now_ms: int, wall_ms: int) -> Decision:
        turn = Turn(now_ms, wall_ms, key)
        shard = self._shards.get(key[0])
        if shard is None or shard.loading or not shard.deadlines.fired(turn, key):
            return turn
        _, kind, group_id, member_id = key
        group = shard.groups.get(group_id)
        if kind == "cleanup":
            turn.atomic = False
            _clean(shard, turn)
            self._schedule_cleanup(shard, turn)
        elif kind == "ownerless":
            turn.atomic = False
            stale_offsets.drop_ownerless(shard, turn)
        elif isinstance(group, ConsumerGroup):
            consumer_heartbeat.due(shard, turn, group, kind, member_id)
        elif group is not None and kind == "session":
            classic_rebalance.session_due(shard, turn, group, member_id)
        elif group is not None and kind == "join":
            classic_rebalance.join_due(shard, turn, group)
        elif group is not None and kind == "sync":
            classic_rebalance.sync_due(shard, turn, group)
        elif group is not None and kind == "rebalance" and group.can_rebalance and group.members:
            classic_rebalance.prepare_rebalance(shard, turn, group)
        return shard.close(turn)

    def _schedule_cleanup(self, shard: Shard, turn: Turn) -> None:
        interval_ms = shard.config.offsets_retention_check_interval_ms
        shard.deadlines.set(turn, shard.key("cleanup", ""), turn.now_ms + interval_ms)

    # -- members of groups ---------------------------------------------------------------------------------------

    def join(self, ticket: Ticket, joining: Joining, now_ms: int, wall_ms: int) -> Decision:
        turn = Turn(now_ms, wall_ms)
        config = self._around.config
        try:
            if not joining.group_id:
                raise Refusal(_E.INVALID_GROUP_ID)
            timeout_ms = joining.session_timeout_ms
            if not config.group_min_session_timeout_ms <= timeout_ms <= config.group_max_session_timeout_ms:
                raise Refusal(_E.INVALID_SESSION_TIMEOUT)
            shard = self._shards.of(joining.group_id)
            group = shard.consumer(joining.group_id)
            if group is not None and not group.is_empty:
                turn.reply(ticket, migration.join(shard, turn, group, joining))
            else:
                join(shard, turn, ticket, joining)
            return shard.close(turn)
        except JoinRefusal as refusal:
            return _refused(turn, ticket, refusal)
        except Refusal as refusal:
            return _refused(turn, ticket, JoinRefusal(refusal.code, joining.member_id))

    def sync(self, ticket: Ticket, syncing: Syncing, now_ms: int, wall_ms: int) -> Decision:
        turn = Turn(now_ms, wall_ms)
        try:
            shard, group = self._members_group(syncing.member.group_id)
            if group.is_empty:
                raise Refusal(_E.UNKNOWN_MEMBER_ID)
            if isinstance(group, ConsumerGroup):
                turn.reply(ticket, migration.sync(shard, turn, group, syncing))
            else:
                classic_member.sync(shard, turn, group, ticket, syncing)
            return shard.close(turn)
        except Refusal as refusal:
            return _refused(turn, ticket, refusal)

    def heartbeat(self, ticket: Ticket, claimed: Membership, now_ms: int, wall_ms: int) -> Decision:
        turn = Turn(now_ms, wall_ms)
        try:
            shard, group = self._members_group(claimed.group_id)
            if isinstance(group, ConsumerGroup):
                code = migration.heartbeat(shard, turn, group, claimed)
            else:
                code = classic_member.heartbeat(shard, turn, group, claimed)
        except Refusal as refusal:
            # While the group loads its members cannot be told apart from strangers: they are kept waiting.
            code = _E.NONE if refusal.code is _E.COORDINATOR_LOAD_IN_PROGRESS else refusal.code
        turn.reply(ticket, code)
        return turn

    def leave(self, ticket: Ticket, leaving: Leaving, now_ms: int, wall_ms: int) -> Decision:
        turn = Turn(now_ms, wall_ms)
        try:
            shard, group = self._members_group(leaving.group_id)
            if isinstance(group, ConsumerGroup):
                codes = migration.leave(shard, turn, group, leaving.members)
            else:
                codes = classic_member.leave(shard, turn, group, leaving.members)
            turn.reply(ticket, MembersLeft(codes))
            return shard.close(turn)
        except Refusal as refusal:
            if refusal.code is _E.UNKNOWN_MEMBER_ID:
                return _refused(turn, ticket, MembersLeft([refusal.code] * len(leaving.members)))
            return _refused(turn, ticket, refusal)

    def consumer_group_heartbeat(
        self, ticket: Ticket, heartbeat: ConsumerHeartbeat, now_ms: int, wall_ms: int
    ) -> Decision:
        turn = Turn(now_ms, wall_ms)
        try:
            consumer_heartbeat.validate(heartbeat, self._around.config)
            shard = self._shards.of(heartbeat.group_id)
            turn.reply(ticket, consumer_heartbeat.heartbeat(shard, turn, heartbeat))
            return shard.close(turn)
        except Refusal as refusal:
            return _refused(turn, ticket, Refusal(refusal.code, refusal.detail or refusal.code.message))

    # -- offsets -------------------------------------------------------------------------------------------------

    def offset_commit(self, ticket: Ticket, request: OffsetCommit, now_ms: int, wall_ms: int) -> Decision:
        turn = Turn(now_ms, wall_ms)
        try:
            shard = self._shards.of(request.member.group_id)
            turn.reply(ticket, offset_commit.commit(shard, turn, request))
            return shard.close(turn)
        except Refusal as refusal:
            return _refused(turn, ticket, refusal)

    def txn_offset_commit(self, ticket: Ticket, request: TxnOffsetCommit, now_ms: int, wall_ms: int) -> Decision:
        """The decision names the producer: its records are appended as part of the producer's transaction."""
        turn = Turn(now_ms, wall_ms)
        try:
            if not request.member.group_id:
                raise Refusal(_E.INVALID_GROUP_ID)
            shard = self._shards.of(request.member.group_id)
            turn.reply(ticket, offset_commit.commit_in_transaction(shard, turn, request))
            return shard.close(turn)
        except Refusal as refusal:
            return _refused(turn, ticket, refusal)

    def offset_fetch(self, ticket: Ticket, request: OffsetFetch, now_ms: int, wall_ms: int) -> Decision:
        turn = Turn(now_ms, wall_ms)
        shard_of, require_stable = self._shards.of, request.require_stable
        groups = []
        for wanted in request.groups:
            groups.append(fetching.attempt(shard_of, turn, wanted, require_stable))
        turn.reply(ticket, offsets_fetched((groups,)))
        return turn

    def offset_delete(self, ticket: Ticket, request: OffsetDelete, now_ms: int, wall_ms: int) -> Decision:
        turn = Turn(now_ms, wall_ms)
        try:
            if not request.group_id:
                raise Refusal(_E.INVALID_GROUP_ID)
            shard = self._shards.of(request.group_id)
            turn.reply(ticket, offset_commit.delete_offsets(shard, turn, request))
            return shard.close(turn)
        except Refusal as refusal:
            return _refused(turn, ticket, refusal)

    # -- administration ------------------------------------------------------------------------------------------

    def describe_classic(self, group_id: str) -> ClassicDescription:
        """Raises Refusal."""
        return admin.describe_classic(self._shards.of(group_id), group_id)

    def describe_consumer(self, group_id: str) -> ConsumerDescription:
        """Raises Refusal."""
        if not group_id:
            raise Refusal(_E.INVALID_GROUP_ID)
        return admin.describe_consumer(self._shards.of(group_id), group_id)

    def list_groups(self, states: Iterable[str] = (), types: Iterable[str] = ()) -> list[GroupListing]:
        """Those in one of the states and of one of the types; without any, all. Raises Refusal."""
        in_states = {state.lower().strip() for state in states}
        of_types = {kind.lower() for kind in types}
        if self._shards.some_load:
            raise Refusal(_E.COORDINATOR_LOAD_IN_PROGRESS)
        return [group for shard in self._shards.values() for group in admin.listed(shard, in_states, of_types)]

    def delete_groups(self, ticket: Ticket, group_ids: Iterable[str], now_ms: int, wall_ms: int) -> list[Decision]:
        """One decision for each coordinator partition, each with a reply that holds the results of its groups."""
        turns: dict[int, tuple[Turn, GroupsDeleted]] = {}
        for group_id in dict.fromkeys(group_ids):
            partition = self.partition_for(group_id)
            if partition not in turns:
                turns[partition] = Turn(now_ms, wall_ms), GroupsDeleted([])
            turn, deleted = turns[partition]
            try:
                shard = self._shards.of(group_id)
                code = admin.delete(shard, turn, group_id)
                shard.close(turn)
            except Refusal as refusal:
                code = refusal.code
            deleted.results.append((group_id, code))
        for turn, deleted in turns.values():
            turn.reply(ticket, deleted)
        return [turn for turn, _ in turns.values()]

    # -- finding the way -----------------------------------------------------------------------------------------

    def _members_group(self, group_id: str) -> tuple[Shard, Group]:
        if not group_id:
            raise Refusal(_E.INVALID_GROUP_ID)
        shard = self._shards.of(group_id)
        group = shard.groups.get(group_id)
        if group is None:
            raise Refusal(_E.UNKNOWN_MEMBER_ID)
        return shard, group


def _refused(turn: Turn, ticket: Ticket, outcome: Refusal | MembersLeft) -> Turn:
    """A refusal leaves no trace but its answer, and the timers that deciding has already moved."""
    turn.records.clear()
    if isinstance(outcome, Refusal):
        # What is kept as an answer must not keep the frames that it was raised in.
        outcome.__traceback__ = outcome.__context__ = None
    turn.reply(ticket, outcome)
    return turn


def _clean(shard: Shard, turn: Turn) -> None:
    for group in list(shard.groups.values()):
        waiting = isinstance(group, ClassicGroup) and group.pending_members
        if fetching.expire_offsets(shard, turn, group) and group.is_empty and not waiting:
            admin.bury(shard, turn, group)
