"""Is: topics to tables and back, on Spark.

Takes: a pipeline file, or the options of `format("tidelog")`. Gives: rows and offsets in one commit of a Delta table,
DataFrames of topics, topics of DataFrames.
Never: sees more of a broker than a client sees, so that any Kafka cluster will do; imports PySpark or Arrow before one
of its modules is.

Data flows one way: `plan` decides which offsets are read, `reading` fetches them on the executors, `arrow` decodes
record batches straight into Arrow, `values` decodes what is inside the records, `landing` writes files, and `table`
commits them together with the offsets.
"""
