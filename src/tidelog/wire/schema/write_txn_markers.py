"""WriteTxnMarkers (27): the transaction coordinator writes commit or abort markers to partitions."""

TABLE = """
WriteTxnMarkersRequest 1-2 flexible 1+
    markers                    []WritableTxnMarker
        producer_id            int64
        producer_epoch         int16
        transaction_result     bool
        topics                 []WritableTxnMarkerTopic
            name               string
            partition_indexes  []int32
        coordinator_epoch      int32
        transaction_version    int8                      2+  ignorable

WriteTxnMarkersResponse 1-2 flexible 1+
    markers                      []WritableTxnMarkerResult
        producer_id              int64
        topics                   []WritableTxnMarkerTopicResult
            name                 string
            partitions           []WritableTxnMarkerPartitionResult
                partition_index  int32
                error_code       int16
"""
