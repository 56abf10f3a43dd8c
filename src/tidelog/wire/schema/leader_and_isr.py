"""LeaderAndIsr (4): the controller tells a broker which partitions it leads or follows."""

TABLE = """
LeaderAndIsrRequest 0-7 flexible 4+
    controller_id               int32
    is_kraft_controller         bool                          7+
    controller_epoch            int32
    broker_epoch                int64                         2+   = -1 ignorable
    type                        int8                          5+
    ungrouped_partition_states  []LeaderAndIsrPartitionState  0-1
    topic_states                []LeaderAndIsrTopicState      2+
        topic_name              string
        topic_id                uuid                          5+   ignorable
        partition_states        []LeaderAndIsrPartitionState
    live_leaders                []LeaderAndIsrLiveLeader
        broker_id               int32
        host_name               string
        port                    int32
    struct LeaderAndIsrPartitionState
        topic_name              string                        0-1  ignorable
        partition_index         int32
        controller_epoch        int32
        leader                  int32
        leader_epoch            int32
        isr                     []int32
        partition_epoch         int32
        replicas                []int32
        adding_replicas         []int32                       3+   ignorable
        removing_replicas       []int32                       3+   ignorable
        is_new                  bool                          1+   ignorable
        leader_recovery_state   int8                          6+

LeaderAndIsrResponse 0-7 flexible 4+
    error_code            int16
    partition_errors      []LeaderAndIsrPartitionError  0-4
    topics                []LeaderAndIsrTopicError      5+
        topic_id          uuid
        partition_errors  []LeaderAndIsrPartitionError
    struct LeaderAndIsrPartitionError
        topic_name        string                        0-4
        partition_index   int32
        error_code        int16
"""
