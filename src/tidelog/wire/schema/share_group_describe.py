"""ShareGroupDescribe (77): state and members of share groups."""

TABLE = """
ShareGroupDescribeRequest 1 flexible 0+
    group_ids                      []string
    include_authorized_operations  bool

ShareGroupDescribeResponse 1 flexible 0+
    throttle_time_ms                int32
    groups                          []DescribedGroup
        error_code                  int16
        error_message               string?              = null
        group_id                    string
        group_state                 string
        group_epoch                 int32
        assignment_epoch            int32
        assignor_name               string
        members                     []Member
            member_id               string
            rack_id                 string?              = null
            member_epoch            int32
            client_id               string
            client_host             string
            subscribed_topic_names  []string
            assignment              Assignment
        authorized_operations       int32                = -2147483648
    struct TopicPartitions
        topic_id                    uuid
        topic_name                  string
        partitions                  []int32
    struct Assignment
        topic_partitions            []TopicPartitions
"""
