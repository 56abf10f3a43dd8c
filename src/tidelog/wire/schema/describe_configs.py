"""DescribeConfigs (32): configurations of topics, brokers and groups, with their sources."""

TABLE = """
DescribeConfigsRequest 1-4 flexible 4+
    resources               []DescribeConfigsResource
        resource_type       int8
        resource_name       string
        configuration_keys  []string?
    include_synonyms        bool
    include_documentation   bool                       3+

DescribeConfigsResponse 1-4 flexible 4+
    throttle_time_ms       int32
    results                []DescribeConfigsResult
        error_code         int16
        error_message      string?
        resource_type      int8
        resource_name      string
        configs            []DescribeConfigsResourceResult
            name           string
            value          string?
            read_only      bool
            config_source  int8                                 = -1
            is_sensitive   bool
            synonyms       []DescribeConfigsSynonym
                name       string
                value      string?
                source     int8
            config_type    int8                             3+
            documentation  string?                          3+
"""
