"""AddPartitionsToTxn (24): add partitions to a transaction, or verify that they are in it."""

TABLE = """
AddPartitionsToTxnRequest 0-5 flexible 3+
    transactions                   []AddPartitionsToTxnTransaction  4+
        transactional_id           string
        producer_id                int64
        producer_epoch             int16
        verify_only                bool
        topics                     []AddPartitionsToTxnTopic
    v3_and_below_transactional_id  string                           0-3
    v3_and_below_producer_id       int64                            0-3
    v3_and_below_producer_epoch    int16                            0-3
    v3_and_below_topics            []AddPartitionsToTxnTopic        0-3
    struct AddPartitionsToTxnTopic
        name                       string
        partitions                 []int32

AddPartitionsToTxnResponse 0-5 flexible 3+
    throttle_time_ms               int32
    error_code                     int16                                4+
    results_by_transaction         []AddPartitionsToTxnResult           4+
        transactional_id           string
        topic_results              []AddPartitionsToTxnTopicResult
    results_by_topic_v3_and_below  []AddPartitionsToTxnTopicResult      0-3
    struct AddPartitionsToTxnTopicResult
        name                       string
        results_by_partition       []AddPartitionsToTxnPartitionResult
    struct AddPartitionsToTxnPartitionResult
        partition_index            int32
        partition_error_code       int16
"""
