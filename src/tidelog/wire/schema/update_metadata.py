"""UpdateMetadata (6): the controller tells a broker what all brokers must know of the cluster."""

TABLE = """
UpdateMetadataRequest 0-8 flexible 6+
    controller_id               int32
    is_kraft_controller         bool                            8+
    type                        int8                            8+   tag 0
    controller_epoch            int32
    broker_epoch                int64                           5+   = -1 ignorable
    ungrouped_partition_states  []UpdateMetadataPartitionState  0-4
    topic_states                []UpdateMetadataTopicState      5+
        topic_name              string
        topic_id                uuid                            7+   ignorable
        partition_states        []UpdateMetadataPartitionState
    live_brokers                []UpdateMetadataBroker
        id                      int32
        v0_host                 string                          0    ignorable
        v0_port                 int32                           0    ignorable
        endpoints               []UpdateMetadataEndpoint        1+   ignorable
            port                int32
            host                string
            listener            string                          3+   ignorable
            security_protocol   int16
        rack                    string?                         2+   ignorable
    struct UpdateMetadataPartitionState
        topic_name              string                          0-4  ignorable
        partition_index         int32
        controller_epoch        int32
        leader                  int32
        leader_epoch            int32
        isr                     []int32
        zk_version              int32
        replicas                []int32
        offline_replicas        []int32                         4+   ignorable

UpdateMetadataResponse 0-8 flexible 6+
    error_code  int16
"""
