"""AddOffsetsToTxn (25): add a group's offsets to a transaction."""

TABLE = """
AddOffsetsToTxnRequest 0-4 flexible 3+
    transactional_id  string
    producer_id       int64
    producer_epoch    int16
    group_id          string

AddOffsetsToTxnResponse 0-4 flexible 3+
    throttle_time_ms  int32
    error_code        int16
"""
