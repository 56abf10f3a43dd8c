"""The headers of requests and responses; `frame` reads and writes them by hand."""

TABLE = """
RequestHeader 1-2 flexible 2+
    request_api_key      int16
    request_api_version  int16
    correlation_id       int32
    client_id            string?    inflexible

ResponseHeader 0-1 flexible 1+
    correlation_id  int32
"""
