"""ListPartitionReassignments (46): the moves of replicas under way."""

TABLE = """
ListPartitionReassignmentsRequest 0 flexible 0+
    timeout_ms             int32                                  = 60000
    topics                 []ListPartitionReassignmentsTopics?    = null
        name               string
        partition_indexes  []int32

ListPartitionReassignmentsResponse 0 flexible 0+
    throttle_time_ms           int32
    error_code                 int16
    error_message              string?
    topics                     []OngoingTopicReassignment
        name                   string
        partitions             []OngoingPartitionReassignment
            partition_index    int32
            replicas           []int32
            adding_replicas    []int32
            removing_replicas  []int32
"""
