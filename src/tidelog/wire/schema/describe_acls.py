"""DescribeAcls (29): list access control entries."""

TABLE = """
DescribeAclsRequest 1-3 flexible 2+
    resource_type_filter  int8
    resource_name_filter  string?
    pattern_type_filter   int8       = 3
    principal_filter      string?
    host_filter           string?
    operation             int8
    permission_type       int8

DescribeAclsResponse 1-3 flexible 2+
    throttle_time_ms         int32
    error_code               int16
    error_message            string?
    resources                []DescribeAclsResource
        resource_type        int8
        resource_name        string
        pattern_type         int8                      = 3
        acls                 []AclDescription
            principal        string
            host             string
            operation        int8
            permission_type  int8
"""
