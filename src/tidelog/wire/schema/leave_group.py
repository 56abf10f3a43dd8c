"""LeaveGroup (13): leave a classic group."""

TABLE = """
LeaveGroupRequest 0-5 flexible 4+
    group_id               string
    member_id              string            0-2
    members                []MemberIdentity  3+
        member_id          string
        group_instance_id  string?                = null
        reason             string?           5+   = null ignorable

LeaveGroupResponse 0-5 flexible 4+
    throttle_time_ms       int32             1+
    error_code             int16
    members                []MemberResponse  3+
        member_id          string
        group_instance_id  string?
        error_code         int16
"""
