"""SyncGroup (14): hand out and receive the leader's assignment in a classic group."""

TABLE = """
SyncGroupRequest 0-5 flexible 4+
    group_id           string
    generation_id      int32
    member_id          string
    group_instance_id  string?                       3+  = null
    protocol_type      string?                       5+  = null ignorable
    protocol_name      string?                       5+  = null ignorable
    assignments        []SyncGroupRequestAssignment
        member_id      string
        assignment     bytes

SyncGroupResponse 0-5 flexible 4+
    throttle_time_ms  int32    1+
    error_code        int16
    protocol_type     string?  5+  = null
    protocol_name     string?  5+  = null
    assignment        bytes
"""
