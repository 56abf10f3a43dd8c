"""AlterShareGroupOffsets (91): move where a share group starts."""

TABLE = """
AlterShareGroupOffsetsRequest 0 flexible 0+
    group_id                 string
    topics                   []AlterShareGroupOffsetsRequestTopic
        topic_name           string
        partitions           []AlterShareGroupOffsetsRequestPartition
            partition_index  int32
            start_offset     int64

AlterShareGroupOffsetsResponse 0 flexible 0+
    throttle_time_ms         int32
    error_code               int16
    error_message            string?                                      = null
    responses                []AlterShareGroupOffsetsResponseTopic
        topic_name           string
        topic_id             uuid
        partitions           []AlterShareGroupOffsetsResponsePartition
            partition_index  int32
            error_code       int16
            error_message    string?                                      = null
"""
