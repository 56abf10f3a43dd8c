"""CancelDelays (10003): takes records back that wait in a partition of a delay topic. Tidelog's own."""

TABLE = """
CancelDelaysRequest 0 flexible 0+
    topic                 string
    partition_index       int32
    offsets               []int64

CancelDelaysResponse 0 flexible 0+
    throttle_time_ms      int32
    error_code            int16
    error_message         string?
    results               []CancelledDelay
        offset            int64
        refusal           string?
"""
