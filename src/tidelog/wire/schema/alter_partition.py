"""AlterPartition (56): a leader asks the controller to change an ISR."""

TABLE = """
AlterPartitionRequest 2-3 flexible 0+
    broker_id                      int32
    broker_epoch                   int64                = -1
    topics                         []TopicData
        topic_id                   uuid                 ignorable
        partitions                 []PartitionData
            partition_index        int32
            leader_epoch           int32
            new_isr                []int32          2
            new_isr_with_epochs    []BrokerState    3+
                broker_id          int32
                broker_epoch       int64                = -1
            leader_recovery_state  int8
            partition_epoch        int32

AlterPartitionResponse 2-3 flexible 0+
    throttle_time_ms               int32
    error_code                     int16
    topics                         []TopicData
        topic_id                   uuid
        partitions                 []PartitionData
            partition_index        int32
            error_code             int16
            leader_id              int32
            leader_epoch           int32
            isr                    []int32
            leader_recovery_state  int8
            partition_epoch        int32
"""
