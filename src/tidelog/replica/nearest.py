"""Which replica a consumer reads from, where it need not be the leader (KIP-392).

`replica.selector.class` names the rule, by the name of Apache Kafka's class for it. Without one everybody reads from
the leader. Only members of the ISR that have the offset are chosen from: one that lags would send the consumer back.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.config.checks import RACK_AWARE_SELECTOR
from tidelog.replica.partition import Partition


def reads_in_rack(selector: str | None) -> bool:
    return selector is not None and selector.strip() == RACK_AWARE_SELECTOR


def nearest_replica(partition: Partition, rack: str, fetch_offset: int, racks: Mapping[int, str | None]) -> int | None:
    """The follower in `rack` that is furthest; None for the leader: it is in that rack itself, or no follower is."""
    if racks.get(partition.local_id) == rack:
        return None
    best: tuple[int, int, int] | None = None
    for replica, follower in partition.in_sync.followers.items():
        if replica not in partition.isr or racks.get(replica) != rack:
            continue
        if follower.log_start_offset <= fetch_offset <= follower.log_end_offset:
            best = max(best or (-1, 0, 0), (follower.log_end_offset, follower.last_caught_up_ms or 0, replica))
    return None if best is None else best[2]
