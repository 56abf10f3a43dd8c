"""Records of `__transaction_state`; a key's version is its type, as in `group_records`."""

TABLE = """
TransactionLogKey 0
    transactional_id  string

TransactionLogValue 0-1 flexible 1+
    producer_id                           int64
    previous_producer_id                  int64                1+  tag 0 = -1
    next_producer_id                      int64                1+  tag 1 = -1
    producer_epoch                        int16
    next_producer_epoch                   int16                1+  tag 3 = -1
    transaction_timeout_ms                int32
    transaction_status                    int8
    transaction_partitions                []PartitionsSchema?
        topic                             string
        partition_ids                     []int32
    transaction_last_update_timestamp_ms  int64
    transaction_start_timestamp_ms        int64
    client_transaction_version            int16                1+  tag 2
"""
