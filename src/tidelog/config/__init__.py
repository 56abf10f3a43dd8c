"""Is: configuration under Kafka's names: definitions, parsing, validation, sources, what is dynamic.

Takes: files, environment, `-X` pairs, alterations. Gives: typed values, each with its source.
Never: evaluates a value as code, path expansion, environment variable or URL.
"""
