"""OffsetForLeaderEpoch (23): where a leader epoch ends, for finding divergence."""

TABLE = """
OffsetForLeaderEpochRequest 2-4 flexible 4+
    replica_id                    int32                       3+  = -2 ignorable
    topics                        []OffsetForLeaderTopic
        topic                     string
        partitions                []OffsetForLeaderPartition
            partition             int32
            current_leader_epoch  int32                           = -1 ignorable
            leader_epoch          int32

OffsetForLeaderEpochResponse 2-4 flexible 4+
    throttle_time_ms      int32
    topics                []OffsetForLeaderTopicResult
        topic             string
        partitions        []EpochEndOffset
            error_code    int16
            partition     int32
            leader_epoch  int32                           = -1
            end_offset    int64                           = -1
"""
