"""ShareGroupHeartbeat (76): join, stay in and leave a share group."""

TABLE = """
ShareGroupHeartbeatRequest 1 flexible 0+
    group_id                string
    member_id               string
    member_epoch            int32
    rack_id                 string?      = null
    subscribed_topic_names  []string?    = null

ShareGroupHeartbeatResponse 1 flexible 0+
    throttle_time_ms       int32
    error_code             int16
    error_message          string?              = null
    member_id              string?              = null
    member_epoch           int32
    heartbeat_interval_ms  int32
    assignment             Assignment?          = null
        topic_partitions   []TopicPartitions
    struct TopicPartitions
        topic_id           uuid
        partitions         []int32
"""
