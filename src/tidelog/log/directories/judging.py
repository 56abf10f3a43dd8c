"""What belongs on this broker, judged after the logs were opened.

A broker among others opens its logs before it knows the cluster's metadata: the controller tells it once the broker is
registered. Only then can logs be found that were deleted, or moved to other brokers, while it was away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.log.directories.directory_names import DELETE, STRAY
from tidelog.log.directories.directory_set import DIRECTORY_SET, listed
from tidelog.log.errors import LogError
from tidelog.wire.partitions import TopicPartition

if TYPE_CHECKING:
    from tidelog.log.directories.directory_set import Placement
    from tidelog.log.directories.log_dirs import LogDirs


_NOT_TAKEN_OUT: Final = "{} does not belong to this broker, and could not be taken out of service: {}"


def judge(dirs: LogDirs, placement: Placement) -> list[str]:
    """Takes out of service what does not belong here; returns what an operator should know."""
    notices: list[str] = []
    removed, strays = list[TopicPartition](), list[TopicPartition]()
    for log in dirs.settle_rivals(placement):
        try:
            (removed if dirs.dispose(log, placement) == DELETE else strays).append(log.key)
        except LogError as error:
            notices.append(_NOT_TAKEN_OUT.format(log.path, error))
    for key, log in list(dirs.logs.items()):
        fate, path = dirs.fate(log, placement), log.path
        if fate is None:
            continue
        try:
            if fate == DELETE:
                dirs.delete(key)
                removed.append(key)
            else:
                dirs.cancel_move(key)
                dirs.mark_stray(key)
                strays.append(key)
        except LogError as error:
            notices.append(_NOT_TAKEN_OUT.format(path, error))
    if dirs.is_newer_than(placement):
        notices.append(
            "the metadata store knows less than this broker has seen of it before: it was restored from an old copy. "
            "Logs of topics that it does not know are set aside, and not deleted"
        )
    # A broker may be away while thousands of them go.
    if removed:
        notices.append(f"{_are(removed)} removed: the topic was deleted while this broker was away")
    if strays:
        notices.append(
            f"{_are(strays)} set aside: no longer assigned to this broker. The files are kept in directories whose "
            f"names end with {STRAY}, which may be deleted"
        )
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


def _are(keys: list[TopicPartition]) -> str:
    return f"{listed(keys)} {'is' if len(keys) == 1 else 'are'}"
