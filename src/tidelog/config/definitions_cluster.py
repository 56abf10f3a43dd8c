"""Broker configuration of a broker among others: identity, ZooKeeper, replication, leaders; KRaft and tiering.

definitions.py explains the columns. Apache Kafka 4 has no ZooKeeper: its names and defaults are those of 3.9. Most of
these settings are known only so that a file written for Kafka loads: their last column says so.
"""

TABLE = """
broker.id                                    int      -1 - high read-only works
    ID of this broker, unique in its cluster; the same setting as node.id.
node.id                                      int      -1 >=-1 high read-only works
    ID of this broker, unique in its cluster; the same setting as broker.id.
broker.id.generation.enable                  boolean  true - medium read-only none:zookeeper
    Whether a broker without an ID gets one from ZooKeeper, above reserved.broker.max.id.
reserved.broker.max.id                       int      1000 >=0 medium read-only none:zookeeper
    Highest broker ID that can be assigned manually.
broker.rack                                  string   null - medium read-only works
    Rack of this broker; replicas are spread over racks, and consumers may prefer their own rack.
zookeeper.connect                            string   null - high read-only refused:cluster
    ZooKeeper servers as host:port,host:port/chroot; refused until clusters are supported.
zookeeper.session.timeout.ms                 int      18000 - high read-only works
    Time without a heartbeat after which ZooKeeper considers a broker dead.
zookeeper.connection.timeout.ms              int      null - high read-only none:zookeeper
    How long connecting to ZooKeeper may take; the session timeout if not set.
zookeeper.set.acl                            boolean  false - high read-only refused:rights
    Whether nodes in ZooKeeper are created with restricted access.
zookeeper.max.in.flight.requests             int      10 >=1 high read-only none:zookeeper
    Maximum number of unanswered requests to ZooKeeper.
inter.broker.listener.name                   string   null - medium read-only works
    Listener used for communication between brokers.
inter.broker.protocol.version                string   null - medium read-only none:cluster
    Version of the protocol between brokers.
default.replication.factor                   int      1 - medium read-only works
    Replication factor of a topic that is created without one.
num.replica.fetchers                         int      1 >=1 high cluster-wide works
    Number of fetch connections from each broker to each leader.
replica.fetch.min.bytes                      int      1 - high read-only works
    Minimum number of bytes that the leader waits for before it answers a follower's fetch.
replica.fetch.max.bytes                      int      1048576 >=0 medium read-only works
    Bytes per partition that a follower requests in one fetch.
replica.fetch.response.max.bytes             int      10485760 >=0 medium read-only works
    Total bytes that a follower requests in one fetch.
replica.fetch.wait.max.ms                    int      500 - high read-only works
    How long the leader may hold back the response to a follower's fetch.
replica.fetch.backoff.ms                     int      1000 >=0 medium read-only works
    Delay after a failed fetch of a partition.
replica.lag.time.max.ms                      long     30000 - high read-only works
    A follower that has not caught up for this long leaves the ISR.
replica.high.watermark.checkpoint.interval.ms long     5000 - high read-only works
    How often high watermarks are written to disk.
replica.socket.timeout.ms                    int      30000 - high read-only works
    How long a follower waits for the leader's response.
replica.socket.receive.buffer.bytes          int      65536 - high read-only works
    SO_RCVBUF of a follower's connections.
replica.selector.class                       string   null - medium read-only works
    Kafka's name for the rule by which consumers are sent to replicas in their rack; without one they read from leaders.
follower.fetch.last.tiered.offset.enable     boolean  false - medium cluster-wide none:tiering
    Whether a new follower starts after the last offset in tiered storage.
auto.leader.rebalance.enable                 boolean  true - high read-only works
    Whether leadership returns to the preferred replicas automatically.
leader.imbalance.per.broker.percentage       int      10 - high read-only works
    Percentage of partitions not led by their preferred replica above which leaders are rebalanced.
leader.imbalance.check.interval.seconds      long     300 >=1 high read-only works
    How often the leader balance is checked.
unclean.leader.election.interval.ms          long     300000 >=1 medium internal none:cluster
    How often partitions without a leader are checked for an unclean election.
controlled.shutdown.enable                   boolean  true - medium read-only works
    Whether a broker hands over its partition leaderships before it stops.
controlled.shutdown.max.retries              int      3 - medium read-only works
    Number of attempts to hand over leaderships.
controlled.shutdown.retry.backoff.ms         long     5000 - medium read-only works
    Delay between attempts to hand over leaderships.
controller.socket.timeout.ms                 int      30000 - medium read-only works
    How long the controller waits for a broker's response, and a broker for the controller.
process.roles                                list     "" set:broker,controller high read-only refused:cluster
    Roles of a KRaft node; a Tidelog broker always has both, and a single role is refused.
controller.listener.names                    list     "" set high read-only works
    Listeners of a KRaft controller; they are not advertised to clients.
controller.quorum.voters                     list     "" - high read-only refused:cluster
    KRaft voters; refused unless they name this node alone.
controller.quorum.bootstrap.servers          list     "" - high read-only refused:cluster
    KRaft controllers to bootstrap from; refused if they are on other hosts than this node.
controller.quorum.auto.join.enable           boolean  false - low read-only none:kraft
    Whether a KRaft controller joins the voters automatically.
controller.quorum.append.linger.ms           int      25 >=0 medium read-only none:kraft
    How long a KRaft leader collects writes into one batch.
controller.quorum.election.backoff.max.ms    int      1000 >=0 high read-only none:kraft
    Longest wait before another KRaft election.
controller.quorum.election.timeout.ms        int      1000 >=0 high read-only none:kraft
    How long a KRaft election may take.
controller.quorum.fetch.max.bytes            int      1048576 >=1 low read-only none:kraft
    Bytes that a KRaft follower requests in one fetch.
controller.quorum.fetch.snapshot.max.bytes   int      1048576 >=1 low read-only none:kraft
    Bytes of a KRaft snapshot that are requested at a time.
controller.quorum.fetch.timeout.ms           int      2000 >=0 high read-only none:kraft
    Time without a successful fetch after which a KRaft follower becomes a candidate.
controller.quorum.request.timeout.ms         int      2000 >=0 medium read-only none:kraft
    How long a KRaft request may take.
controller.quorum.retry.backoff.ms           int      20 >=0 low read-only none:kraft
    Delay before a KRaft request is retried.
controller.performance.sample.period.ms      long     60000 >=100 medium internal none:kraft
    How often slow KRaft controller events are reported.
controller.performance.always.log.threshold.ms long     2000 >=0 medium internal none:kraft
    KRaft controller events slower than this are always reported.
broker.heartbeat.interval.ms                 int      2000 - medium read-only none:kraft
    Time between a KRaft broker's heartbeats.
broker.session.timeout.ms                    int      9000 - medium read-only none:kraft
    Time without a heartbeat after which a KRaft controller considers a broker dead.
initial.broker.registration.timeout.ms       int      60000 - medium read-only none:kraft
    How long a KRaft broker may take to register.
server.max.startup.time.ms                   long     9223372036854775807 >=0 medium internal none:kraft
    How long a KRaft node may take to start.
metadata.log.dir                             string   null - high read-only none:kraft
    Where a KRaft node keeps its metadata log.
metadata.log.segment.bytes                   int      1073741824 >=8388608 high read-only none:kraft
    Segment size of the KRaft metadata log.
metadata.log.segment.ms                      long     604800000 - high read-only none:kraft
    Segment age of the KRaft metadata log.
metadata.log.max.record.bytes.between.snapshots long     20971520 >=1 high read-only none:kraft
    Bytes of KRaft metadata between snapshots.
metadata.log.max.snapshot.interval.ms        long     3600000 >=0 high read-only none:kraft
    Longest time between KRaft snapshots.
metadata.max.idle.interval.ms                int      500 >=0 low read-only none:kraft
    How often an idle KRaft leader writes a no-op record to its log.
metadata.max.retention.bytes                 long     104857600 - high read-only none:kraft
    Size limit of the KRaft metadata log.
metadata.max.retention.ms                    long     604800000 - high read-only none:kraft
    Age limit of the KRaft metadata log.
internal.metadata.log.segment.bytes          int      null - low internal none:kraft
    Segment size of the KRaft metadata log, for tests.
internal.metadata.delete.delay.millis        long     60000 - low internal none:kraft
    Delay before KRaft metadata files are deleted.
internal.metadata.max.batch.size.in.bytes    int      8388608 - low internal none:kraft
    Largest batch of KRaft metadata.
remote.log.storage.system.enable             boolean  false - medium read-only refused:tiering
    Whether tiered storage is enabled; it is not supported.
remote.log.storage.manager.class.name        string   null nonempty medium read-only none:tiering
    Plug-in class that stores remote segments.
remote.log.storage.manager.class.path        string   null - medium read-only none:tiering
    Class path of that plug-in.
remote.log.storage.manager.impl.prefix       string   rsm.config. nonempty medium read-only none:tiering
    Prefix of that plug-in's own settings.
remote.log.metadata.manager.class.name       string   \
org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager \
nonempty medium read-only none:tiering
    Plug-in class that manages the metadata of remote segments.
remote.log.metadata.manager.class.path       string   null - medium read-only none:tiering
    Class path of that plug-in.
remote.log.metadata.manager.impl.prefix      string   rlmm.config. nonempty medium read-only none:tiering
    Prefix of that plug-in's own settings.
remote.log.metadata.manager.listener.name    string   null nonempty medium read-only none:tiering
    Listener that the plug-in uses to connect to brokers.
remote.log.metadata.custom.metadata.max.bytes int      128 >=0 low read-only none:tiering
    Maximum size of the metadata that a storage plug-in may add.
remote.log.index.file.cache.total.size.bytes long     1073741824 >=1 low cluster-wide none:tiering
    Disk space for cached remote indexes.
remote.log.index.file.cache.ttl.ms           long     900000 >=-1 low internal none:tiering
    How long an unused remote index stays cached.
remote.log.manager.task.interval.ms          long     30000 >=1 low read-only none:tiering
    How often segments are checked for tiering.
remote.log.manager.task.retry.backoff.ms     long     500 >=1 low internal none:tiering
    Initial delay before tiering is retried.
remote.log.manager.task.retry.backoff.max.ms long     30000 >=1 low internal none:tiering
    Maximum delay before tiering is retried.
remote.log.manager.task.retry.jitter         double   0.2 0..0.5 low internal none:tiering
    Random share of that delay.
remote.log.manager.thread.pool.size          int      2 >=1 medium read-only none:tiering
    Threads for tiering.
remote.log.manager.copier.thread.pool.size   int      10 >=1 medium cluster-wide none:tiering
    Threads that copy segments to remote storage.
remote.log.manager.expiration.thread.pool.size int      10 >=1 medium cluster-wide none:tiering
    Threads that remove expired remote segments.
remote.log.manager.follower.thread.pool.size int      2 >=1 medium cluster-wide none:tiering
    Threads that serve followers of tiered partitions.
remote.log.manager.copy.max.bytes.per.second long     9223372036854775807 >=1 medium cluster-wide none:tiering
    Maximum bytes per second copied to remote storage.
remote.log.manager.copy.quota.window.num     int      11 >=1 medium read-only none:tiering
    Samples over which copying is measured.
remote.log.manager.copy.quota.window.size.seconds int      1 >=1 medium read-only none:tiering
    Length of one sample of copying.
remote.log.manager.fetch.max.bytes.per.second long     9223372036854775807 >=1 medium cluster-wide none:tiering
    Maximum bytes per second read from remote storage.
remote.log.manager.fetch.quota.window.num    int      11 >=1 medium read-only none:tiering
    Samples over which remote reading is measured.
remote.log.manager.fetch.quota.window.size.seconds int      1 >=1 medium read-only none:tiering
    Length of one sample of remote reading.
remote.log.reader.threads                    int      10 >=1 medium cluster-wide none:tiering
    Threads that read remote segments.
remote.log.reader.max.pending.tasks          int      100 >=1 medium read-only none:tiering
    Maximum number of waiting remote reads.
remote.fetch.max.wait.ms                     int      500 >=1 medium cluster-wide none:tiering
    How long a fetch waits for remote storage.
remote.list.offsets.request.timeout.ms       long     30000 >=1 medium cluster-wide none:tiering
    How long an offset lookup waits for remote storage.
"""
