"""How the directories of partitions are named.

topic-partition                 a partition
topic-partition.<id>-future     a copy that is being made in another log directory, to take the partition's place
topic-partition.<id>-delete     a partition that was deleted; its files go after `file.delete.delay.ms`
topic-partition.<id>-stray      a partition that the cluster no longer places here; kept until somebody decides
"""

from __future__ import annotations

import re
from typing import Final

from tidelog.wire.partitions import TopicPartition

DELETE: Final = "-delete"
FUTURE: Final = "-future"
STRAY: Final = "-stray"

_NAME: Final = re.compile(r"(?P<topic>.+)-(?P<partition>\d+)(?:\.[^.]+(?P<kind>-delete|-future|-stray))?")
#: directories that Apache Kafka keeps among its logs and that are none
_NOT_LOGS: Final = frozenset({"__cluster_metadata-0", "remote-log-index-cache"})
#: what a file system allows; the longest topic name leaves no room for a suffix
_MAX_NAME: Final = 255


def parse_name(name: str) -> tuple[TopicPartition, str] | None:
    """(topic, partition) and the kind of directory ("" for a live one); None if the name is not a partition's."""
    match = _NAME.fullmatch(name)
    if match is None or name in _NOT_LOGS:
        return None
    return TopicPartition(match["topic"], int(match["partition"])), match["kind"] or ""


def name_of(key: TopicPartition, kind: str = "", unique_id: str = "") -> str:
    topic, partition = key
    tail = f"-{partition}.{unique_id}{kind}" if kind else f"-{partition}"
    return topic[: _MAX_NAME - len(tail)] + tail


def is_cut_short(name: str) -> bool:
    """Whether the name of a directory that is not live may have lost the end of its topic's name."""
    return len(name) == _MAX_NAME
