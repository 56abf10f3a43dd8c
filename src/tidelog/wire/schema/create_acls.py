"""CreateAcls (30): add access control entries."""

TABLE = """
CreateAclsRequest 1-3 flexible 2+
    creations                  []AclCreation
        resource_type          int8
        resource_name          string
        resource_pattern_type  int8             = 3
        principal              string
        host                   string
        operation              int8
        permission_type        int8

CreateAclsResponse 1-3 flexible 2+
    throttle_time_ms   int32
    results            []AclCreationResult
        error_code     int16
        error_message  string?
"""
