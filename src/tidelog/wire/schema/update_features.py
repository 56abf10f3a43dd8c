"""UpdateFeatures (57): change finalized feature levels."""

TABLE = """
UpdateFeaturesRequest 0-2 flexible 0+
    timeout_ms             int32                   = 60000
    feature_updates        []FeatureUpdateKey
        feature            string
        max_version_level  int16
        allow_downgrade    bool                0
        upgrade_type       int8                1+  = 1
    validate_only          bool                1+

UpdateFeaturesResponse 0-2 flexible 0+
    throttle_time_ms   int32
    error_code         int16
    error_message      string?
    results            []UpdatableFeatureResult  0-1
        feature        string
        error_code     int16
        error_message  string?
"""
