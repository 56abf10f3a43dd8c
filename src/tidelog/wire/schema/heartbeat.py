"""Heartbeat (12): stay a member of a classic group."""

TABLE = """
HeartbeatRequest 0-4 flexible 4+
    group_id           string
    generation_id      int32
    member_id          string
    group_instance_id  string?  3+  = null

HeartbeatResponse 0-4 flexible 4+
    throttle_time_ms  int32  1+
    error_code        int16
"""
