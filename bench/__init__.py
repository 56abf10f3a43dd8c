"""Measures Tidelog beside Apache Kafka: same machine, same clients, same data, in one run.

`python -m bench` runs the benchmarks B1 to B6 and B14; docs/benchmarks.md says what each one means.
`bench.systems` starts the two brokers and Apache Kafka's Java tools; the compatibility tests use it too.
"""
