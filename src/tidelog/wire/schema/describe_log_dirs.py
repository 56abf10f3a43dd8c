"""DescribeLogDirs (35): what lies in the directories of a broker."""

TABLE = """
DescribeLogDirsRequest 1-5 flexible 2+
    topics          []DescribableLogDirTopic?
        topic       string
        partitions  []int32

DescribeLogDirsResponse 1-5 flexible 2+
    throttle_time_ms             int32
    error_code                   int16                       3+
    results                      []DescribeLogDirsResult
        error_code               int16
        log_dir                  string
        topics                   []DescribeLogDirsTopic
            name                 string
            partitions           []DescribeLogDirsPartition
                partition_index  int32
                partition_size   int64
                offset_lag       int64
                is_future_key    bool
        total_bytes              int64                       4+  = -1
        usable_bytes             int64                       4+  = -1
        is_cordoned              bool                        5+
"""
