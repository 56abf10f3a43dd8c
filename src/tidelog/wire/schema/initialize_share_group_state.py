"""InitializeShareGroupState (83): start the stored state of share partitions."""

TABLE = """
InitializeShareGroupStateRequest 0 flexible 0+
    group_id              string
    topics                []InitializeStateData
        topic_id          uuid
        partitions        []PartitionData
            partition     int32
            state_epoch   int32
            start_offset  int64

InitializeShareGroupStateResponse 0 flexible 0+
    results                []InitializeStateResult
        topic_id           uuid
        partitions         []PartitionResult
            partition      int32
            error_code     int16
            error_message  string?                    = null
"""
