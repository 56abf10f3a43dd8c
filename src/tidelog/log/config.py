"""The settings of one log, under Kafka's topic-configuration names in snake case and with Kafka's defaults.

A configuration is a value: to change a live log, give it another one (`log.config = replace(log.config, …)`).
Units stand last, so `max_message_bytes` is `max.message.bytes`; the few names that Kafka spells otherwise are kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from tidelog.log.append_rules import rules_of
from tidelog.wire.check import AppendRules
from tidelog.wire.compression import DEFAULT_LIMIT_BYTES

#: Kafka's "never": Long.MAX_VALUE
FOREVER: Final = (1 << 63) - 1
WEEK_MS: Final = 7 * 24 * 60 * 60 * 1000

CREATE_TIME: Final = "CreateTime"
LOG_APPEND_TIME: Final = "LogAppendTime"
#: the codec that a topic names to keep what the producer chose
PRODUCER: Final = "producer"


@dataclass(slots=True, frozen=True)
class LogConfig:
    segment_bytes: int = 1 << 30
    segment_ms: int = WEEK_MS
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    retention_ms: int = WEEK_MS
    retention_bytes: int = -1
    max_message_bytes: int = (1 << 20) + 12
    compression_type: str = PRODUCER
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    #: the broker's, for all topics: what one compressed batch may unpack to
    max_unpacked_bytes: int = DEFAULT_LIMIT_BYTES
    message_timestamp_type: str = CREATE_TIME
    message_timestamp_before_max_ms: int = FOREVER
    message_timestamp_after_max_ms: int = 60 * 60 * 1000
    flush_messages: int = FOREVER
    flush_ms: int = FOREVER
    file_delete_delay_ms: int = 60_000
    preallocate: bool = False
    #: any of "delete" and "compact"; empty keeps everything until DeleteRecords
    cleanup_policy: tuple[str, ...] = ("delete",)
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = FOREVER
    delete_retention_ms: int = 24 * 60 * 60 * 1000
    min_cleanable_dirty_ratio: float = 0.5
    unclean_leader_election_enable: bool = False
    min_insync_replicas: int = 1
    #: `partition:broker` pairs, or "*" for all
    leader_replication_throttled_replicas: tuple[str, ...] = ()
    follower_replication_throttled_replicas: tuple[str, ...] = ()
    #: records are delivered to this topic when their time comes; "" where they are not
    tidelog_delay_target: str = ""
    tidelog_delay_ms: int = 0
    #: half messages are delivered to this topic when they are committed; "" where the topic has none
    tidelog_half_target: str = ""
    tidelog_half_check_ms: int = 60_000
    tidelog_half_check_max: int = 15
    tidelog_half_check_topic: str = ""
    tidelog_half_undecided_topic: str = ""
    #: when a segment must roll: compaction may not wait longer than its maximum lag; asked for on every append
    max_segment_ms: int = field(init=False, repr=False, compare=False)
    #: what is asked of every batch that is appended
    rules: AppendRules = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        bounded = self.compact and self.max_compaction_lag_ms > 0
        most = min(self.max_compaction_lag_ms, self.segment_ms) if bounded else self.segment_ms
        object.__setattr__(self, "max_segment_ms", most)
        object.__setattr__(self, "rules", rules_of(self))

    @property
    def stamps_append_time(self) -> bool:
        return self.message_timestamp_type == LOG_APPEND_TIME

    @property
    def waits_for(self) -> str:
        """The topic that the records of this one are delivered to, now or later; "" for most topics."""
        return self.tidelog_delay_target or self.tidelog_half_target

    @property
    def compact(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def delete(self) -> bool:
        return "delete" in self.cleanup_policy
