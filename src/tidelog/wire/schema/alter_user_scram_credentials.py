"""AlterUserScramCredentials (51): set and remove SCRAM credentials."""

TABLE = """
AlterUserScramCredentialsRequest 0 flexible 0+
    deletions            []ScramCredentialDeletion
        name             string
        mechanism        int8
    upsertions           []ScramCredentialUpsertion
        name             string
        mechanism        int8
        iterations       int32
        salt             bytes
        salted_password  bytes

AlterUserScramCredentialsResponse 0 flexible 0+
    throttle_time_ms   int32
    results            []AlterUserScramCredentialsResult
        user           string
        error_code     int16
        error_message  string?
"""
