"""DescribeUserScramCredentials (50): which SCRAM credentials users have."""

TABLE = """
DescribeUserScramCredentialsRequest 0 flexible 0+
    users     []UserName?
        name  string

DescribeUserScramCredentialsResponse 0 flexible 0+
    throttle_time_ms      int32
    error_code            int16
    error_message         string?
    results               []DescribeUserScramCredentialsResult
        user              string
        error_code        int16
        error_message     string?
        credential_infos  []CredentialInfo
            mechanism     int8
            iterations    int32
"""
