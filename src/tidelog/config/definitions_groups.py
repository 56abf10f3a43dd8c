"""Broker configuration of the coordinators of groups, share groups and transactions.

definitions.py explains the columns.
"""

TABLE = """
group.coordinator.rebalance.protocols        list     \
classic,consumer,streams set+:consumer,classic,share,streams medium read-only works
    Group protocols that are enabled.
group.coordinator.threads                    int      4 >=1 high read-only none:threads
    Threads of the group coordinator.
group.coordinator.background.threads         int      2 >=1 high read-only none:threads
    Threads for the group coordinator's long computations.
group.coordinator.append.linger.ms           int      -1 >=-1 medium read-only fixed:linger
    How long the group coordinator collects writes into one batch; -1 adapts to the load.
group.coordinator.cached.buffer.max.bytes    int      1048588 >=524288 medium cluster-wide none:buffers
    Largest write buffer that the group coordinator keeps for reuse.
group.initial.rebalance.delay.ms             int      3000 - medium read-only works
    How long a new classic group waits for more members before its first assignment.
group.min.session.timeout.ms                 int      6000 - medium read-only works
    Shortest session timeout that a classic member may request.
group.max.session.timeout.ms                 int      1800000 - medium read-only works
    Longest session timeout that a classic member may request.
group.max.size                               int      2147483647 >=1 medium read-only works
    Maximum number of members of a classic group.
group.consumer.assignors                     list     uniform,range set+ medium read-only works
    Assignors for consumer groups; the first is the default.
group.consumer.migration.policy              string   \
bidirectional anycase:DISABLED,DOWNGRADE,UPGRADE,BIDIRECTIONAL medium read-only works
    Whether live groups may switch from the classic to the consumer protocol, and back.
group.consumer.max.size                      int      2147483647 >=1 medium read-only works
    Maximum number of members of a consumer group.
group.consumer.session.timeout.ms            int      45000 >=1 medium read-only works
    Time without a heartbeat after which a member of a consumer group is removed.
group.consumer.min.session.timeout.ms        int      45000 >=1 medium read-only works
    Shortest session timeout that a consumer group may have.
group.consumer.max.session.timeout.ms        int      60000 >=1 medium read-only works
    Longest session timeout that a consumer group may have.
group.consumer.heartbeat.interval.ms         int      5000 >=1 medium read-only works
    Heartbeat interval that the coordinator gives to members of consumer groups.
group.consumer.min.heartbeat.interval.ms     int      5000 >=1 medium read-only works
    Shortest heartbeat interval that a consumer group may have.
group.consumer.max.heartbeat.interval.ms     int      15000 >=1 medium read-only works
    Longest heartbeat interval that a consumer group may have.
group.consumer.assignment.interval.ms        int      1000 >=0 medium cluster-wide works
    Minimum time between two assignments of a consumer group.
group.consumer.min.assignment.interval.ms    int      0 >=0 medium read-only works
    Shortest assignment interval that a consumer group may have.
group.consumer.max.assignment.interval.ms    int      15000 >=0 medium read-only works
    Longest assignment interval that a consumer group may have.
group.consumer.regex.refresh.interval.ms     int      600000 >=10000 medium internal works
    How often the topics that match a group's pattern are resolved again.
group.share.assignors                        list     simple set+ medium read-only none:share
    Assignor for share groups.
group.share.max.size                         int      200 1..1000 medium read-only none:share
    Maximum number of members of a share group.
group.share.max.share.sessions               int      2000 >=1 medium read-only none:share
    Maximum number of share sessions on one broker.
group.share.session.timeout.ms               int      45000 >=1 medium read-only none:share
    Time without a heartbeat after which a member of a share group is removed.
group.share.min.session.timeout.ms           int      45000 >=1 medium read-only none:share
    Shortest session timeout that a share group may have.
group.share.max.session.timeout.ms           int      60000 >=1 medium read-only none:share
    Longest session timeout that a share group may have.
group.share.heartbeat.interval.ms            int      5000 >=1 medium read-only none:share
    Heartbeat interval that the coordinator gives to members of share groups.
group.share.min.heartbeat.interval.ms        int      5000 >=1 medium read-only none:share
    Shortest heartbeat interval that a share group may have.
group.share.max.heartbeat.interval.ms        int      15000 >=1 medium read-only none:share
    Longest heartbeat interval that a share group may have.
group.share.assignment.interval.ms           int      1000 >=0 medium cluster-wide none:share
    Minimum time between two assignments of a share group.
group.share.min.assignment.interval.ms       int      0 >=0 medium read-only none:share
    Shortest assignment interval that a share group may have.
group.share.max.assignment.interval.ms       int      15000 >=0 medium read-only none:share
    Longest assignment interval that a share group may have.
group.share.record.lock.duration.ms          int      30000 1000..3600000 medium read-only none:share
    How long a record stays locked by the consumer that acquired it.
group.share.min.record.lock.duration.ms      int      15000 1000..30000 medium read-only none:share
    Shortest lock duration that a share group may have.
group.share.max.record.lock.duration.ms      int      60000 30000..3600000 medium read-only none:share
    Longest lock duration that a share group may have.
group.share.delivery.count.limit             int      5 2..10 medium read-only none:share
    Maximum number of times a record is delivered.
group.share.min.delivery.count.limit         int      2 2..5 medium read-only none:share
    Lowest delivery limit that a share group may have.
group.share.max.delivery.count.limit         int      10 5..25 medium read-only none:share
    Highest delivery limit that a share group may have.
group.share.partition.max.record.locks       int      2000 100..10000 medium read-only none:share
    Maximum number of records of a share-partition that can be acquired at a time.
group.share.min.partition.max.record.locks   int      100 100..2000 medium read-only none:share
    Lowest limit of acquired records that a share group may have.
group.share.max.partition.max.record.locks   int      4000 2000..10000 medium read-only none:share
    Highest limit of acquired records that a share group may have.
group.share.initialize.retry.interval.ms     int      30000 >=1 low internal none:share
    Delay before the initialization of a share-partition is retried.
group.share.persister.class.name             string   \
org.apache.kafka.server.share.persister.DefaultStatePersister - medium internal none:share
    Class that persists the state of share-partitions.
group.streams.max.size                       int      2147483647 >=1 medium read-only none:streams
    Maximum number of members of a streams group.
group.streams.session.timeout.ms             int      45000 >=1 medium read-only none:streams
    Time without a heartbeat after which a member of a streams group is removed.
group.streams.min.session.timeout.ms         int      45000 >=1 medium read-only none:streams
    Shortest session timeout that a streams group may have.
group.streams.max.session.timeout.ms         int      60000 >=1 medium read-only none:streams
    Longest session timeout that a streams group may have.
group.streams.heartbeat.interval.ms          int      5000 >=1 medium read-only none:streams
    Heartbeat interval that the coordinator gives to members of streams groups.
group.streams.min.heartbeat.interval.ms      int      5000 >=1 medium read-only none:streams
    Shortest heartbeat interval that a streams group may have.
group.streams.max.heartbeat.interval.ms      int      15000 >=1 medium read-only none:streams
    Longest heartbeat interval that a streams group may have.
group.streams.assignment.interval.ms         int      1000 >=0 medium cluster-wide none:streams
    Minimum time between two assignments of a streams group.
group.streams.min.assignment.interval.ms     int      0 >=0 medium read-only none:streams
    Shortest assignment interval that a streams group may have.
group.streams.max.assignment.interval.ms     int      15000 >=0 medium read-only none:streams
    Longest assignment interval that a streams group may have.
group.streams.initial.rebalance.delay.ms     int      3000 >=0 medium read-only none:streams
    How long a new streams group waits for more members before its first assignment.
group.streams.num.standby.replicas           int      0 >=0 medium read-only none:streams
    Number of standby replicas of each task's state.
group.streams.max.standby.replicas           int      2 >=0 medium read-only none:streams
    Highest number of standby replicas that a streams group may have.
offset.metadata.max.bytes                    int      4096 - high read-only works
    Maximum size of the metadata committed with an offset.
offsets.commit.timeout.ms                    int      5000 >=1 high read-only works
    How long an offset commit waits for the replicas of the offsets topic.
offsets.load.buffer.size                     int      5242880 >=1 high read-only none:buffers
    Bytes read at a time when a coordinator loads its partition.
offsets.retention.minutes                    int      10080 >=1 high read-only works
    How long offsets are kept for an empty group, or for a topic that the group no longer subscribes to.
offsets.retention.check.interval.ms          long     600000 >=1 high read-only works
    How often offsets are checked for expiry.
offsets.topic.num.partitions                 int      50 >=1 high read-only works
    Partitions of the offsets topic; do not change it once the topic exists.
offsets.topic.replication.factor             short    3 >=1 high read-only works
    Replicas of the offsets topic; if not set, at most the number of brokers when the topic is created.
offsets.topic.segment.bytes                  int      104857600 >=1 high read-only works
    Segment size of the offsets topic.
offsets.topic.compression.codec              int      0 - high read-only fixed:codec
    Codec of the offsets topic, as a number.
share.coordinator.threads                    int      1 >=1 medium read-only none:share
    Threads of the share coordinator.
share.coordinator.append.linger.ms           int      -1 >=-1 medium read-only none:share
    How long the share coordinator collects writes into one batch; -1 adapts to the load.
share.coordinator.cached.buffer.max.bytes    int      1048588 >=524288 medium cluster-wide none:share
    Largest write buffer that the share coordinator keeps for reuse.
share.coordinator.load.buffer.size           int      5242880 >=1 high read-only none:share
    Bytes read at a time when a share coordinator loads its partition.
share.coordinator.snapshot.update.records.per.snapshot int      500 0..500 medium read-only none:share
    Number of updates to a share-partition's state between two snapshots.
share.coordinator.cold.partition.snapshot.interval.ms int      300000 >=1 low internal none:share
    How often snapshots of idle share-partitions are written.
share.coordinator.write.timeout.ms           int      5000 >=1 high read-only none:share
    How long a write waits for the replicas of the share state topic.
share.coordinator.state.topic.num.partitions int      50 >=1 high read-only none:share
    Partitions of the share state topic; do not change it once the topic exists.
share.coordinator.state.topic.replication.factor short    3 >=1 high read-only none:share
    Replicas of the share state topic; if not set, at most the number of brokers when the topic is created.
share.coordinator.state.topic.min.isr        short    2 >=1 high read-only none:share
    Value of min.insync.replicas for the share state topic; if not set, at most its replication factor.
share.coordinator.state.topic.segment.bytes  int      104857600 >=1 high read-only none:share
    Segment size of the share state topic.
share.coordinator.state.topic.compression.codec int      0 - high read-only none:share
    Codec of the share state topic, as a number.
share.coordinator.state.topic.prune.interval.ms int      300000 >=1 low internal none:share
    How often the share state topic is pruned.
transaction.max.timeout.ms                   int      900000 >=1 high read-only works
    Longest transaction timeout that a producer may request.
transactional.id.expiration.ms               int      604800000 >=1 high read-only works
    How long an unused transactional ID is kept.
transaction.state.log.num.partitions         int      50 >=1 high read-only works
    Partitions of the transaction topic; do not change it once the topic exists.
transaction.state.log.replication.factor     short    3 >=1 high read-only works
    Replicas of the transaction topic; if not set, at most the number of brokers when the topic is created.
transaction.state.log.min.isr                int      2 >=1 high read-only works
    Value of min.insync.replicas for the transaction topic; if not set, at most its replication factor.
transaction.state.log.segment.bytes          int      104857600 >=1 high read-only works
    Segment size of the transaction topic.
transaction.state.log.load.buffer.size       int      5242880 >=1 high read-only none:buffers
    Bytes read at a time when a transaction coordinator loads its partition.
transaction.abort.timed.out.transaction.cleanup.interval.ms int      10000 >=1 low read-only none:timers
    How often timed-out transactions are aborted.
transaction.remove.expired.transaction.cleanup.interval.ms int      3600000 >=1 low read-only works
    How often expired transactional IDs are removed.
transaction.partition.verification.enable    boolean  true - low cluster-wide works
    Whether a partition leader checks with the coordinator that a transaction is open before it accepts a batch.
transaction.two.phase.commit.enable          boolean  false - low read-only fixed:two-phase
    Whether transactions without a timeout, controlled by an external coordinator, are allowed.
add.partitions.to.txn.retry.backoff.ms       int      20 >=1 high read-only works
    Delay before a partition leader asks again to add the partition to a transaction whose predecessor is ending.
add.partitions.to.txn.retry.backoff.max.ms   int      100 >=0 high read-only works
    How long a partition leader goes on asking to add the partition before it tells the producer to try again.
"""
