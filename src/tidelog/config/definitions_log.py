"""Broker configuration of the log: segments, retention, flushing, compaction, compression.

definitions.py explains the columns. Most of these are the defaults of topics, which override them
(`definitions_topic.py` names the synonyms).
"""

TABLE = """
num.partitions                               int      1 >=1 medium read-only works
    Number of partitions of a topic that is created without one.
auto.create.topics.enable                    boolean  true - high read-only works
    Whether a metadata request for an unknown topic creates it.
delete.topic.enable                          boolean  true - high read-only works
    Whether topics can be deleted.
message.max.bytes                            int      1048588 >=0 high cluster-wide works
    Largest record batch that is accepted, after compression; topics override it with max.message.bytes.
log.dir                                      list     tidelog-data set+ high read-only works
    Directory of the log, used if log.dirs is not set.
log.dirs                                     list     null set+ high read-only works
    Directories that hold the log, separated by commas; each partition is stored in one of them.
log.layout                                   string   partitioned in:partitioned,shared high read-only works
    How batches are stored: partitioned, in files for each partition, as Apache Kafka does; or shared, in one commit
    log for all partitions of a log directory, which keeps writes sequential with thousands of partitions. A data
    directory keeps the layout that it was created with: convert it with tidelog storage convert.
shared.segment.bytes                         int      1073741824 >=16384 medium read-only works
    Size at which a file of the commit log is closed and a new one started, with log.layout=shared.
cordoned.log.dirs                            list     "" set medium per-broker works
    Log directories that get no new partitions; * for all.
log.dir.failure.timeout.ms                   long     30000 >=1 low read-only none:cluster
    How long a broker tries to report a failed log directory to the controller before it stops.
log.segment.bytes                            int      1073741824 >=1048576 high cluster-wide works
    Size at which a segment is closed and a new one started.
log.roll.ms                                  long     null - high cluster-wide works
    Age at which a segment is closed even if it is small; overrides log.roll.hours.
log.roll.hours                               int      168 >=1 high read-only works
    Age in hours at which a segment is closed even if it is small.
log.roll.jitter.ms                           long     null - high cluster-wide works
    Maximum random time subtracted from the roll age, so that segments do not all roll at once.
log.roll.jitter.hours                        int      0 >=0 high read-only works
    The same in hours, used if log.roll.jitter.ms is not set.
log.retention.ms                             long     null - high cluster-wide works
    Age at which a closed segment may be deleted; -1 for never; overrides the settings in minutes and hours.
log.retention.minutes                        int      null - high read-only works
    Age in minutes at which a closed segment may be deleted; overrides the setting in hours.
log.retention.hours                          int      168 - high read-only works
    Age in hours at which a closed segment may be deleted.
log.retention.bytes                          long     -1 - high cluster-wide works
    Size above which the oldest segments of a partition are deleted; -1 for no limit.
log.retention.check.interval.ms              long     300000 >=1 medium read-only works
    How often segments are checked for deletion.
log.cleanup.policy                           list     delete set:compact,delete medium cluster-wide works
    What happens to old segments: delete by age and size, compact by key, both, or nothing if the list is empty.
log.segment.delete.delay.ms                  long     60000 >=0 high cluster-wide works
    How long the files of a deleted segment stay on disk, renamed, before they are deleted.
log.index.size.max.bytes                     int      10485760 >=4 medium cluster-wide works
    Largest size of an offset index or time index; a full index rolls the segment.
log.index.interval.bytes                     int      4096 >=0 medium cluster-wide works
    Number of bytes between two entries of the offset index.
log.flush.interval.messages                  long     9223372036854775807 >=1 high cluster-wide works
    Number of records appended to a partition before it is flushed to disk.
log.flush.interval.ms                        long     null - high cluster-wide works
    Longest time a record may stay in memory before it is flushed to disk.
log.flush.scheduler.interval.ms              long     9223372036854775807 - high read-only works
    How often logs are checked for a due flush; also the flush interval if log.flush.interval.ms is not set.
log.flush.offset.checkpoint.interval.ms      int      60000 >=0 high read-only works
    How often the recovery points, up to which the logs are flushed, are checkpointed.
log.flush.start.offset.checkpoint.interval.ms int      60000 >=0 high read-only fixed:checkpoints
    How often the log start offsets are checkpointed.
log.initial.task.delay.ms                    long     30000 >=0 low internal works
    Delay after startup before the periodic log tasks run for the first time.
log.preallocate                              boolean  false - medium cluster-wide works
    Whether a new segment file is preallocated at its full size.
log.message.timestamp.type                   string   CreateTime in:CreateTime,LogAppendTime medium cluster-wide works
    Whether a record keeps the timestamp set by its producer or gets the time at which it is appended.
log.message.timestamp.before.max.ms          long     9223372036854775807 >=0 medium cluster-wide works
    How far a record's timestamp may be behind the broker's clock.
log.message.timestamp.after.max.ms           long     3600000 >=0 medium cluster-wide works
    How far a record's timestamp may be ahead of the broker's clock.
log.local.retention.ms                       long     -2 >=-2 medium cluster-wide none:tiering
    Age limit for the local part of a tiered log; -2 means the value of log.retention.ms.
log.local.retention.bytes                    long     -2 >=-2 medium cluster-wide none:tiering
    Size limit for the local part of a tiered log; -2 means the value of log.retention.bytes.
log.cleaner.enable                           boolean  true - medium read-only works
    Whether the log cleaner runs; compacted internal topics need it.
log.cleaner.threads                          int      1 >=0 medium cluster-wide fixed:one-cleaner
    Number of log cleaner threads.
log.cleaner.backoff.ms                       long     15000 >=0 medium cluster-wide works
    How long the log cleaner sleeps when no log needs cleaning.
log.cleaner.dedupe.buffer.size               long     134217728 - medium cluster-wide works
    Memory for the table of keys, shared by all log cleaner threads.
log.cleaner.io.buffer.size                   int      524288 >=0 medium cluster-wide works
    Memory for I/O buffers during compaction, shared by all log cleaner threads.
log.cleaner.io.buffer.load.factor            double   0.9 - medium cluster-wide works
    Maximum load factor of the table of keys.
log.cleaner.io.max.bytes.per.second          double   1.7976931348623157E308 - medium cluster-wide works
    Maximum rate of the log cleaner's reads and writes combined.
log.cleaner.delete.retention.ms              long     86400000 >=0 medium cluster-wide works
    How long a tombstone can still be read after the records it deletes have been removed.
log.cleaner.min.compaction.lag.ms            long     0 >=0 medium cluster-wide works
    Age that a record must reach before it can be compacted away.
log.cleaner.max.compaction.lag.ms            long     9223372036854775807 >=1 medium cluster-wide works
    Age at which a record becomes eligible for compaction at the latest.
log.cleaner.min.cleanable.ratio              double   0.5 0..1 medium cluster-wide works
    Uncompacted share of a log at which it is compacted.
compression.type                             string   \
producer in:uncompressed,zstd,lz4,snappy,gzip,producer high cluster-wide works
    Codec that batches are stored with: the name of a codec, uncompressed, or producer to keep the producer's codec.
compression.gzip.level                       int      -1 gzip-level medium cluster-wide works
    Compression level for recompressing with gzip; -1 is the default of gzip.
compression.lz4.level                        int      9 1..17 medium cluster-wide works
    Compression level for recompressing with lz4.
compression.zstd.level                       int      3 -131072..22 medium cluster-wide works
    Compression level for recompressing with zstd.
min.insync.replicas                          int      1 >=1 high cluster-wide works
    Replicas that must be in sync for a write with acks=all; with fewer, the write is refused.
unclean.leader.election.enable               boolean  false - high cluster-wide works
    Whether a replica outside the ISR may become leader if no other is left, which can lose records.
num.recovery.threads.per.data.dir            int      2 >=1 high cluster-wide none:threads
    Threads per log directory that open the logs at startup and flush them at shutdown.
producer.id.expiration.ms                    int      86400000 >=1 low cluster-wide works
    How long the state of an idle producer is kept to detect duplicates.
producer.id.expiration.check.interval.ms     int      600000 >=1 low internal works
    How often idle producers are checked for expiry.
create.topic.policy.class.name               class    null - low read-only refused:policy
    Plug-in class that validates new topics.
alter.config.policy.class.name               class    null - low read-only refused:policy
    Plug-in class that validates configuration changes.
num.replica.alter.log.dirs.threads           int      null - high read-only none:threads
    Threads that move replicas between log directories.
"""
