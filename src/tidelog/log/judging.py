"""What belongs on this broker, judged after the logs were opened.

A broker among others opens its logs before it knows the cluster's metadata: the controller tells it once the broker is
registered. Only then can logs be found that were deleted, or moved to other brokers, while it was away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.log.directory_names import DELETE
from tidelog.log.directory_set import DIRECTORY_SET, listed
from tidelog.log.errors import LogError

if TYPE_CHECKING:
    from tidelog.log.directory_set import Placement
    from tidelog.log.log_dirs import LogDirs


def judge(dirs: LogDirs, placement: Placement) -> list[str]:
    """Takes out of service what does not belong here; returns what an operator should know."""
    notices = []
    for key, log in list(dirs.logs.items()):
        fate, path = dirs.fate(log, placement), log.path
        if fate is None:
            continue
        try:
            if fate == DELETE:
                dirs.delete(key)
                notices.append(f"{path} is removed: its topic was deleted")
            else:
                dirs.cancel_move(key)
                dirs.mark_stray(key)
                notices.append(f"{path} is set aside: it is no longer assigned to this broker")
        except LogError as error:
            notices.append(f"{path} does not belong to this broker, and could not be taken out of service: {error}")
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
