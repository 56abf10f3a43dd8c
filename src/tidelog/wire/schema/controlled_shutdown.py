"""ControlledShutdown (7): a broker asks the controller to move its leaders away before it stops."""

TABLE = """
ControlledShutdownRequest 0-3 flexible 3+
    broker_id     int32
    broker_epoch  int64  2+  = -1 ignorable

ControlledShutdownResponse 0-3 flexible 3+
    error_code            int16
    remaining_partitions  []RemainingPartition
        topic_name        string
        partition_index   int32
"""
