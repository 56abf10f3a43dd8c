"""What belongs on this broker, judged after the logs were opened.

A broker among others opens its logs before it knows the cluster's metadata: the controller tells it once the broker is
registered. Only then can logs be found that were deleted, or moved to other brokers, while it was away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.log.directory_names import DELETE
from tidelog.log.directory_set import DIRECTORY_SET, listed

if TYPE_CHECKING:
    from tidelog.log.directory_set import Placement
    from tidelog.log.log_dirs import LogDirs


def judge(dirs: LogDirs, placement: Placement) -> list[str]:
    """Takes out of service what does not belong here; returns what an operator should know."""
    notices = []
    for key, log in list(dirs.logs.items()):
        fate = dirs.fate(log, placement)
        if fate == DELETE:
            notices.append(f"{log.path} is removed: its topic was deleted")
            dirs.delete(key)
        elif fate is not None:
            notices.append(f"{log.path} is set aside: it is no longer assigned to this broker")
            dirs.cancel_move(key)
            dirs.mark_stray(key)
    for key in [key for key, log in dirs.futures.items() if dirs.fate(log, placement) is not None]:
        dirs.cancel_move(key)
    absent = placement.topic_ids.keys() - dirs.logs.keys() - dirs.offline
    if not absent:
        dirs.forget_missing()
    elif dirs.missing:
        dirs.offline |= absent
        notices.append(
            f"log directory {', '.join(sorted(dirs.missing))} is missing: these partitions are offline until it is "
            f"back: {listed(absent)}. If it is lost for good, remove its line from {DIRECTORY_SET} in the other log "
            "directories: they are then copied from the other replicas"
        )
    return notices
