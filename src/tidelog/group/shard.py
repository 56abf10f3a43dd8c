"""One coordinator partition: the groups and offsets that its records hold, and what waits on them.

`Groups` owns one shard per partition of `__consumer_offsets` that this broker leads. Handlers get the shard whose
partition the group id hashes to; nothing is shared between shards but the settings and the picture of the topics.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from tidelog.deciding import shards as deciding
from tidelog.deciding.decision import Ticket
from tidelog.deciding.turn import Turn
from tidelog.group.classic_group import ClassicGroup
from tidelog.group.config import GroupConfig, GroupOverrides
from tidelog.group.consumer_group import ConsumerGroup
from tidelog.group.deadlines import Deadlines
from tidelog.group.offset_store import OffsetStore
from tidelog.group.topics_image import TopicsImage

Group: TypeAlias = ClassicGroup | ConsumerGroup


class GroupSurroundings:
    """What every shard sees of the world outside its records."""

    __slots__ = ("config", "new_uuid", "overrides", "topics")

    def __init__(self, config: GroupConfig, new_uuid: Callable[[], str]) -> None:
        self.config = config
        self.new_uuid = new_uuid
        # Group id -> settings of that group alone.
        self.overrides: dict[str, GroupOverrides] = {}
        self.topics = TopicsImage()


class Shard(deciding.Shard):
    __slots__ = (
        "around",
        "deadlines",
        "deleted_topics",
        "groups",
        "offsets",
        "ownerless_topics",
        "parked",
    )

    def __init__(self, partition: int, around: GroupSurroundings) -> None:
        super().__init__(partition)
        self.around = around
        self.groups: dict[str, Group] = {}
        self.offsets = OffsetStore()
        self.deadlines = Deadlines()
        # (name, id) of topics that were deleted while the shard loads; names of which offsets are left, but no topic.
        self.deleted_topics: list[tuple[str, bytes]] = []
        self.ownerless_topics: set[str] = set()
        # Ticket -> (group id, member id) of every JoinGroup and SyncGroup that waits.
        self.parked: dict[Ticket, tuple[str, str]] = {}

    @property
    def config(self) -> GroupConfig:
        return self.around.config

    def classic(self, group_id: str) -> ClassicGroup | None:
        group = self.groups.get(group_id)
        return group if isinstance(group, ClassicGroup) else None

    def consumer(self, group_id: str) -> ConsumerGroup | None:
        group = self.groups.get(group_id)
        return group if isinstance(group, ConsumerGroup) else None

    def touch_session(self, turn: Turn, group_id: str, member_id: str, timeout_ms: int) -> None:
        self.deadlines.set(turn, self.key("session", group_id, member_id), turn.now_ms + timeout_ms)
