"""DeleteGroups (42): delete empty groups."""

TABLE = """
DeleteGroupsRequest 0-2 flexible 2+
    groups_names  []string

DeleteGroupsResponse 0-2 flexible 2+
    throttle_time_ms  int32
    results           []DeletableGroupResult
        group_id      string
        error_code    int16
"""
