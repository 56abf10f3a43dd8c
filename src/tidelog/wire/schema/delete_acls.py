"""DeleteAcls (31): remove access control entries."""

TABLE = """
DeleteAclsRequest 1-3 flexible 2+
    filters                   []DeleteAclsFilter
        resource_type_filter  int8
        resource_name_filter  string?
        pattern_type_filter   int8                  = 3
        principal_filter      string?
        host_filter           string?
        operation             int8
        permission_type       int8

DeleteAclsResponse 1-3 flexible 2+
    throttle_time_ms         int32
    filter_results           []DeleteAclsFilterResult
        error_code           int16
        error_message        string?
        matching_acls        []DeleteAclsMatchingAcl
            error_code       int16
            error_message    string?
            resource_type    int8
            resource_name    string
            pattern_type     int8                        = 3
            principal        string
            host             string
            operation        int8
            permission_type  int8
"""
