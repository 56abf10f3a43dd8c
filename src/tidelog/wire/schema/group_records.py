"""Records of `__consumer_offsets`: offsets, classic groups and consumer groups (KIP-848).

A key's version is its type, the int16 that stands before it; a value's own version stands before the value.
"""

TABLE = """
OffsetCommitKey 0-1
    group      string
    topic      string
    partition  int32

OffsetCommitValue 0-4 flexible 4+
    offset            int64
    leader_epoch      int32   3+  = -1 ignorable
    metadata          string
    commit_timestamp  int64
    expire_timestamp  int64   1   = -1 ignorable
    topic_id          uuid    4+  tag 0 ignorable

GroupMetadataKey 2
    group  string

GroupMetadataValue 0-4 flexible 4+
    protocol_type            string
    generation               int32
    protocol                 string?
    leader                   string?
    current_state_timestamp  int64             2+  = -1 ignorable
    members                  []MemberMetadata
    struct MemberMetadata
        member_id            string
        group_instance_id    string?           3+  = null ignorable
        client_id            string
        client_host          string
        rebalance_timeout    int32             1+  = -1 ignorable
        session_timeout      int32
        subscription         bytes
        assignment           bytes

ConsumerGroupMetadataKey 3
    group_id  string

ConsumerGroupMetadataValue 0 flexible 0+
    epoch          int32
    metadata_hash  int64    tag 0

ConsumerGroupPartitionMetadataKey 4
    group_id  string

ConsumerGroupPartitionMetadataValue 0 flexible 0+
    topics                  []TopicMetadata
        topic_id            uuid
        topic_name          string
        num_partitions      int32
        partition_metadata  []PartitionMetadata
            partition       int32
            racks           []string

ConsumerGroupMemberMetadataKey 5
    group_id   string
    member_id  string

ConsumerGroupMemberMetadataValue 0 flexible 0+
    instance_id              string?
    rack_id                  string?
    client_id                string
    client_host              string
    subscribed_topic_names   []string
    subscribed_topic_regex   string?
    rebalance_timeout_ms     int32                     = -1
    server_assignor          string?
    classic_member_metadata  ClassicMemberMetadata?    tag 0
        session_timeout_ms   int32
        supported_protocols  []ClassicProtocol
            name             string
            metadata         bytes

ConsumerGroupTargetAssignmentMetadataKey 6
    group_id  string

ConsumerGroupTargetAssignmentMetadataValue 0 flexible 0+
    assignment_epoch      int32
    assignment_timestamp  int64    tag 0 ignorable

ConsumerGroupTargetAssignmentMemberKey 7
    group_id   string
    member_id  string

ConsumerGroupTargetAssignmentMemberValue 0 flexible 0+
    topic_partitions  []TopicPartition
        topic_id      uuid
        partitions    []int32

ConsumerGroupCurrentMemberAssignmentKey 8
    group_id   string
    member_id  string

ConsumerGroupCurrentMemberAssignmentValue 0 flexible 0+
    member_epoch                   int32
    previous_member_epoch          int32
    state                          int8
    assigned_partitions            []TopicPartitions
    partitions_pending_revocation  []TopicPartitions
    struct TopicPartitions
        topic_id                   uuid
        partitions                 []int32
        assignment_epochs          []int32?             tag 0

ConsumerGroupRegularExpressionKey 16
    group_id            string
    regular_expression  string

ConsumerGroupRegularExpressionValue 0 flexible 0+
    topics     []string
    version    int64
    timestamp  int64
"""
