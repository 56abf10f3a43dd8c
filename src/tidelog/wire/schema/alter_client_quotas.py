"""AlterClientQuotas (49): set and remove quotas."""

TABLE = """
AlterClientQuotasRequest 0-1 flexible 1+
    entries              []EntryData
        entity           []EntityData
            entity_type  string
            entity_name  string?
        ops              []OpData
            key          string
            value        float64
            remove       bool
    validate_only        bool

AlterClientQuotasResponse 0-1 flexible 1+
    throttle_time_ms     int32
    entries              []EntryData
        error_code       int16
        error_message    string?
        entity           []EntityData
            entity_type  string
            entity_name  string?
"""
