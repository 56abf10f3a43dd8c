"""AlterPartitionReassignments (45): start or cancel moving replicas."""

TABLE = """
AlterPartitionReassignmentsRequest 0-1 flexible 0+
    timeout_ms                       int32                        = 60000
    allow_replication_factor_change  bool                     1+  = true
    topics                           []ReassignableTopic
        name                         string
        partitions                   []ReassignablePartition
            partition_index          int32
            replicas                 []int32?                     = null

AlterPartitionReassignmentsResponse 0-1 flexible 0+
    throttle_time_ms                 int32
    allow_replication_factor_change  bool                             1+  = true
    error_code                       int16
    error_message                    string?
    responses                        []ReassignableTopicResponse
        name                         string
        partitions                   []ReassignablePartitionResponse
            partition_index          int32
            error_code               int16
            error_message            string?
"""
