"""Topics to tables and back, on Spark.

Data flows one way: `plan` decides which offsets are read, `source` and `landing` read them on the executors, `arrow`
decodes record batches straight into Arrow, `values` decodes what is inside the records, and `table` commits rows and
offsets in one step. Nothing here knows the broker's insides: it speaks to any Kafka cluster through `tidelog.client`.

Importing `tidelog.pipeline` imports neither PySpark nor Arrow; its modules do.
"""
