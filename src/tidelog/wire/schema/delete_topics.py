"""DeleteTopics (20): delete topics by name or id."""

TABLE = """
DeleteTopicsRequest 1-6 flexible 4+
    topics        []DeleteTopicState  6+
        name      string?                  = null
        topic_id  uuid
    topic_names   []string            1-5  ignorable
    timeout_ms    int32

DeleteTopicsResponse 1-6 flexible 4+
    throttle_time_ms   int32
    responses          []DeletableTopicResult
        name           string?6+
        topic_id       uuid                    6+
        error_code     int16
        error_message  string?                 5+  = null
"""
