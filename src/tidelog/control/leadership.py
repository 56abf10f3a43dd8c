"""Who leads and who is in sync: elections on demand, ISR changes from leaders, shutdowns, balance."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from typing import NamedTuple

from tidelog.control.draft import Draft
from tidelog.control.errors import NO_ERROR, ApiError, Rejected
from tidelog.control.image import Image
from tidelog.control.model import NO_LEADER, NO_STATE, Broker, ConfigResource, Partition, ResourceType
from tidelog.control.nodes import LostLogs
from tidelog.control.partition_changes import Election, change_partition, first_state
from tidelog.control.settings import ControllerSettings
from tidelog.control.unable_replicas import UnableReplicas
from tidelog.wire.errors import ErrorCode

UNCLEAN_KEY = "unclean.leader.election.enable"


class ElectionType(IntEnum):
    PREFERRED = 0
    UNCLEAN = 1


class ElectionResult(NamedTuple):
    topic: str
    partition: int
    error: ApiError = NO_ERROR


class IsrChange(NamedTuple):
    """What a leader says about its followers. `new_isr` holds brokers with their epochs, -1 for an unknown one.

    An empty `new_isr` comes from the only member of an ISR, if it cannot lead; `recovering` says that it could, with
    fewer records than it had. A leader epoch above that of the state was found in a log: the next one is larger.
    """

    topic_id: bytes
    partition: int
    leader_epoch: int
    partition_epoch: int
    new_isr: Sequence[tuple[int, int]]
    recovering: bool = False


class IsrResult(NamedTuple):
    """`state` is the partition as it now is, where there was no error."""

    topic_id: bytes
    partition: int
    error: ApiError = NO_ERROR
    state: Partition | None = None


class Leadership:
    def __init__(self, image: Image, is_active: Callable[[int], bool], settings: ControllerSettings) -> None:
        self._image = image
        self._is_active = is_active
        self._settings = settings
        self.unable = UnableReplicas(image.brokers)

    def unclean_allowed(self, topic: str) -> bool:
        for resource in (ConfigResource(ResourceType.TOPIC, topic), ConfigResource(ResourceType.BROKER, "")):
            value = self._image.config(resource).get(UNCLEAN_KEY)
            if value is not None:
                return value.strip().lower() == "true"
        return self._settings.unclean_leader_election_enable

    def may_lead(self, partition: Partition) -> Callable[[int], bool]:
        """Active brokers, and the present leader as long as it is there: one that is about to stop goes on leading if
        nobody else can."""
        leader = partition.leader
        return lambda r: self._is_active(r) or (r == leader and r in self._image.brokers)

    def may_be_elected(self, partition: Partition) -> Callable[[int], bool]:
        """Those of them, too, that need not stand back for others, or have not lost their log."""
        may_lead, barred = self.may_lead(partition), self._emptied(partition) | self.unable.offline(partition)
        return lambda r: may_lead(r) and r not in barred

    def needs_work(self, p: Partition) -> bool:
        """Whether `settle` may find something to do; cheap, for it is asked of every partition at a start."""
        if p.leader == NO_LEADER or p.adding or p.removing:
            return True
        is_active = self._is_active
        if len(p.isr) == 1:
            return not is_active(p.leader) or self._has_returned(p)
        brokers, written = self._image.brokers, p.state_zxid
        return any(not is_active(replica) or brokers[replica].epoch > written for replica in p.isr)

    def settle(self, partition: Partition) -> Partition | None:
        """The partition after looking at which brokers are there: those that are gone or have come back changed leave
        the ISR and lose the leadership, a leader is elected, a finished reassignment is concluded. None if it stays."""
        if partition.partition_epoch == NO_STATE:
            return first_state(partition, self._is_active)
        members, may_lead = self._members(partition)
        after = change_partition(partition, may_lead, isr=members)
        if (after or partition).leader == NO_LEADER and self.unclean_allowed(partition.topic):
            # Nobody is waited for: a member of the ISR whose log has lost its end goes before all that are not in it.
            members, may_lead = self._members(partition, heeds_damage=False)
            after = change_partition(partition, may_lead, Election.UNCLEAN, isr=members)
        if self._has_returned(partition):
            after = after or partition._replace(partition_epoch=partition.partition_epoch + 1)
            after = after._replace(leader_epoch=partition.leader_epoch + 1, recovering=False)
        return self._recovering(partition, after)

    def _recovering(self, before: Partition, after: Partition | None) -> Partition | None:
        """Tells a leader that has lost records to lead all the same, which it would not do otherwise."""
        leader = (after or before).leader
        broker = self._image.brokers.get(leader)
        has_lost = broker is not None and broker.lost is LostLogs.ALL and self._is_doubtful(broker, before)
        if not has_lost and leader not in self.unable.incomplete(before):
            return after
        after = after or before._replace(partition_epoch=before.partition_epoch + 1)
        return after._replace(leader_epoch=before.leader_epoch + 1, recovering=True)

    def _has_returned(self, p: Partition) -> bool:
        """Whether its leader registered again since the state was written, and must lead in a new epoch."""
        leader = self._image.brokers.get(p.leader)
        return self._settings.renews_returned_leaders and leader is not None and leader.epoch > p.state_zxid

    def _members(
        self, partition: Partition, heeds_damage: bool = True
    ) -> tuple[tuple[int, ...], Callable[[int], bool]]:
        """Who remains in the ISR, by the first of these rules that leaves anyone, and who may lead:

        - active, and never away since the state was written: a broker that came back unseen may have lost records;
        - about to stop, but never away: it stays until it goes;
        - active, though it was away: all of them were, and no one has more;
        - not there, where those that are have lost everything: one of them will come, and leads then.
        """
        brokers, written = self._image.brokers, partition.state_zxid
        offline = self.unable.offline(partition)
        emptied = self._emptied(partition, heeds_damage) | offline
        remaining = tuple(r for r in partition.isr if r not in emptied)
        alive = tuple(r for r in remaining if r in brokers)
        intact = tuple(r for r in alive if brokers[r].epoch <= written)
        for members in (tuple(filter(self._is_active, intact)), intact, tuple(filter(self._is_active, alive)), alive):
            if members:
                return members, members.__contains__
        # One whose log has lost its end waits as a member: perhaps all have lost something, and some more than it.
        gone = self._emptied(partition, heeds_damage=False) | offline
        remaining = tuple(r for r in partition.isr if r not in gone)
        waited_for = () if remaining == partition.isr else remaining
        return waited_for, lambda r: self._is_active(r) and r not in emptied

    def _emptied(self, partition: Partition, heeds_damage: bool = True) -> frozenset[int]:
        """Replicas whose disks were replaced or wiped since the state was written; none if that is true of all of them,
        because then nobody has more. One that only may have lost this partition, or has lost its end, counts if another
        will come back that has not. Without a leader, the state was written while such a replica was there and was
        alone in the ISR."""
        brokers, incomplete = self._image.brokers, self.unable.incomplete(partition)
        doubtful = [
            brokers[r]
            for r in partition.replicas
            if r in brokers and self._is_doubtful(brokers[r], partition, heeds_damage)
        ]
        emptied = frozenset(broker.broker_id for broker in doubtful) | incomplete
        if emptied.issuperset(partition.isr):
            emptied = frozenset(broker.broker_id for broker in doubtful if broker.lost is LostLogs.ALL) | incomplete
        return emptied if len(emptied) < len(partition.replicas) else frozenset()

    def _is_doubtful(self, broker: Broker, partition: Partition, heeds_damage: bool = True) -> bool:
        is_settled = partition.leader != NO_LEADER and broker.epoch <= partition.state_zxid
        return not is_settled and (
            broker.lost is not LostLogs.NONE or (heeds_damage and self._is_damaged(broker, partition))
        )

    def _is_damaged(self, broker: Broker, partition: Partition) -> bool:
        topic = self._image.topics.get(partition.topic) if broker.damaged else None
        return topic is not None and (topic.topic_id, partition.partition_index) in broker.damaged

    # Elections on demand

    def elect(
        self, election_type: int, partitions: Iterable[tuple[str, int]] | None, draft: Draft
    ) -> list[ElectionResult]:
        """`partitions` None: all of them, and those that need no election are not mentioned."""
        try:
            kind = ElectionType(election_type)
        except ValueError:
            error = ApiError(ErrorCode.INVALID_REQUEST, f"Unknown election type {election_type}")
            return [ElectionResult(topic, index, error) for topic, index in partitions or ()]
        everything = partitions is None
        if partitions is None:
            partitions = [(t.name, p.partition_index) for t in self._image.topics.values() for p in t.partitions]
        results = []
        for topic, index in partitions:
            error = self._elect_one(kind, topic, index, draft)
            if not everything or error.code != ErrorCode.ELECTION_NOT_NEEDED:
                results.append(ElectionResult(topic, index, error))
        return results

    def _elect_one(self, kind: ElectionType, topic: str, index: int, draft: Draft) -> ApiError:
        partition = self._image.partition(topic, index)
        if topic not in self._image.topics:
            return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {topic}")
        if partition is None:
            return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {topic}-{index}")
        if kind is ElectionType.PREFERRED:
            if partition.leader == partition.replicas[0]:
                return ApiError(ErrorCode.ELECTION_NOT_NEEDED)
            election, otherwise = Election.PREFERRED, ApiError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)
        else:
            if partition.leader != NO_LEADER:
                return ApiError(ErrorCode.ELECTION_NOT_NEEDED)
            election, otherwise = Election.UNCLEAN, ApiError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)
        after = None
        if partition.partition_epoch != NO_STATE:
            emptied, offline = self._emptied(partition, kind is ElectionType.PREFERRED), self.unable.offline(partition)
            may_lead = self.may_lead(partition)
            after = change_partition(partition, lambda r: may_lead(r) and r not in emptied | offline, election)
            if kind is ElectionType.UNCLEAN and (after is None or after.leader == NO_LEADER):
                # One that has lost everything leads where an operator wants it, and nobody else can.
                after = change_partition(partition, lambda r: may_lead(r) and r not in offline, election)
                after = self._recovering(partition, after)
        if after is None:
            return otherwise
        draft.change(after)
        return NO_ERROR

    def balance(self, draft: Draft) -> None:
        """Gives leadership back to the preferred replicas, for each broker that leads far fewer partitions than it
        should."""
        preferred: dict[int, int] = {}
        away: dict[int, list[Partition]] = {}
        for topic in self._image.topics.values():
            for partition in topic.partitions:
                first = partition.replicas[0]
                preferred[first] = preferred.get(first, 0) + 1
                if partition.leader not in (first, NO_LEADER):
                    away.setdefault(first, []).append(partition)
        for broker, partitions in away.items():
            share = 100 * len(partitions) / preferred[broker]
            if share <= self._settings.leader_imbalance_per_broker_percentage or not self._is_active(broker):
                continue
            for partition in partitions:
                if broker in partition.isr:
                    after = change_partition(partition, self.may_lead(partition), Election.PREFERRED)
                    if after is not None:
                        draft.change(after)

    def renew(self, broker_id: int, draft: Draft) -> None:
        for topic in self._image.topics.values():
            for p in topic.partitions:
                if p.leader == broker_id:
                    draft.change(p._replace(leader_epoch=p.leader_epoch + 1, partition_epoch=p.partition_epoch + 1))

    # ISR changes

    def change_isr(self, broker_id: int, changes: Sequence[IsrChange], draft: Draft) -> list[IsrResult]:
        results = []
        for change in changes:
            key = (change.topic_id, change.partition)
            try:
                partition = self._checked(broker_id, change)
            except Rejected as rejected:
                results.append(IsrResult(*key, rejected.error))
                continue
            after = self._changed_isr(broker_id, partition, change)
            if after is not None:
                draft.change(after)
            if after is not None and after.leader != broker_id:
                # It left itself out, or completed a reassignment that did: it must hear who leads now.
                results.append(IsrResult(*key, ApiError(ErrorCode.NEW_LEADER_ELECTED)))
            else:
                results.append(IsrResult(*key, NO_ERROR, after or partition))
        return results

    def _changed_isr(self, broker_id: int, partition: Partition, change: IsrChange) -> Partition | None:
        if change.leader_epoch > partition.leader_epoch:
            return partition._replace(
                leader_epoch=change.leader_epoch + 1, partition_epoch=partition.partition_epoch + 1
            )
        if not change.new_isr:
            self.unable.note(partition, broker_id, can_recover=change.recovering)
            return self.settle(partition)
        return change_partition(
            partition,
            self.may_lead(partition),
            Election.UNCLEAN if self.unclean_allowed(partition.topic) else Election.ONLINE,
            isr=tuple(broker for broker, _ in change.new_isr),
            recovering=change.recovering,
        )

    def _checked(self, broker_id: int, change: IsrChange) -> Partition:
        topic = self._image.topic_by_id(change.topic_id)
        if topic is None:
            raise Rejected(ErrorCode.UNKNOWN_TOPIC_ID)
        partition = self._image.partition(topic.name, change.partition)
        if partition is None:
            raise Rejected(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if change.partition_epoch > partition.partition_epoch:
            # It knows of a later state than this controller: so there is a later controller.
            raise Rejected(ErrorCode.NOT_CONTROLLER)
        if change.leader_epoch < partition.leader_epoch:
            raise Rejected(ErrorCode.FENCED_LEADER_EPOCH)
        if change.leader_epoch > partition.leader_epoch:
            # The same state, and a replica that has seen later epochs than it: the store has forgotten them.
            if broker_id not in partition.replicas:
                raise Rejected(ErrorCode.INVALID_REQUEST)
            if change.partition_epoch < partition.partition_epoch:
                raise Rejected(ErrorCode.INVALID_UPDATE_VERSION)
            return partition
        members = [broker for broker, _ in change.new_isr]
        leaves = broker_id not in members and {*members, broker_id} == set(partition.isr)
        if broker_id != partition.leader and not leaves:
            # A member of the ISR that lost its log says so itself; everything else is the leader's to say.
            raise Rejected(ErrorCode.INVALID_REQUEST)
        if change.partition_epoch < partition.partition_epoch:
            raise Rejected(ErrorCode.INVALID_UPDATE_VERSION)
        if len(set(members)) != len(members) or not set(members) <= set(partition.replicas):
            raise Rejected(ErrorCode.INVALID_REQUEST)
        if not members and leaves:
            # The only member says that it cannot lead: it stays in the ISR, and nobody leads.
            return partition
        if partition.leader not in members and not (members and set(members) <= set(partition.isr)):
            # Itself it may leave out, so that another member leads.
            raise Rejected(ErrorCode.INVALID_REQUEST)
        if change.recovering and (len(members) > 1 or not partition.recovering):
            raise Rejected(ErrorCode.INVALID_REQUEST)
        may_be_in_sync = self.may_lead(partition)
        for broker, epoch in change.new_isr:
            # A leader that is about to stop, and could not hand over, brings in whoever catches up: so that it can.
            if not may_be_in_sync(broker) or epoch not in (-1, self._image.brokers[broker].epoch):
                raise Rejected(ErrorCode.INELIGIBLE_REPLICA)
        return partition

    # Shutdown

    def move_away_from(self, broker_id: int, draft: Draft) -> list[tuple[str, int]]:
        """Takes the broker out of every ISR in which another member can go on. Returns what it must go on leading,
        except for partitions that have no other replica."""
        remaining = []
        for topic in self._image.topics.values():
            for partition in topic.partitions:
                if broker_id not in partition.isr or len(partition.replicas) == 1:
                    continue
                others = tuple(r for r in partition.isr if r != broker_id)
                after = change_partition(partition, self._is_active, isr=others) if others else None
                if after is not None and after.leader != NO_LEADER:
                    draft.change(after)
                elif partition.leader == broker_id:
                    remaining.append((topic.name, partition.partition_index))
        return remaining
