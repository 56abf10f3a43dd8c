"""SaslAuthenticate (36): one step of a SASL exchange."""

TABLE = """
SaslAuthenticateRequest 0-2 flexible 2+
    auth_bytes  bytes

SaslAuthenticateResponse 0-2 flexible 2+
    error_code           int16
    error_message        string?
    auth_bytes           bytes
    session_lifetime_ms  int64    1+
"""
