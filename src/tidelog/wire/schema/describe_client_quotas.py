"""DescribeClientQuotas (48): list quotas."""

TABLE = """
DescribeClientQuotasRequest 0-1 flexible 1+
    components       []ComponentData
        entity_type  string
        match_type   int8
        match        string?
    strict           bool

DescribeClientQuotasResponse 0-1 flexible 1+
    throttle_time_ms     int32
    error_code           int16
    error_message        string?
    entries              []EntryData?
        entity           []EntityData
            entity_type  string
            entity_name  string?
        values           []ValueData
            key          string
            value        float64
"""
