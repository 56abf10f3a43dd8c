"""OffsetDelete (47): delete stored positions of a group."""

TABLE = """
OffsetDeleteRequest 0
    group_id                 string
    topics                   []OffsetDeleteRequestTopic
        name                 string
        partitions           []OffsetDeleteRequestPartition
            partition_index  int32

OffsetDeleteResponse 0
    error_code               int16
    throttle_time_ms         int32
    topics                   []OffsetDeleteResponseTopic
        name                 string
        partitions           []OffsetDeleteResponsePartition
            partition_index  int32
            error_code       int16
"""
