"""ExpireDelegationToken (40): end a delegation token."""

TABLE = """
ExpireDelegationTokenRequest 1-2 flexible 2+
    hmac                   bytes
    expiry_time_period_ms  int64

ExpireDelegationTokenResponse 1-2 flexible 2+
    error_code           int16
    expiry_timestamp_ms  int64
    throttle_time_ms     int32
"""
