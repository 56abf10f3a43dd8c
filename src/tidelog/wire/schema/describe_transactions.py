"""DescribeTransactions (65): state of transactions."""

TABLE = """
DescribeTransactionsRequest 0 flexible 0+
    transactional_ids  []string

DescribeTransactionsResponse 0 flexible 0+
    throttle_time_ms               int32
    transaction_states             []TransactionState
        error_code                 int16
        transactional_id           string
        transaction_state          string
        transaction_timeout_ms     int32
        transaction_start_time_ms  int64
        producer_id                int64
        producer_epoch             int16
        topics                     []TopicData
            topic                  string
            partitions             []int32
"""
