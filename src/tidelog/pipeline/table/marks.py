"""The names under which a pipeline keeps numbers in the transaction entries of a table.

<name>/runner                   the epoch of the runner that committed
<name>/<topic>/<partition>      the next offset: everything below it is in the table, each record once
<name>/<topic>/<partition>/start    the offset that the partition began at, set once
<name>/<topic>/id               which topic that is: another one may have its name some day
<name>/deleted                  what was deleted from a table with keys: see `graves.py`
<name>/version                  the version that the commit makes: see `restoring.py`
"""

from __future__ import annotations

from typing import Final

from tidelog.wire.partitions import TopicPartition

RUNNER: Final = "runner"
VERSION: Final = "version"
GRAVES: Final = "deleted"


def offset_mark(at: TopicPartition) -> str:
    return f"{at[0]}/{at[1]}"


def start_mark(at: TopicPartition) -> str:
    return f"{offset_mark(at)}/start"


def id_mark(topic: str) -> str:
    return f"{topic}/id"
