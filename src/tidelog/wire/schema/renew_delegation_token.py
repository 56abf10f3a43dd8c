"""RenewDelegationToken (39): extend a delegation token."""

TABLE = """
RenewDelegationTokenRequest 1-2 flexible 2+
    hmac             bytes
    renew_period_ms  int64

RenewDelegationTokenResponse 1-2 flexible 2+
    error_code           int16
    expiry_timestamp_ms  int64
    throttle_time_ms     int32
"""
