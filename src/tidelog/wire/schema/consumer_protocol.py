"""What consumers put into JoinGroup and SyncGroup: subscription and assignment, each behind an int16 version."""

TABLE = """
ConsumerProtocolSubscription 0-3
    topics            []string
    user_data         bytes?                = null
    owned_partitions  []TopicPartition  1+  ignorable
        topic         string
        partitions    []int32
    generation_id     int32             2+  = -1 ignorable
    rack_id           string?           3+  = null ignorable

ConsumerProtocolAssignment 0-3
    assigned_partitions  []TopicPartition
        topic            string
        partitions       []int32
    user_data            bytes?              = null
"""
