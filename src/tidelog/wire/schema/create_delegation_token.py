"""CreateDelegationToken (38): issue a delegation token."""

TABLE = """
CreateDelegationTokenRequest 1-3 flexible 2+
    owner_principal_type  string?              3+
    owner_principal_name  string?              3+
    renewers              []CreatableRenewers
        principal_type    string
        principal_name    string
    max_lifetime_ms       int64

CreateDelegationTokenResponse 1-3 flexible 2+
    error_code                      int16
    principal_type                  string
    principal_name                  string
    token_requester_principal_type  string  3+
    token_requester_principal_name  string  3+
    issue_timestamp_ms              int64
    expiry_timestamp_ms             int64
    max_timestamp_ms                int64
    token_id                        string
    hmac                            bytes
    throttle_time_ms                int32
"""
