"""ConsumerGroupHeartbeat (68): join, stay in and leave a consumer group (KIP-848)."""

TABLE = """
ConsumerGroupHeartbeatRequest 0-1 flexible 0+
    group_id                string
    member_id               string
    member_epoch            int32
    instance_id             string?                 = null
    rack_id                 string?                 = null
    rebalance_timeout_ms    int32                   = -1
    subscribed_topic_names  []string?               = null
    subscribed_topic_regex  string?             1+  = null
    server_assignor         string?                 = null
    topic_partitions        []TopicPartitions?      = null
        topic_id            uuid
        partitions          []int32

ConsumerGroupHeartbeatResponse 0-1 flexible 0+
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
