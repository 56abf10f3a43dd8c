"""The two brokers as processes, and Apache Kafka's Java tools: one place for tests and benchmarks alike."""
