"""Broker configuration of sockets, requests, quotas, metrics.

definitions.py explains the columns. The last rows are ours: names that Kafka does not have begin with `tidelog.`.
"""

TABLE = """
listeners                                    list     PLAINTEXT://:9092 set+ high per-broker works
    Addresses to listen on, as NAME://host:port; an empty host means every interface, port 0 any free port.
advertised.listeners                         list     null set+ high read-only works
    Addresses advertised to clients; those of listeners if not set.
listener.security.protocol.map               string   \
SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT - low per-broker works
    Security protocol of each listener name.
early.start.listeners                        list     null set high read-only none:authentication
    Listeners that open before the authorizer is ready.
socket.send.buffer.bytes                     int      102400 - high read-only works
    SO_SNDBUF of accepted sockets; -1 for the system's default.
socket.receive.buffer.bytes                  int      102400 - high read-only works
    SO_RCVBUF of accepted sockets; -1 for the system's default.
socket.request.max.bytes                     int      104857600 >=1 high read-only works
    Largest request; a connection that announces more is closed.
socket.listen.backlog.size                   int      1024 >=1 medium read-only works
    Connections that may wait to be accepted.
socket.connection.setup.timeout.ms           long     10000 - medium read-only works
    Initial timeout for establishing an outgoing connection.
socket.connection.setup.timeout.max.ms       long     30000 - medium read-only works
    Maximum to which repeated failures raise the connection timeout.
max.connections                              int      10000 >=0 medium cluster-wide works
    Maximum number of connections of a listener.
max.connections.per.ip                       int      2147483647 >=0 medium cluster-wide works
    Maximum number of connections from one address.
max.connections.per.ip.overrides             string   "" - medium cluster-wide works
    Exceptions to max.connections.per.ip, as host:number pairs.
max.connection.creation.rate                 int      2147483647 >=0 medium cluster-wide works
    Maximum number of connections accepted per second.
connections.max.idle.ms                      long     600000 - medium read-only works
    A connection that is idle for this long is closed; negative for never.
connection.failed.authentication.delay.ms    int      100 >=0 low read-only none:authentication
    Delay before a connection is closed after a failed authentication.
num.network.threads                          int      3 >=1 high cluster-wide none:threads
    Threads that read requests and write responses.
num.io.threads                               int      8 >=1 high cluster-wide none:threads
    Threads that process requests.
background.threads                           int      10 >=1 high cluster-wide none:threads
    Threads for background work.
queued.max.requests                          int      500 >=1 high read-only none:queue
    Number of requests that may wait before reading from sockets is paused.
queued.max.request.bytes                     long     -1 - medium read-only works
    Bytes of requests that may wait before reading from sockets is paused; -1 for no limit.
request.timeout.ms                           int      30000 - high read-only works
    How long this broker waits for the response to a request that it sends.
fetch.max.bytes                              int      57671680 >=1024 medium read-only works
    Largest fetch response, whatever the client asks for.
max.incremental.fetch.session.cache.slots    int      1000 >=0 medium read-only works
    Maximum number of incremental fetch sessions.
max.request.partition.size.limit             int      2000 >=1 medium read-only works
    Maximum number of partitions in one DescribeTopicPartitions response.
fetch.purgatory.purge.interval.requests      int      1000 - medium read-only none:sweeps
    Number of completed delayed fetches after which they are purged.
producer.purgatory.purge.interval.requests   int      1000 - medium read-only none:sweeps
    Number of completed delayed produce requests after which they are purged.
delete.records.purgatory.purge.interval.requests int      1 - medium read-only none:sweeps
    Number of completed delayed record deletions after which they are purged.
share.fetch.purgatory.purge.interval.requests int      1000 - medium read-only none:share
    Number of completed delayed share fetches after which they are purged.
quota.window.num                             int      11 >=1 low read-only none:quotas
    Samples over which client quotas are measured.
quota.window.size.seconds                    int      1 >=1 low read-only none:quotas
    Length of one sample of a client quota.
controller.quota.window.num                  int      11 >=1 low read-only none:quotas
    Samples over which the quotas on topic changes are measured.
controller.quota.window.size.seconds         int      1 >=1 low read-only none:quotas
    Length of one sample of a topic change quota.
replication.quota.window.num                 int      11 >=1 low read-only works
    Samples over which replication throttles are measured.
replication.quota.window.size.seconds        int      1 >=1 low read-only works
    Length of one sample of a replication throttle.
alter.log.dirs.replication.quota.window.num  int      11 >=1 low read-only none:quotas
    Samples over which moves between log directories are measured.
alter.log.dirs.replication.quota.window.size.seconds int      1 >=1 low read-only none:quotas
    Length of one sample for moves between log directories.
client.quota.callback.class                  class    null - low read-only refused:policy
    Plug-in class that determines client quotas.
leader.replication.throttled.rate            long     9223372036854775807 >=0 medium cluster-wide works
    Bytes per second that throttled replicas may fetch from this broker; set while running.
follower.replication.throttled.rate          long     9223372036854775807 >=0 medium cluster-wide works
    Bytes per second that throttled replicas on this broker may fetch; set while running.
replica.alter.log.dirs.io.max.bytes.per.second long     9223372036854775807 >=0 medium cluster-wide works
    Bytes per second for moving replicas between log directories; set while running.
metric.reporters                             list     \
org.apache.kafka.common.metrics.JmxReporter set low cluster-wide none:metrics
    Plug-in classes that report metrics.
metrics.num.samples                          int      2 >=1 low read-only none:metrics
    Samples kept per metric.
metrics.sample.window.ms                     long     30000 >=1 low read-only none:metrics
    Length of one sample of a metric.
metrics.recording.level                      string   INFO - low read-only none:metrics
    Finest level of metric that is recorded.
kafka.metrics.reporters                      list     "" set low read-only fixed:plug-ins
    Plug-in classes of the older metrics library.
kafka.metrics.polling.interval.secs          int      10 >=1 low read-only none:metrics
    How often the reporters of the older metrics library are polled.
telemetry.max.bytes                          int      1048576 >=1 low read-only none:telemetry
    Largest set of metrics that a client may push at once.
config.providers                             list     "" set low cluster-wide fixed:plug-ins
    Plug-ins that resolve variables in values; none is ever run, values are used literally.
unstable.api.versions.enable                 boolean  false - high internal fixed:unstable
    Whether API versions that are still in development are enabled.
unstable.feature.versions.enable             boolean  false - high internal fixed:unstable
    Whether feature versions that are still in development are enabled.
tidelog.max.decompressed.bytes               int      134217728 >=1 medium read-only works
    Maximum size of a batch after decompression; a larger batch is refused.
tidelog.http.port                            int      null 0..65535 medium read-only works
    Port for /metrics, /livez, /readyz and /version; 0 for any free port. Not served if not set.
tidelog.http.host                            string   127.0.0.1 - medium read-only works
    Address on which they are served; an empty one means every interface. Whoever reaches it can read them.
"""
