"""Configuration of topics, groups, client metrics subscriptions and client quotas, and where their defaults come from.

definitions.py explains the columns.
"""

TOPIC_TABLE = """
cleanup.policy                          list     delete set:compact,delete medium topic works
    What happens to old segments: delete by age and size, compact by key, both, or nothing if the list is empty.
compression.type                        string   \
producer in:uncompressed,zstd,lz4,snappy,gzip,producer medium topic works
    Codec that batches are stored with: the name of a codec, uncompressed, or producer to keep the producer's codec.
compression.gzip.level                  int      -1 gzip-level medium topic works
    Compression level for recompressing with gzip; -1 is the default of gzip.
compression.lz4.level                   int      9 1..17 medium topic works
    Compression level for recompressing with lz4.
compression.zstd.level                  int      3 -131072..22 medium topic works
    Compression level for recompressing with zstd.
delete.retention.ms                     long     86400000 >=0 medium topic works
    How long a tombstone can still be read after the records it deletes have been removed.
file.delete.delay.ms                    long     60000 >=0 medium topic works
    How long the files of a deleted segment stay on disk, renamed, before they are deleted.
flush.messages                          long     9223372036854775807 >=1 medium topic works
    Number of records appended to a partition before it is flushed to disk.
flush.ms                                long     9223372036854775807 >=0 medium topic works
    Longest time a record may stay in memory before it is flushed to disk.
follower.replication.throttled.replicas list     "" replicas medium topic works
    Follower replicas that are throttled, as partition:broker pairs, or * for all.
index.interval.bytes                    int      4096 >=0 medium topic works
    Number of bytes between two entries of the offset index.
internal.segment.bytes                  int      null - medium internal works
    Size at which a segment is closed, without the lower limit of segment.bytes; for tests.
leader.replication.throttled.replicas   list     "" replicas medium topic works
    Replicas that are throttled on the leader's side, as partition:broker pairs, or * for all.
local.retention.bytes                   long     -2 >=-2 medium topic none:tiering
    Size limit for the local part of a tiered log; -2 means the value of retention.bytes.
local.retention.ms                      long     -2 >=-2 medium topic none:tiering
    Age limit for the local part of a tiered log; -2 means the value of retention.ms.
max.compaction.lag.ms                   long     9223372036854775807 >=1 medium topic works
    Age at which a record becomes eligible for compaction at the latest.
max.message.bytes                       int      1048588 >=0 medium topic works
    Largest record batch that is accepted, after compression.
message.timestamp.after.max.ms          long     3600000 >=0 medium topic works
    How far a record's timestamp may be ahead of the broker's clock.
message.timestamp.before.max.ms         long     9223372036854775807 >=0 medium topic works
    How far a record's timestamp may be behind the broker's clock.
message.timestamp.type                  string   CreateTime in:CreateTime,LogAppendTime medium topic works
    Whether a record keeps the timestamp set by its producer or gets the time at which it is appended.
min.cleanable.dirty.ratio               double   0.5 0..1 medium topic works
    Uncompacted share of a log at which it is compacted.
min.compaction.lag.ms                   long     0 >=0 medium topic works
    Age that a record must reach before it can be compacted away.
min.insync.replicas                     int      1 >=1 medium topic works
    Replicas that must be in sync for a write with acks=all; with fewer, the write is refused.
preallocate                             boolean  false - medium topic works
    Whether a new segment file is preallocated at its full size.
remote.log.copy.disable                 boolean  false - medium topic none:tiering
    Whether a tiered topic stops copying segments to remote storage.
remote.log.delete.on.disable            boolean  false - medium topic none:tiering
    Whether remote segments are deleted when tiering is switched off for a topic.
remote.storage.enable                   boolean  false - medium topic refused:tiering
    Whether the topic uses tiered storage; refused, because tiered storage is not supported.
retention.bytes                         long     -1 - medium topic works
    Size above which the oldest segments of a partition are deleted; -1 for no limit.
retention.ms                            long     604800000 >=-1 medium topic works
    Age at which a closed segment may be deleted; -1 for never.
segment.bytes                           int      1073741824 >=1048576 medium topic works
    Size at which a segment is closed and a new one started.
segment.index.bytes                     int      10485760 >=4 medium topic works
    Largest size of an offset index or time index; a full index rolls the segment.
segment.jitter.ms                       long     0 >=0 medium topic works
    Maximum random time subtracted from segment.ms, so that segments do not all roll at once.
segment.ms                              long     604800000 >=1 medium topic works
    Age at which a segment is closed even if it is small.
tidelog.delay.ms                        long     0 0..31622400000 medium topic works
    How long records of a delay topic wait that do not say it themselves, from their timestamps on; at most 366 days.
tidelog.delay.target                    string   "" - medium topic works
    Makes the topic a delay topic: the topic that its records are delivered to when their time comes, or empty.
tidelog.half.check.max                  int      15 >=0 medium topic works
    How often the sender of a half message is asked how it ends, before it counts as undecided.
tidelog.half.check.ms                   long     60000 >=100 medium topic works
    How long a half message may be without an end before its sender is asked, and between two questions.
tidelog.half.check.topic                string   "" - medium topic works
    The topic on which senders of half messages are asked how they end, or empty: nobody is asked.
tidelog.half.target                     string   "" - medium topic works
    Makes the topic one of half messages: the topic that they are delivered to when they are committed, or empty.
tidelog.half.undecided.topic            string   "" - medium topic works
    The topic to which half messages are copied whose senders did not answer, or empty: they are only listed.
unclean.leader.election.enable          boolean  false - medium topic works
    Whether a replica outside the ISR may become leader if no other is left, which can lose records.
"""

# Where a topic has no value of its own it takes the broker's: the first of these that is set, times its unit.
HOURS_MS = 3_600_000
MINUTES_MS = 60_000
TOPIC_SYNONYMS: dict[str, tuple[tuple[str, int], ...]] = {
    "cleanup.policy": (("log.cleanup.policy", 1),),
    "compression.gzip.level": (("compression.gzip.level", 1),),
    "compression.lz4.level": (("compression.lz4.level", 1),),
    "compression.type": (("compression.type", 1),),
    "compression.zstd.level": (("compression.zstd.level", 1),),
    "delete.retention.ms": (("log.cleaner.delete.retention.ms", 1),),
    "file.delete.delay.ms": (("log.segment.delete.delay.ms", 1),),
    "flush.messages": (("log.flush.interval.messages", 1),),
    "flush.ms": (("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)),
    "index.interval.bytes": (("log.index.interval.bytes", 1),),
    "local.retention.bytes": (("log.local.retention.bytes", 1),),
    "local.retention.ms": (("log.local.retention.ms", 1),),
    "max.compaction.lag.ms": (("log.cleaner.max.compaction.lag.ms", 1),),
    "max.message.bytes": (("message.max.bytes", 1),),
    "message.timestamp.after.max.ms": (("log.message.timestamp.after.max.ms", 1),),
    "message.timestamp.before.max.ms": (("log.message.timestamp.before.max.ms", 1),),
    "message.timestamp.type": (("log.message.timestamp.type", 1),),
    "min.cleanable.dirty.ratio": (("log.cleaner.min.cleanable.ratio", 1),),
    "min.compaction.lag.ms": (("log.cleaner.min.compaction.lag.ms", 1),),
    "min.insync.replicas": (("min.insync.replicas", 1),),
    "preallocate": (("log.preallocate", 1),),
    "retention.bytes": (("log.retention.bytes", 1),),
    "retention.ms": (("log.retention.ms", 1), ("log.retention.minutes", MINUTES_MS), ("log.retention.hours", HOURS_MS)),
    "segment.bytes": (("log.segment.bytes", 1),),
    "segment.index.bytes": (("log.index.size.max.bytes", 1),),
    "segment.jitter.ms": (("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", HOURS_MS)),
    "segment.ms": (("log.roll.ms", 1), ("log.roll.hours", HOURS_MS)),
    "unclean.leader.election.enable": (("unclean.leader.election.enable", 1),),
}

GROUP_TABLE = """
consumer.session.timeout.ms        int      45000 >=1 medium group works
    Time without a heartbeat after which a member of this consumer group is removed.
consumer.heartbeat.interval.ms     int      5000 >=1 medium group works
    Heartbeat interval that the coordinator gives to members of this consumer group.
consumer.assignment.interval.ms    int      1000 >=0 medium group works
    Minimum time between two assignments of this consumer group.
share.session.timeout.ms           int      45000 >=1 medium group none:share
    Time without a heartbeat after which a member of this share group is removed.
share.heartbeat.interval.ms        int      5000 >=1 medium group none:share
    Heartbeat interval that the coordinator gives to members of this share group.
share.assignment.interval.ms       int      1000 >=0 medium group none:share
    Minimum time between two assignments of this share group.
share.auto.offset.reset            string   latest offset-reset medium group none:share
    Where this share group starts on a new partition: latest, earliest, or by_duration: and an ISO 8601 duration.
share.isolation.level              string   read_uncommitted in:read_committed,read_uncommitted medium group none:share
    Whether this share group sees records of open and aborted transactions.
share.record.lock.duration.ms      int      30000 >=1000 medium group none:share
    How long a record stays locked by the consumer that acquired it.
share.delivery.count.limit         int      5 >=2 medium group none:share
    Maximum number of times a record is delivered.
share.partition.max.record.locks   int      2000 >=100 medium group none:share
    Maximum number of records of a share-partition that can be acquired at a time.
share.renew.acknowledge.enable     boolean  true - medium group none:share
    Whether a consumer may extend its lock on a record.
streams.session.timeout.ms         int      45000 >=1 medium group none:streams
    Time without a heartbeat after which a member of this streams group is removed.
streams.heartbeat.interval.ms      int      5000 >=1 medium group none:streams
    Heartbeat interval that the coordinator gives to members of this streams group.
streams.assignment.interval.ms     int      1000 >=0 medium group none:streams
    Minimum time between two assignments of this streams group.
streams.initial.rebalance.delay.ms int      3000 >=0 medium group none:streams
    How long this streams group waits for more members before its first assignment.
streams.num.standby.replicas       int      0 >=0 medium group none:streams
    Number of standby replicas of each task's state.
"""

# A group without a value of its own takes the broker's; the bounds are what a group may be given.
GROUP_SYNONYMS = {
    "consumer.assignment.interval.ms": "group.consumer.assignment.interval.ms",
    "consumer.heartbeat.interval.ms": "group.consumer.heartbeat.interval.ms",
    "consumer.session.timeout.ms": "group.consumer.session.timeout.ms",
    "share.assignment.interval.ms": "group.share.assignment.interval.ms",
    "share.delivery.count.limit": "group.share.delivery.count.limit",
    "share.heartbeat.interval.ms": "group.share.heartbeat.interval.ms",
    "share.partition.max.record.locks": "group.share.partition.max.record.locks",
    "share.record.lock.duration.ms": "group.share.record.lock.duration.ms",
    "share.session.timeout.ms": "group.share.session.timeout.ms",
    "streams.assignment.interval.ms": "group.streams.assignment.interval.ms",
    "streams.heartbeat.interval.ms": "group.streams.heartbeat.interval.ms",
    "streams.initial.rebalance.delay.ms": "group.streams.initial.rebalance.delay.ms",
    "streams.num.standby.replicas": "group.streams.num.standby.replicas",
    "streams.session.timeout.ms": "group.streams.session.timeout.ms",
}

CLIENT_METRICS_TABLE = """
metrics     list "" set medium client-metrics none:telemetry
    Prefixes of the metrics that matching clients push; * for all, empty for none.
interval.ms int 300000 - medium client-metrics none:telemetry
    Time between two pushes by a client.
match       list "" set medium client-metrics none:telemetry
    Which clients it applies to: name=pattern pairs that must all match; empty for all clients.
"""
