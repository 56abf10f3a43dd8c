"""Is: a small Kafka client over wire: metadata, produce, fetch, admin, with retries and clear errors.

Takes: bootstrap addresses, requests. Gives: responses, records, errors that say what to do.
Never: imports a room of the broker.
"""
