"""DeleteShareGroupOffsets (92): forget where a share group stands."""

TABLE = """
DeleteShareGroupOffsetsRequest 0 flexible 0+
    group_id        string
    topics          []DeleteShareGroupOffsetsRequestTopic
        topic_name  string

DeleteShareGroupOffsetsResponse 0 flexible 0+
    throttle_time_ms   int32
    error_code         int16
    error_message      string?                                   = null
    responses          []DeleteShareGroupOffsetsResponseTopic
        topic_name     string
        topic_id       uuid
        error_code     int16
        error_message  string?                                   = null
"""
