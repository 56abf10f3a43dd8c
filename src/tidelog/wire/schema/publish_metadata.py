"""PublishMetadata (10001): the controller tells a broker what changed in the cluster, as nodes of the metadata store.

Tidelog's own, and outside of Kafka's range. A whole picture comes in `parts` of which each says which `part` it is;
a difference has no parts. `data` null: the node is gone; `czxid` 0: as it was.
"""

TABLE = """
PublishMetadataRequest 0 flexible 0+
    controller_id     int32
    controller_epoch  int32
    broker_epoch      int64
    sequence          int64
    part              int32
    parts             int32
    changes           []NodeChange
        path          string
        data          bytes?
        version       int32
        czxid         int64
        mzxid         int64

PublishMetadataResponse 0 flexible 0+
    throttle_time_ms  int32
    error_code        int16
"""
