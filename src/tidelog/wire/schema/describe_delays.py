"""DescribeDelays (10002): what waits in partitions of delay and half topics. Tidelog's own, answered by their
leaders. An answer tells of 10,000 records at most. `half_id` is null for what is no half message; in a request it names
the only half message that is asked for, and null means all. Records are held back by open transactions."""

TABLE = """
DescribeDelaysRequest 0 flexible 0+
    topics                []DelayTopic
        name              string
        partition_indexes []int32
    max_records           int32
    half_id               string?  0+  tag 0 = null

DescribeDelaysResponse 0 flexible 0+
    throttle_time_ms      int32
    topics                []DelayTopicResult
        name              string
        partitions        []DelayPartitionResult
            partition_index   int32
            error_code        int16
            error_message     string?
            target            string
            waiting_count     int64
            delivered_count   int64
            malformed_count   int64
            stalled           string?
            is_half           bool   0+  tag 0
            held_back_count   int64  0+  tag 1
            records           []DelayedRecord
                offset        int64
                due_ms        int64
                state         string
                reason        string?
                half_id       string?
"""
