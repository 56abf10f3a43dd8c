"""EndTxn (26): commit or abort a transaction."""

TABLE = """
EndTxnRequest 0-5 flexible 3+
    transactional_id  string
    producer_id       int64
    producer_epoch    int16
    committed         bool

EndTxnResponse 0-5 flexible 3+
    throttle_time_ms  int32
    error_code        int16
    producer_id       int64  5+  = -1
    producer_epoch    int16  5+  = -1
"""
