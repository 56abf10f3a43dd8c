"""InitProducerId (22): obtain a producer id and epoch. Version 6 is unstable in Kafka and not announced."""

TABLE = """
InitProducerIdRequest 0-6 flexible 2+
    transactional_id        string?
    transaction_timeout_ms  int32
    producer_id             int64    3+  = -1
    producer_epoch          int16    3+  = -1
    enable_2pc              bool     6+
    keep_prepared_txn       bool     6+

InitProducerIdResponse 0-6 flexible 2+
    throttle_time_ms            int32
    error_code                  int16
    producer_id                 int64      = -1
    producer_epoch              int16
    ongoing_txn_producer_id     int64  6+  = -1
    ongoing_txn_producer_epoch  int16  6+  = -1
"""
