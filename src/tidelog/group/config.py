"""The coordinator's settings, under Kafka's names and with Kafka's defaults.

`GroupConfig.from_properties` takes any mapping of Kafka's names to typed values and keeps what concerns groups.
`GroupOverrides` are the settings that a single group can carry (`kafka-configs --entity-type groups`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

T = TypeVar("T")

MAX_INT32 = 2**31 - 1

# A joining member that has not learned its id cannot heartbeat: its parked request is given up after this time.
NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000
# How long a consumer group trusts the hash of its topics unless it is told that they changed.
METADATA_REFRESH_INTERVAL_MS = MAX_INT32
# Two resolutions of a group's regular expressions are at least this far apart.
REGEX_REFRESH_MIN_INTERVAL_MS = 10_000
# A decision that a timer asked for and the log refused is tried again after this time.
RETRY_BACKOFF_MS = 500


def _named(name: str, default: T) -> T:
    return field(default=default, metadata={"name": name})


@dataclass(slots=True, frozen=True)
class GroupConfig:
    offsets_topic_num_partitions: int = _named("offsets.topic.num.partitions", 50)
    offset_metadata_max_bytes: int = _named("offset.metadata.max.bytes", 4096)
    offsets_retention_minutes: int = _named("offsets.retention.minutes", 7 * 24 * 60)
    offsets_retention_check_interval_ms: int = _named("offsets.retention.check.interval.ms", 600_000)
    group_min_session_timeout_ms: int = _named("group.min.session.timeout.ms", 6_000)
    group_max_session_timeout_ms: int = _named("group.max.session.timeout.ms", 1_800_000)
    group_initial_rebalance_delay_ms: int = _named("group.initial.rebalance.delay.ms", 3_000)
    group_max_size: int = _named("group.max.size", MAX_INT32)
    consumer_session_timeout_ms: int = _named("group.consumer.session.timeout.ms", 45_000)
    consumer_heartbeat_interval_ms: int = _named("group.consumer.heartbeat.interval.ms", 5_000)
    consumer_max_size: int = _named("group.consumer.max.size", MAX_INT32)
    consumer_assignors: tuple[str, ...] = _named("group.consumer.assignors", ("uniform", "range"))
    consumer_migration_policy: str = _named("group.consumer.migration.policy", "bidirectional")
    consumer_assignment_interval_ms: int = _named("group.consumer.assignment.interval.ms", 1_000)
    consumer_regex_refresh_interval_ms: int = _named("group.consumer.regex.refresh.interval.ms", 600_000)

    @classmethod
    def from_properties(cls, properties: Mapping[str, Any]) -> GroupConfig:
        given: dict[str, Any] = {}
        for setting in fields(cls):
            value = properties.get(setting.metadata["name"])
            if value is not None:
                given[setting.name] = tuple(value) if setting.name == "consumer_assignors" else value
        return cls(**given)

    @property
    def upgrade_enabled(self) -> bool:
        return self.consumer_migration_policy.lower() in ("upgrade", "bidirectional")

    @property
    def downgrade_enabled(self) -> bool:
        return self.consumer_migration_policy.lower() in ("downgrade", "bidirectional")

    @property
    def offsets_retention_ms(self) -> int:
        return self.offsets_retention_minutes * 60_000


@dataclass(slots=True, frozen=True)
class GroupOverrides:
    """Settings of one group; None leaves the broker's in force."""

    session_timeout_ms: int | None = _named("consumer.session.timeout.ms", None)
    heartbeat_interval_ms: int | None = _named("consumer.heartbeat.interval.ms", None)
    assignment_interval_ms: int | None = _named("consumer.assignment.interval.ms", None)

    @classmethod
    def from_properties(cls, properties: Mapping[str, Any]) -> GroupOverrides:
        return cls(
            **{
                setting.name: int(properties[setting.metadata["name"]])
                for setting in fields(cls)
                if properties.get(setting.metadata["name"]) is not None
            }
        )


NO_OVERRIDES = GroupOverrides()
