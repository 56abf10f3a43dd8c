"""Broker configuration of the coordinators of groups, share groups and transactions.

definitions.py explains the columns.
"""

TABLE = """
group.coordinator.rebalance.protocols        list     \
classic,consumer,streams set+:consumer,classic,share,streams medium read-only works
    Group protocols that are offered.
group.coordinator.threads                    int      4 >=1 high read-only none:threads
    Threads of the group coordinator.
group.coordinator.background.threads         int      2 >=1 high read-only none:threads
    Threads for the group coordinator's long computations.
group.coordinator.append.linger.ms           int      -1 >=-1 medium read-only fixed:linger
    How long the group coordinator gathers writes; -1 adapts to the load.
group.coordinator.cached.buffer.max.bytes    int      1048588 >=524288 medium cluster-wide none:buffers
    Largest write buffer that the group coordinator keeps for reuse.
group.initial.rebalance.delay.ms             int      3000 - medium read-only works
    How long a new classic group waits for further members before its first assignment.
group.min.session.timeout.ms                 int      6000 - medium read-only works
    Shortest session timeout that a classic member may ask for.
group.max.session.timeout.ms                 int      1800000 - medium read-only works
    Longest session timeout that a classic member may ask for.
group.max.size                               int      2147483647 >=1 medium read-only works
    Members of one classic group.
group.consumer.assignors                     list     uniform,range set+ medium read-only works
    Assignors for consumer groups; the first is the default.
group.consumer.migration.policy              string   \
bidirectional anycase:DISABLED,DOWNGRADE,UPGRADE,BIDIRECTIONAL medium read-only works
    Whether classic groups may become consumer groups, and the other way round, while they live.
group.consumer.max.size                      int      2147483647 >=1 medium read-only works
    Members of one consumer group.
group.consumer.session.timeout.ms            int      45000 >=1 medium read-only works
    Silence after which a consumer group's member is removed.
group.consumer.min.session.timeout.ms        int      45000 >=1 medium read-only works
    Least session timeout that a consumer group may be given.
group.consumer.max.session.timeout.ms        int      60000 >=1 medium read-only works
    Greatest session timeout that a consumer group may be given.
group.consumer.heartbeat.interval.ms         int      5000 >=1 medium read-only works
    Heartbeat interval told to the members of consumer groups.
group.consumer.min.heartbeat.interval.ms     int      5000 >=1 medium read-only works
    Least heartbeat interval that a consumer group may be given.
group.consumer.max.heartbeat.interval.ms     int      15000 >=1 medium read-only works
    Greatest heartbeat interval that a consumer group may be given.
group.consumer.assignment.interval.ms        int      1000 >=0 medium cluster-wide works
    Least time between two assignments of a consumer group.
group.consumer.min.assignment.interval.ms    int      0 >=0 medium read-only works
    Least assignment interval that a consumer group may be given.
group.consumer.max.assignment.interval.ms    int      15000 >=0 medium read-only works
    Greatest assignment interval that a consumer group may be given.
group.consumer.regex.refresh.interval.ms     int      600000 >=10000 medium internal works
    How often the topics that match a group's pattern are looked up.
group.share.assignors                        list     simple set+ medium read-only none:share
    Assignor for share groups.
group.share.max.size                         int      200 1..1000 medium read-only none:share
    Members of one share group.
group.share.max.share.sessions               int      2000 >=1 medium read-only none:share
    Share sessions on one broker.
group.share.session.timeout.ms               int      45000 >=1 medium read-only none:share
    Silence after which a share group's member is removed.
group.share.min.session.timeout.ms           int      45000 >=1 medium read-only none:share
    Least session timeout that a share group may be given.
group.share.max.session.timeout.ms           int      60000 >=1 medium read-only none:share
    Greatest session timeout that a share group may be given.
group.share.heartbeat.interval.ms            int      5000 >=1 medium read-only none:share
    Heartbeat interval told to the members of share groups.
group.share.min.heartbeat.interval.ms        int      5000 >=1 medium read-only none:share
    Least heartbeat interval that a share group may be given.
group.share.max.heartbeat.interval.ms        int      15000 >=1 medium read-only none:share
    Greatest heartbeat interval that a share group may be given.
group.share.assignment.interval.ms           int      1000 >=0 medium cluster-wide none:share
    Least time between two assignments of a share group.
group.share.min.assignment.interval.ms       int      0 >=0 medium read-only none:share
    Least assignment interval that a share group may be given.
group.share.max.assignment.interval.ms       int      15000 >=0 medium read-only none:share
    Greatest assignment interval that a share group may be given.
group.share.record.lock.duration.ms          int      30000 1000..3600000 medium read-only none:share
    How long a record stays with the consumer that acquired it.
group.share.min.record.lock.duration.ms      int      15000 1000..30000 medium read-only none:share
    Least lock duration that a share group may be given.
group.share.max.record.lock.duration.ms      int      60000 30000..3600000 medium read-only none:share
    Greatest lock duration that a share group may be given.
group.share.delivery.count.limit             int      5 2..10 medium read-only none:share
    Deliveries of a record before it is given up.
group.share.min.delivery.count.limit         int      2 2..5 medium read-only none:share
    Least delivery limit that a share group may be given.
group.share.max.delivery.count.limit         int      10 5..25 medium read-only none:share
    Greatest delivery limit that a share group may be given.
group.share.partition.max.record.locks       int      2000 100..10000 medium read-only none:share
    Records of one share-partition that may be acquired at a time.
group.share.min.partition.max.record.locks   int      100 100..2000 medium read-only none:share
    Least limit of acquired records that a share group may be given.
group.share.max.partition.max.record.locks   int      4000 2000..10000 medium read-only none:share
    Greatest limit of acquired records that a share group may be given.
group.share.initialize.retry.interval.ms     int      30000 >=1 low internal none:share
    Wait before the initialising of a share-partition is tried again.
group.share.persister.class.name             string   \
org.apache.kafka.server.share.persister.DefaultStatePersister - medium internal none:share
    Class that keeps the state of share-partitions.
group.streams.max.size                       int      2147483647 >=1 medium read-only none:streams
    Members of one streams group.
group.streams.session.timeout.ms             int      45000 >=1 medium read-only none:streams
    Silence after which a streams group's member is removed.
group.streams.min.session.timeout.ms         int      45000 >=1 medium read-only none:streams
    Least session timeout that a streams group may be given.
group.streams.max.session.timeout.ms         int      60000 >=1 medium read-only none:streams
    Greatest session timeout that a streams group may be given.
group.streams.heartbeat.interval.ms          int      5000 >=1 medium read-only none:streams
    Heartbeat interval told to the members of streams groups.
group.streams.min.heartbeat.interval.ms      int      5000 >=1 medium read-only none:streams
    Least heartbeat interval that a streams group may be given.
group.streams.max.heartbeat.interval.ms      int      15000 >=1 medium read-only none:streams
    Greatest heartbeat interval that a streams group may be given.
group.streams.assignment.interval.ms         int      1000 >=0 medium cluster-wide none:streams
    Least time between two assignments of a streams group.
group.streams.min.assignment.interval.ms     int      0 >=0 medium read-only none:streams
    Least assignment interval that a streams group may be given.
group.streams.max.assignment.interval.ms     int      15000 >=0 medium read-only none:streams
    Greatest assignment interval that a streams group may be given.
group.streams.initial.rebalance.delay.ms     int      3000 >=0 medium read-only none:streams
    How long a new streams group waits for further members before its first assignment.
group.streams.num.standby.replicas           int      0 >=0 medium read-only none:streams
    Standby copies of each task's state.
group.streams.max.standby.replicas           int      2 >=0 medium read-only none:streams
    Most standby copies that a streams group may be given.
offset.metadata.max.bytes                    int      4096 - high read-only works
    Longest text that may be committed beside an offset.
offsets.commit.timeout.ms                    int      5000 >=1 high read-only works
    How long a commit waits until the offsets topic's replicas have it.
offsets.load.buffer.size                     int      5242880 >=1 high read-only none:buffers
    Bytes read at a time when a coordinator loads its partition.
offsets.retention.minutes                    int      10080 >=1 high read-only works
    How long the offsets of an empty group, or of a topic it left, are kept.
offsets.retention.check.interval.ms          long     600000 >=1 high read-only works
    How often stale offsets are looked for.
offsets.topic.num.partitions                 int      50 >=1 high read-only works
    Partitions of the offsets topic; not to be changed once it exists.
offsets.topic.replication.factor             short    3 >=1 high read-only works
    Replicas of the offsets topic; unless set, no more than there are brokers when it is created.
offsets.topic.segment.bytes                  int      104857600 >=1 high read-only works
    Segment size of the offsets topic.
offsets.topic.compression.codec              int      0 - high read-only fixed:codec
    Codec of the offsets topic, by number.
share.coordinator.threads                    int      1 >=1 medium read-only none:share
    Threads of the share coordinator.
share.coordinator.append.linger.ms           int      -1 >=-1 medium read-only none:share
    How long the share coordinator gathers writes; -1 adapts to the load.
share.coordinator.cached.buffer.max.bytes    int      1048588 >=524288 medium cluster-wide none:share
    Largest write buffer that the share coordinator keeps for reuse.
share.coordinator.load.buffer.size           int      5242880 >=1 high read-only none:share
    Bytes read at a time when a share coordinator loads its partition.
share.coordinator.snapshot.update.records.per.snapshot int      500 0..500 medium read-only none:share
    Updates of a share-partition's state between two snapshots of it.
share.coordinator.cold.partition.snapshot.interval.ms int      300000 >=1 low internal none:share
    How often idle share-partitions are written anew.
share.coordinator.write.timeout.ms           int      5000 >=1 high read-only none:share
    How long a write waits until the share state topic's replicas have it.
share.coordinator.state.topic.num.partitions int      50 >=1 high read-only none:share
    Partitions of the share state topic; not to be changed once it exists.
share.coordinator.state.topic.replication.factor short    3 >=1 high read-only none:share
    Replicas of the share state topic; unless set, no more than there are brokers when it is created.
share.coordinator.state.topic.min.isr        short    2 >=1 high read-only none:share
    Value of min.insync.replicas for the share state topic; unless set, no more than its replicas.
share.coordinator.state.topic.segment.bytes  int      104857600 >=1 high read-only none:share
    Segment size of the share state topic.
share.coordinator.state.topic.compression.codec int      0 - high read-only none:share
    Codec of the share state topic, by number.
share.coordinator.state.topic.prune.interval.ms int      300000 >=1 low internal none:share
    How often the share state topic is shortened.
transaction.max.timeout.ms                   int      900000 >=1 high read-only works
    Longest transaction timeout that a producer may ask for.
transactional.id.expiration.ms               int      604800000 >=1 high read-only works
    How long an unused transactional id is remembered.
transaction.state.log.num.partitions         int      50 >=1 high read-only works
    Partitions of the transaction topic; not to be changed once it exists.
transaction.state.log.replication.factor     short    3 >=1 high read-only works
    Replicas of the transaction topic; unless set, no more than there are brokers when it is created.
transaction.state.log.min.isr                int      2 >=1 high read-only works
    Value of min.insync.replicas for the transaction topic; unless set, no more than its replicas.
transaction.state.log.segment.bytes          int      104857600 >=1 high read-only works
    Segment size of the transaction topic.
transaction.state.log.load.buffer.size       int      5242880 >=1 high read-only none:buffers
    Bytes read at a time when a transaction coordinator loads its partition.
transaction.abort.timed.out.transaction.cleanup.interval.ms int      10000 >=1 low read-only none:timers
    How often overdue transactions are aborted.
transaction.remove.expired.transaction.cleanup.interval.ms int      3600000 >=1 low read-only works
    How often unused transactional ids are forgotten.
transaction.partition.verification.enable    boolean  true - low cluster-wide works
    Whether a partition checks with the coordinator that a transaction is open before it takes a batch.
transaction.two.phase.commit.enable          boolean  false - low read-only fixed:two-phase
    Whether transactions without a timeout, driven by an outside coordinator, are allowed.
add.partitions.to.txn.retry.backoff.ms       int      20 >=1 high read-only none:cluster
    First wait of a broker before it asks the transaction coordinator again.
add.partitions.to.txn.retry.backoff.max.ms   int      100 >=0 high read-only none:cluster
    Longest wait of a broker before it asks the transaction coordinator again.
"""
