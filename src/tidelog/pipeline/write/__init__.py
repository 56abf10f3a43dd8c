"""Writing topics, each row once.

Is: rows of Arrow as record batches, transactions that end together, and the ledger of what was written.
Takes: Arrow batches with the columns of Spark's Kafka connector.
Gives: records in topics, and entries in the ledger.
Never: reads a table or starts Spark.
"""
