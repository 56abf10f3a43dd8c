"""How one partition changes: its leader, ISR, replicas and epochs. Pure arithmetic on `Partition` values.

Elections. A leader that is active and in the ISR stays. Else the first active replica in the ISR leads, in the order
of the assignment; else, only if an unclean election is allowed, the first active replica, which then is the whole
ISR and has to recover; else no one. A preferred election puts the first replica before the present leader.

The ISR never becomes empty: the last member stays in it when it goes, because only it is known to have everything.

Epochs. Every change counts the partition epoch (the version of the state node) up by one. The leader epoch goes up
when the leader changes, when there is none any more, and when a replica leaves the assignment.

Reassignment, from replicas R to T: the assignment becomes T followed by R - T, with T - R adding and R - T removing.
It is complete when every adding replica is in the ISR, some replica that stays is in the ISR, and, where the number of
replicas shrinks, all that stay are; then the removing ones leave both. Cancelling takes the adding ones out again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum

from tidelog.control.model import NO_LEADER, Partition


class Election(Enum):
    ONLINE = "online"
    PREFERRED = "preferred"
    UNCLEAN = "unclean"


def first_state(partition: Partition, is_active: Callable[[int], bool]) -> Partition | None:
    """A new partition gets its first leader; None while no replica is active."""
    isr = tuple(filter(is_active, partition.replicas))
    if not isr:
        return None
    return partition._replace(leader=isr[0], isr=isr, leader_epoch=0, partition_epoch=0)


def change_partition(
    partition: Partition,
    is_active: Callable[[int], bool],
    election: Election = Election.ONLINE,
    *,
    isr: tuple[int, ...] | None = None,
    replicas: tuple[int, ...] | None = None,
    adding: tuple[int, ...] | None = None,
    removing: tuple[int, ...] | None = None,
    recovering: bool | None = None,
) -> Partition | None:
    """The partition with these targets, after finishing a reassignment that they complete and electing a leader where
    one is needed; None where all stays as it is."""
    target = partition._replace(
        # An ISR that would be empty stays as it was: its members are the only ones that have everything.
        isr=isr or partition.isr,
        replicas=partition.replicas if replicas is None else replicas,
        adding=partition.adding if adding is None else adding,
        removing=partition.removing if removing is None else removing,
        recovering=partition.recovering if recovering is None else recovering,
    )
    candidates = target.isr if isr is None or isr else ()
    leader, unclean = _elect(target, candidates, is_active, election)
    if candidates and (completed := complete_reassignment(target)) is not target:
        elected = _elect(completed, completed.isr, is_active, election)
        if elected[0] != NO_LEADER:
            # Else those who are to go may be waited for: they have what the others have lost.
            target, (leader, unclean) = completed, elected
    if unclean:
        target = target._replace(isr=(leader,), recovering=True)
    target = target._replace(leader=leader)
    if target == partition:
        return None
    bump = leader != partition.leader or not set(partition.replicas) <= set(target.replicas)
    return target._replace(
        leader_epoch=partition.leader_epoch + bump,
        partition_epoch=partition.partition_epoch + 1,
    )


def _elect(
    target: Partition, candidates: tuple[int, ...], is_active: Callable[[int], bool], election: Election
) -> tuple[int, bool]:
    """The leader, and whether it comes from outside the ISR."""
    order: Iterable[int]
    if election is Election.PREFERRED:
        order = (target.replicas[0], target.leader, *target.replicas)
    else:
        order = (target.leader, *target.replicas)
    for replica in order:
        if replica in candidates and is_active(replica):
            return replica, False
    if election is Election.UNCLEAN:
        for replica in target.replicas:
            if is_active(replica):
                return replica, True
    return NO_LEADER, False


# Reassignment


def start_reassignment(
    partition: Partition, target: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Replicas, adding and removing for a move to `target`. One that replaces a move under way starts from where that
    one started: replicas that it was adding, and that `target` does not want, are dropped at once."""
    origin = [r for r in partition.replicas if r not in partition.adding]
    adding = tuple(r for r in target if r not in origin)
    removing = tuple(r for r in origin if r not in target)
    return target + removing, adding, removing


def complete_reassignment(partition: Partition) -> Partition:
    """The partition without its removing replicas if the rest can stand alone; else as it is."""
    adding, removing = set(partition.adding), set(partition.removing)
    if not adding and not removing:
        return partition
    replicas = tuple(r for r in partition.replicas if r not in removing)
    isr = tuple(r for r in partition.isr if r not in removing)
    if not isr or not replicas or not adding <= set(isr):
        return partition
    if len(adding) < len(removing) and not set(replicas) <= set(isr):
        return partition
    return partition._replace(replicas=replicas, isr=isr, adding=(), removing=())


def revert_reassignment(partition: Partition) -> tuple[tuple[int, ...], tuple[int, ...], bool]:
    """Replicas and ISR as they were before; True where that ISR is only a guess and the election unclean."""
    replicas = tuple(r for r in partition.replicas if r not in partition.adding)
    isr = tuple(r for r in partition.isr if r not in partition.adding)
    return (replicas, isr, False) if isr else (replicas, replicas[:1], True)
