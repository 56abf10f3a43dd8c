"""AlterConfigs (33): replace configurations."""

TABLE = """
AlterConfigsRequest 0-2 flexible 2+
    resources          []AlterConfigsResource
        resource_type  int8
        resource_name  string
        configs        []AlterableConfig
            name       string
            value      string?
    validate_only      bool

AlterConfigsResponse 0-2 flexible 2+
    throttle_time_ms   int32
    responses          []AlterConfigsResourceResponse
        error_code     int16
        error_message  string?
        resource_type  int8
        resource_name  string
"""
