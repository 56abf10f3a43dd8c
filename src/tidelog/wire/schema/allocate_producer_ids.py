"""AllocateProducerIds (67): a broker takes a block of producer ids from the controller."""

TABLE = """
AllocateProducerIdsRequest 0 flexible 0+
    broker_id     int32
    broker_epoch  int64    = -1

AllocateProducerIdsResponse 0 flexible 0+
    throttle_time_ms   int32
    error_code         int16
    producer_id_start  int64
    producer_id_len    int32
"""
