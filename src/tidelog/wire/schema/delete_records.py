"""DeleteRecords (21): move the start of partitions forward."""

TABLE = """
DeleteRecordsRequest 0-2 flexible 2+
    topics                   []DeleteRecordsTopic
        name                 string
        partitions           []DeleteRecordsPartition
            partition_index  int32
            offset           int64
    timeout_ms               int32

DeleteRecordsResponse 0-2 flexible 2+
    throttle_time_ms         int32
    topics                   []DeleteRecordsTopicResult
        name                 string
        partitions           []DeleteRecordsPartitionResult
            partition_index  int32
            low_watermark    int64
            error_code       int16
"""
