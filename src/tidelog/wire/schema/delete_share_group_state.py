"""DeleteShareGroupState (86): delete the stored state of share partitions."""

TABLE = """
DeleteShareGroupStateRequest 0 flexible 0+
    group_id           string
    topics             []DeleteStateData
        topic_id       uuid
        partitions     []PartitionData
            partition  int32

DeleteShareGroupStateResponse 0 flexible 0+
    results                []DeleteStateResult
        topic_id           uuid
        partitions         []PartitionResult
            partition      int32
            error_code     int16
            error_message  string?                = null
"""
