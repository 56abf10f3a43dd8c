"""Records of `__consumer_offsets` for share groups; versions as in `group_records`."""

TABLE = """
ShareGroupMemberMetadataKey 10
    group_id   string
    member_id  string

ShareGroupMemberMetadataValue 0 flexible 0+
    rack_id                 string?
    client_id               string
    client_host             string
    subscribed_topic_names  []string

ShareGroupMetadataKey 11
    group_id  string

ShareGroupMetadataValue 0 flexible 0+
    epoch          int32
    metadata_hash  int64

ShareGroupTargetAssignmentMetadataKey 12
    group_id  string

ShareGroupTargetAssignmentMetadataValue 0 flexible 0+
    assignment_epoch      int32
    assignment_timestamp  int64    tag 0 ignorable

ShareGroupTargetAssignmentMemberKey 13
    group_id   string
    member_id  string

ShareGroupTargetAssignmentMemberValue 0 flexible 0+
    topic_partitions  []TopicPartition
        topic_id      uuid
        partitions    []int32

ShareGroupCurrentMemberAssignmentKey 14
    group_id   string
    member_id  string

ShareGroupCurrentMemberAssignmentValue 0 flexible 0+
    member_epoch           int32
    previous_member_epoch  int32
    state                  int8
    assigned_partitions    []TopicPartitions
    struct TopicPartitions
        topic_id           uuid
        partitions         []int32

ShareGroupStatePartitionMetadataKey 15
    group_id  string

ShareGroupStatePartitionMetadataValue 0 flexible 0+
    initializing_topics  []TopicPartitionsInfo
    initialized_topics   []TopicPartitionsInfo
    deleting_topics      []TopicInfo
    struct TopicPartitionsInfo
        topic_id         uuid
        topic_name       string
        partitions       []int32
    struct TopicInfo
        topic_id         uuid
        topic_name       string
"""
