"""UnregisterBroker (64): forget a broker."""

TABLE = """
UnregisterBrokerRequest 0 flexible 0+
    broker_id  int32

UnregisterBrokerResponse 0 flexible 0+
    throttle_time_ms  int32
    error_code        int16
    error_message     string?
"""
