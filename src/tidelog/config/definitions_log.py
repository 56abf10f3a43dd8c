"""Broker configuration of the log: segments, retention, flushing, compaction, compression.

definitions.py explains the columns. Most of these are the defaults of topics, which override them
(`definitions_topic.py` names the synonyms).
"""

TABLE = """
num.partitions                               int      1 >=1 medium read-only works
    Partitions of a topic that is created without saying how many.
auto.create.topics.enable                    boolean  true - high read-only works
    Whether asking for the metadata of an unknown topic creates it.
delete.topic.enable                          boolean  true - high read-only works
    Whether topics may be deleted at all.
message.max.bytes                            int      1048588 >=0 high cluster-wide works
    Largest record batch that is accepted, after compression; topics override it with max.message.bytes.
log.dir                                      list     tidelog-data set+ high read-only works
    Where the log lives, if log.dirs does not say otherwise.
log.dirs                                     list     null set+ high read-only works
    Directories that hold the log, separated by commas; each partition lives in one of them.
cordoned.log.dirs                            list     "" set medium per-broker works
    Log directories that get no new partitions; * stands for all of them.
log.dir.failure.timeout.ms                   long     30000 >=1 low read-only none:cluster
    How long a broker with a failed log directory waits to tell the controller before it stops.
log.segment.bytes                            int      1073741824 >=1048576 high cluster-wide works
    Size at which a segment is closed and a new one started.
log.roll.ms                                  long     null - high cluster-wide works
    Age at which a segment is closed even if it is small; wins over log.roll.hours.
log.roll.hours                               int      168 >=1 high read-only works
    Age in hours at which a segment is closed even if it is small.
log.roll.jitter.ms                           long     null - high cluster-wide works
    Up to this much is taken off the roll age at random, so that segments do not all roll at once.
log.roll.jitter.hours                        int      0 >=0 high read-only works
    The jitter of log.roll.jitter.ms in hours, used where that is not set.
log.retention.ms                             long     null - high cluster-wide works
    Age at which a closed segment may be deleted, -1 for never; wins over the minutes and the hours.
log.retention.minutes                        int      null - high read-only works
    Age in minutes at which a closed segment may be deleted; wins over the hours.
log.retention.hours                          int      168 - high read-only works
    Age in hours at which a closed segment may be deleted.
log.retention.bytes                          long     -1 - high cluster-wide works
    Size of a partition above which its oldest segments are deleted, -1 for no limit.
log.retention.check.interval.ms              long     300000 >=1 medium read-only works
    How often segments are looked at for deletion.
log.cleanup.policy                           list     delete set:compact,delete medium cluster-wide works
    What happens to old segments: delete by age and size, compact by key, both, or with an empty list nothing.
log.segment.delete.delay.ms                  long     60000 >=0 high cluster-wide works
    How long the files of a deleted segment stay on disk, renamed, before they go.
log.index.size.max.bytes                     int      10485760 >=4 medium cluster-wide works
    Largest size of an offset index or time index; a full index rolls the segment.
log.index.interval.bytes                     int      4096 >=0 medium cluster-wide works
    Bytes of log between two entries of the offset index.
log.flush.interval.messages                  long     9223372036854775807 >=1 high cluster-wide works
    Records appended to a partition before it is forced to disk.
log.flush.interval.ms                        long     null - high cluster-wide works
    Longest time a record may wait in memory before it is forced to disk.
log.flush.scheduler.interval.ms              long     9223372036854775807 - high read-only works
    How often logs are checked for a due flush; also the flush age where log.flush.interval.ms is not set.
log.flush.offset.checkpoint.interval.ms      int      60000 >=0 high read-only works
    How often the point up to which logs are flushed is written down, for recovery.
log.flush.start.offset.checkpoint.interval.ms int      60000 >=0 high read-only fixed:checkpoints
    How often the start offsets of logs are written down.
log.initial.task.delay.ms                    long     30000 >=0 low internal works
    Wait after start before the first round of the periodic log tasks.
log.preallocate                              boolean  false - medium cluster-wide works
    Whether a new segment file is given its full size at once.
log.message.timestamp.type                   string   CreateTime in:CreateTime,LogAppendTime medium cluster-wide works
    Whether a record keeps the time its producer gave it or gets the time of its append.
log.message.timestamp.before.max.ms          long     9223372036854775807 >=0 medium cluster-wide works
    How far a record's timestamp may lie behind the broker's clock.
log.message.timestamp.after.max.ms           long     3600000 >=0 medium cluster-wide works
    How far a record's timestamp may lie ahead of the broker's clock.
log.local.retention.ms                       long     -2 >=-2 medium cluster-wide none:tiering
    Age limit for the local part of a tiered log; -2 takes log.retention.ms.
log.local.retention.bytes                    long     -2 >=-2 medium cluster-wide none:tiering
    Size limit for the local part of a tiered log; -2 takes log.retention.bytes.
log.cleaner.enable                           boolean  true - medium read-only works
    Whether the compactor runs; compacted internal topics need it.
log.cleaner.threads                          int      1 >=0 medium cluster-wide fixed:one-cleaner
    Threads that compact.
log.cleaner.backoff.ms                       long     15000 >=0 medium cluster-wide works
    How long the compactor rests when no log needs it.
log.cleaner.dedupe.buffer.size               long     134217728 - medium cluster-wide works
    Memory for the table of keys, over all compaction threads.
log.cleaner.io.buffer.size                   int      524288 >=0 medium cluster-wide works
    Memory for reading and writing while compacting, over all threads.
log.cleaner.io.buffer.load.factor            double   0.9 - medium cluster-wide works
    How full the table of keys may become.
log.cleaner.io.max.bytes.per.second          double   1.7976931348623157E308 - medium cluster-wide works
    Reading and writing of the compactor together stay below this rate.
log.cleaner.delete.retention.ms              long     86400000 >=0 medium cluster-wide works
    How long a tombstone can still be read after the records it deletes are gone.
log.cleaner.min.compaction.lag.ms            long     0 >=0 medium cluster-wide works
    A record is not compacted away before it has this age.
log.cleaner.max.compaction.lag.ms            long     9223372036854775807 >=1 medium cluster-wide works
    A record is considered for compaction at this age at the latest.
log.cleaner.min.cleanable.ratio              double   0.5 0..1 medium cluster-wide works
    Share of a log that must be uncompacted before it is worth compacting.
compression.type                             string   \
producer in:uncompressed,zstd,lz4,snappy,gzip,producer high cluster-wide works
    Codec a batch is stored with: a codec's name, uncompressed, or producer to keep what came.
compression.gzip.level                       int      -1 gzip-level medium cluster-wide works
    Level for recompressing with gzip; -1 is gzip's own default.
compression.lz4.level                        int      9 1..17 medium cluster-wide works
    Level for recompressing with lz4.
compression.zstd.level                       int      3 -131072..22 medium cluster-wide works
    Level for recompressing with zstd.
min.insync.replicas                          int      1 >=1 high cluster-wide works
    Replicas that must have a batch before acks=all is answered; with fewer in sync the write is refused.
unclean.leader.election.enable               boolean  false - high cluster-wide works
    Whether a replica outside the ISR may lead when no other is left, at the price of lost records.
num.recovery.threads.per.data.dir            int      2 >=1 high cluster-wide none:threads
    Threads per log directory that open logs at start and flush them at the end.
producer.id.expiration.ms                    int      86400000 >=1 low cluster-wide works
    How long the state of an idle producer is kept for recognising its repeats.
producer.id.expiration.check.interval.ms     int      600000 >=1 low internal works
    How often idle producers are looked for.
create.topic.policy.class.name               class    null - low read-only refused:policy
    Plug-in class that judges new topics.
alter.config.policy.class.name               class    null - low read-only refused:policy
    Plug-in class that judges configuration changes.
num.replica.alter.log.dirs.threads           int      null - high read-only none:threads
    Threads that move replicas between log directories.
"""
