"""Every metric with its type, its labels and its meaning, in the order in which they are told.

The names are those that existing dashboards query: what the usual rules of jmx_exporter make of Apache Kafka's own
metrics (`kafka_server_…`, `kafka_network_…`), and what kafka_exporter calls topics and groups (`kafka_topic_…`,
`kafka_consumergroup_…`). What neither of them has begins with `tidelog_`. The table in docs/monitoring.md is made of
this one.

Each fact is told by one broker, so that sums over brokers are right: partitions by their leader, sizes by each replica,
groups by their coordinator, the cluster as a whole by the active controller.
"""

from __future__ import annotations

from typing import Final, NamedTuple

#: for each of these there is a total without labels, and a value per topic
TOPIC_COUNTERS: Final = {
    "messages_in": "kafka_server_brokertopicmetrics_messagesin_total",
    "bytes_in": "kafka_server_brokertopicmetrics_bytesin_total",
    "bytes_out": "kafka_server_brokertopicmetrics_bytesout_total",
    "produces": "kafka_server_brokertopicmetrics_totalproducerequests_total",
    "fetches": "kafka_server_brokertopicmetrics_totalfetchrequests_total",
    "failed_produces": "kafka_server_brokertopicmetrics_failedproducerequests_total",
    "failed_fetches": "kafka_server_brokertopicmetrics_failedfetchrequests_total",
}
BROKER_COUNTERS: Final = {
    "replication_bytes_in": "kafka_server_brokertopicmetrics_replicationbytesin_total",
    "replication_bytes_out": "kafka_server_brokertopicmetrics_replicationbytesout_total",
}

TABLE: Final = """
## Traffic
kafka_server_brokertopicmetrics_messagesin_total counter [topic]
    Records written to partitions that this broker leads.
kafka_server_brokertopicmetrics_bytesin_total counter [topic]
    Bytes of these records, as compressed by the producer.
kafka_server_brokertopicmetrics_bytesout_total counter [topic]
    Bytes of records sent to consumers.
kafka_server_brokertopicmetrics_totalproducerequests_total counter [topic]
    Partitions of produce requests, and writes of coordinators.
kafka_server_brokertopicmetrics_totalfetchrequests_total counter [topic]
    Partitions of fetch requests, each time that they are read.
kafka_server_brokertopicmetrics_failedproducerequests_total counter [topic]
    Partitions of produce requests that were refused.
kafka_server_brokertopicmetrics_failedfetchrequests_total counter [topic]
    Partitions of fetch requests that were refused.
kafka_server_brokertopicmetrics_replicationbytesin_total counter -
    Bytes of records fetched from leaders.
kafka_server_brokertopicmetrics_replicationbytesout_total counter -
    Bytes of records sent to followers.
## Requests
kafka_network_requestmetrics_requests_total counter request,version
    Requests answered. Fetches are counted as Fetch, and again as FetchConsumer or FetchFollower.
kafka_network_requestmetrics_errors_total counter request,error
    Errors answered: of whole requests, and of single partitions of Produce and Fetch.
kafka_network_requestmetrics_totaltimems gauge request,quantile
    Milliseconds from arrival to answer, over the last five minutes; waiting for data or replicas counts.
kafka_network_requestmetrics_totaltimems_count counter request
    Requests answered, of all versions.
tidelog_request_duration_seconds histogram request
    The same times as a histogram, which can be summed over brokers.
## Connections and threads
kafka_server_socket_server_metrics_connection_count gauge listener,networkProcessor
    Connections that are open.
kafka_server_socket_server_metrics_connection_creation_total counter -
    Connections accepted, of all listeners.
tidelog_connections_refused_total counter -
    Connections closed at once because of max.connections.per.ip.
tidelog_network_received_bytes_total counter -
    Bytes received from clients and other brokers.
tidelog_network_sent_bytes_total counter -
    Bytes sent to clients and other brokers.
kafka_network_socketserver_networkprocessoravgidle_percent gauge -
    Idle share of the broker's thread since the last scrape, 0 to 1.
kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent gauge -
    The same: one thread does both.
tidelog_parked_requests gauge -
    Requests that wait: fetches for records, produces for replicas.
## Replicas
kafka_server_replicamanager_partitioncount gauge -
    Partitions with a replica on this broker.
kafka_server_replicamanager_leadercount gauge -
    Those of them that this broker leads.
kafka_server_replicamanager_underreplicatedpartitions gauge -
    Led partitions with a replica that is not in sync; one that is being added is not counted.
kafka_server_replicamanager_underminisrpartitioncount gauge -
    Led partitions with fewer replicas in sync than min.insync.replicas: acks=all is refused.
kafka_server_replicamanager_atminisrpartitioncount gauge -
    Led partitions with just as many: the loss of one more stops acks=all.
kafka_server_replicamanager_offlinereplicacount gauge -
    Replicas of this broker in log directories that failed or are missing.
kafka_server_replicamanager_isrshrinks_total counter -
    Times that a replica fell out of sync with a led partition.
kafka_server_replicamanager_isrexpands_total counter -
    Times that a replica came back into sync.
## Logs
kafka_log_log_size gauge topic,partition
    Bytes on this broker.
kafka_log_log_logstartoffset gauge topic,partition
    First offset.
kafka_log_log_logendoffset gauge topic,partition
    Next offset to be written.
kafka_log_log_numlogsegments gauge topic,partition
    Segment files.
kafka_log_logmanager_offlinelogdirectorycount gauge -
    Log directories that failed.
kafka_log_logmanager_logdirectoryoffline gauge logdirectory
    1 where the log directory failed.
tidelog_log_directory_size_bytes gauge logdirectory
    Size of the file system that holds the log directory.
tidelog_log_directory_free_bytes gauge logdirectory
    Space that is left on it.
## Partitions, by their leader
kafka_cluster_partition_underreplicated gauge topic,partition
    1 where a replica is not in sync; one that is being added is not counted.
kafka_cluster_partition_underminisr gauge topic,partition
    1 where fewer than min.insync.replicas are in sync.
kafka_cluster_partition_atminisr gauge topic,partition
    1 where exactly min.insync.replicas are in sync.
kafka_topic_partition_current_offset gauge topic,partition
    High watermark: what consumers may read up to.
kafka_topic_partition_oldest_offset gauge topic,partition
    First offset that can be read.
kafka_topic_partition_leader gauge topic,partition
    Id of the leader.
kafka_topic_partition_leader_is_preferred gauge topic,partition
    1 where the first replica leads.
kafka_topic_partition_replicas gauge topic,partition
    Number of replicas.
kafka_topic_partition_in_sync_replica gauge topic,partition
    Number of replicas in sync.
kafka_topic_partition_under_replicated_partition gauge topic,partition
    1 where a replica is not in sync; one that is being added is not counted.
## Groups, by their coordinator
kafka_consumergroup_current_offset gauge consumergroup,topic,partition
    Committed offset.
kafka_consumergroup_current_offset_sum gauge consumergroup,topic
    Sum of the committed offsets.
kafka_consumergroup_lag gauge consumergroup,topic,partition
    Records between the committed offset and the high watermark, for partitions with a replica on the coordinator.
kafka_consumergroup_lag_sum gauge consumergroup,topic
    Sum of these lags.
kafka_consumergroup_members gauge consumergroup
    Members.
kafka_coordinator_group_groupmetadatamanager_numgroups gauge -
    Groups.
kafka_coordinator_group_groupmetadatamanager_numoffsets gauge -
    Committed offsets.
## Delay and half topics, by the leaders of their partitions
tidelog_delay_waiting_records gauge topic,partition
    Records that wait for their time, and half messages that are committed and not delivered.
tidelog_delay_stopped_records gauge topic,partition
    Records that the target does not take.
tidelog_delay_malformed_records gauge topic,partition
    Records with headers that name no time.
tidelog_delay_delivered_records_total counter topic,partition
    Records delivered since this broker has led the partition.
tidelog_delay_stalled gauge topic,partition
    1 where nothing is delivered: `tidelog delay list` says why.
tidelog_delay_overdue_seconds gauge topic,partition
    How long ago the next record was due.
tidelog_half_prepared_records gauge topic,partition
    Half messages without an end.
tidelog_half_undecided_records gauge topic,partition
    Those of them whose senders did not answer.
## Controller
kafka_controller_kafkacontroller_activecontrollercount gauge -
    1 on the active controller, 0 elsewhere.
kafka_controller_kafkacontroller_offlinepartitionscount gauge -
    Partitions without a leader; 0 on all but the active controller, as with the next four.
kafka_controller_kafkacontroller_preferredreplicaimbalancecount gauge -
    Partitions that are led by another than their first replica.
kafka_controller_kafkacontroller_globaltopiccount gauge -
    Topics.
kafka_controller_kafkacontroller_globalpartitioncount gauge -
    Partitions.
kafka_controller_kafkacontroller_activebrokercount gauge -
    Brokers that are registered.
kafka_controller_controllerstats_leaderelectionrateandtimems_count counter -
    Leaders elected; told by the active controller alone, as is what follows.
kafka_controller_controllerstats_uncleanleaderelections_total counter -
    Leaders elected that were not in sync: records were lost.
kafka_brokers gauge -
    Brokers that are registered.
kafka_broker_info gauge id,address
    1 for each broker.
kafka_topic_partitions gauge topic
    Number of partitions.
## Process
tidelog_broker_info gauge broker,cluster,version
    Always 1.
kafka_server_kafkaserver_brokerstate gauge -
    3 while the broker serves, 6 while it stops.
tidelog_zookeeper_connected gauge -
    1 while the broker has a connection to ZooKeeper, 0 while it has none; told by brokers of a cluster only.
"""


class MetricFamily(NamedTuple):
    name: str
    kind: str
    #: in brackets where there is a total without it
    labels: tuple[str, ...]
    meaning: str
    section: str


def _read(table: str) -> dict[str, MetricFamily]:
    families: dict[str, MetricFamily] = {}
    section = name = ""
    for line in table.strip().splitlines():
        if line.startswith("## "):
            section = line[3:]
        elif line.startswith("    "):
            families[name] = families[name]._replace(meaning=line.strip())
        else:
            name, kind, labels = line.split()
            families[name] = MetricFamily(name, kind, () if labels == "-" else tuple(labels.split(",")), "", section)
    return families


FAMILIES: Final = _read(TABLE)
