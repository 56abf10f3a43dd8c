"""OffsetCommit (8): store the positions of a group."""

TABLE = """
OffsetCommitRequest 2-10 flexible 8+
    group_id                        string
    generation_id_or_member_epoch   int32                                = -1 ignorable
    member_id                       string                               ignorable
    group_instance_id               string?                         7+   = null
    retention_time_ms               int64                           2-4  = -1 ignorable
    topics                          []OffsetCommitRequestTopic
        name                        string                          2-9  ignorable
        topic_id                    uuid                            10+  ignorable
        partitions                  []OffsetCommitRequestPartition
            partition_index         int32
            committed_offset        int64
            committed_leader_epoch  int32                           6+   = -1 ignorable
            committed_metadata      string?

OffsetCommitResponse 2-10 flexible 8+
    throttle_time_ms         int32                            3+
    topics                   []OffsetCommitResponseTopic
        name                 string                           2-9
        topic_id             uuid                             10+
        partitions           []OffsetCommitResponsePartition
            partition_index  int32
            error_code       int16
"""
