"""How far a member may go towards its target: revoke first, then take what is free.

    state                 what it waits for                        it leaves when
    STABLE                nothing                                  a newer target is there
    UNREVOKED_PARTITIONS  that it gives up what it must revoke     its heartbeat no longer names those partitions
    UNRELEASED_PARTITIONS that others give up what it shall get    the missing partitions are free

A member that has partitions to give up stays in its epoch, because its commits for them are still good. Only when it
owns nothing outside the target does it move to the target's epoch.
"""

from __future__ import annotations

from collections.abc import Callable

from tidelog.deciding.turn import Refusal
from tidelog.group.consumer_group import NOTHING, Assignment, ConsumerMember, MemberState, Owned
from tidelog.group.requests import Reported
from tidelog.wire.errors import ErrorCode


class Reconciliation:
    """One member, one target, one heartbeat."""

    __slots__ = ("held_by_other", "member", "owned", "subscribed", "target", "target_epoch")

    def __init__(
        self,
        member: ConsumerMember,
        target_epoch: int,
        target: Assignment,
        subscribed: set[bytes],
        held_by_other: Callable[[str, bytes, int], bool],
        owned: Reported,
    ) -> None:
        self.member = member
        self.target_epoch = target_epoch
        self.target = target
        # Ids of the topics that the member is subscribed to: others are not for it, whatever the target says.
        self.subscribed = subscribed
        self.held_by_other = held_by_other
        self.owned = owned

    def next(self, subscription_changed: bool) -> ConsumerMember:
        member = self.member
        if member.state is MemberState.STABLE:
            if member.member_epoch != self.target_epoch:
                return self._advance()
            return self._drop_unsubscribed() if subscription_changed else member
        if member.state is MemberState.UNREVOKED_PARTITIONS and self._still_owns(member.revoking):
            return self._drop_unsubscribed() if subscription_changed else member
        if member.state is MemberState.UNKNOWN and (self.owned is None or any(self.owned.values())):
            # Written by a newer coordinator: start the member over.
            message = "The member is in an unknown state. It must abandon all its partitions and rejoin."
            raise Refusal(ErrorCode.FENCED_MEMBER_EPOCH, message)
        return self._advance()

    def _still_owns(self, partitions: Owned) -> bool:
        if self.owned is None:
            return True
        return any(not owned.isdisjoint(partitions.get(topic_id, NOTHING)) for topic_id, owned in self.owned.items())

    def _advance(self) -> ConsumerMember:
        kept: dict[bytes, dict[int, int]] = {}
        revoked: dict[bytes, dict[int, int]] = {}
        free: dict[bytes, list[int]] = {}
        unreleased = False
        member = self.member
        for topic_id in dict.fromkeys((*self.target, *member.assigned)):
            wanted = self.target.get(topic_id, frozenset()) if topic_id in self.subscribed else frozenset()
            for partition, epoch in member.assigned.get(topic_id, NOTHING).items():
                side = kept if partition in wanted else revoked
                side.setdefault(topic_id, {})[partition] = epoch
            have = kept.get(topic_id, NOTHING)
            for partition in sorted(wanted):
                if partition in have:
                    continue
                if self.held_by_other(member.member_id, topic_id, partition):
                    unreleased = True
                else:
                    free.setdefault(topic_id, []).append(partition)
        if revoked and self._still_owns(revoked):
            return self._moved(MemberState.UNREVOKED_PARTITIONS, member.member_epoch, kept, revoked)
        for topic_id, partitions in free.items():
            kept.setdefault(topic_id, {}).update(dict.fromkeys(partitions, self.target_epoch))
        state = MemberState.UNRELEASED_PARTITIONS if unreleased else MemberState.STABLE
        return self._moved(state, self.target_epoch, kept, NOTHING)

    def _drop_unsubscribed(self) -> ConsumerMember:
        """No new target yet, but topics the member no longer reads must not stay with it."""
        member = self.member
        dropped = [topic_id for topic_id in member.assigned if topic_id not in self.subscribed]
        if not dropped:
            return member
        kept = {t: p for t, p in member.assigned.items() if t in self.subscribed}
        revoked = {t: dict(p) for t, p in member.revoking.items()}
        for topic_id in dropped:
            revoked.setdefault(topic_id, {}).update(member.assigned[topic_id])
        if self._still_owns(revoked):
            return self._moved(MemberState.UNREVOKED_PARTITIONS, member.member_epoch, kept, revoked)
        return self._moved(member.state, member.member_epoch, kept, member.revoking)

    def _moved(self, state: MemberState, epoch: int, assigned: Owned, revoking: Owned) -> ConsumerMember:
        return self.member._replace(
            state=state,
            member_epoch=epoch,
            previous_member_epoch=self.member.member_epoch,
            assigned=assigned,
            revoking=revoking,
        )
