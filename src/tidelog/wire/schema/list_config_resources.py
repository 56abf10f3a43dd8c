"""ListConfigResources (74): names of resources that have configurations."""

TABLE = """
ListConfigResourcesRequest 0-1 flexible 0+
    resource_types  []int8  1+

ListConfigResourcesResponse 0-1 flexible 0+
    throttle_time_ms   int32
    error_code         int16
    config_resources   []ConfigResource
        resource_name  string
        resource_type  int8              1+  = 16
"""
