"""CreatePartitions (37): add partitions to topics."""

TABLE = """
CreatePartitionsRequest 0-3 flexible 2+
    topics              []CreatePartitionsTopic
        name            string
        count           int32
        assignments     []CreatePartitionsAssignment?
            broker_ids  []int32
    timeout_ms          int32
    validate_only       bool

CreatePartitionsResponse 0-3 flexible 2+
    throttle_time_ms   int32
    results            []CreatePartitionsTopicResult
        name           string
        error_code     int16
        error_message  string?                          = null
"""
