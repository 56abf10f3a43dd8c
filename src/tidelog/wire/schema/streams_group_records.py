"""Records of `__consumer_offsets` for Streams groups; versions as in `group_records`."""

TABLE = """
StreamsGroupMetadataKey 17
    group_id  string

StreamsGroupMetadataValue 0 flexible 0+
    epoch                     int32
    metadata_hash             int64
    validated_topology_epoch  int32                      tag 0 = -1
    last_assignment_configs   []LastAssignmentConfig?    tag 1
    struct LastAssignmentConfig
        key                   string
        value                 string

StreamsGroupMemberMetadataKey 19
    group_id   string
    member_id  string

StreamsGroupMemberMetadataValue 0 flexible 0+
    instance_id           string?
    rack_id               string?
    client_id             string
    client_host           string
    rebalance_timeout_ms  int32         = -1
    topology_epoch        int32
    process_id            string
    user_endpoint         Endpoint?     = null
    client_tags           []KeyValue
    struct Endpoint
        host              string
        port              uint16
    struct KeyValue
        key               string
        value             string

StreamsGroupTargetAssignmentMetadataKey 20
    group_id  string

StreamsGroupTargetAssignmentMetadataValue 0 flexible 0+
    assignment_epoch      int32
    assignment_timestamp  int64    tag 0 ignorable

StreamsGroupTargetAssignmentMemberKey 21
    group_id   string
    member_id  string

StreamsGroupTargetAssignmentMemberValue 0 flexible 0+
    active_tasks        []TaskIds
    standby_tasks       []TaskIds
    warmup_tasks        []TaskIds
    struct TaskIds
        subtopology_id  string
        partitions      []int32

StreamsGroupCurrentMemberAssignmentKey 22
    group_id   string
    member_id  string

StreamsGroupCurrentMemberAssignmentValue 0 flexible 0+
    member_epoch                      int32
    previous_member_epoch             int32
    state                             int8
    active_tasks                      []TaskIds
    standby_tasks                     []TaskIds
    warmup_tasks                      []TaskIds
    active_tasks_pending_revocation   []TaskIds
    standby_tasks_pending_revocation  []TaskIds
    warmup_tasks_pending_revocation   []TaskIds
    struct TaskIds
        subtopology_id                string
        partitions                    []int32
        assignment_epochs             []int32?     tag 0

StreamsGroupTopologyKey 23
    group_id  string

StreamsGroupTopologyValue 0 flexible 0+
    epoch                              int32
    subtopologies                      []Subtopology
        subtopology_id                 string
        source_topics                  []string
        source_topic_regex             []string
        state_changelog_topics         []TopicInfo
        repartition_sink_topics        []string
        repartition_source_topics      []TopicInfo
        copartition_groups             []CopartitionGroup
            source_topics              []int16
            source_topic_regex         []int16
            repartition_source_topics  []int16
    struct TopicConfig
        key                            string
        value                          string
    struct TopicInfo
        name                           string
        partitions                     int32
        replication_factor             int16
        topic_configs                  []TopicConfig
"""
