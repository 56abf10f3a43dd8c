"""Is: topics to tables and back, on Spark.

Takes: a pipeline file, or the options of `format("tidelog")`. Gives: rows and offsets in one commit of a Delta table,
DataFrames of topics, topics of DataFrames.
Never: sees more of a broker than a client sees, so that any Kafka cluster will do; imports PySpark or Arrow before one
of its modules is.

    run | load          a pipeline, batch after batch, and what is asked of it; `tidelog load`
    spark               what Spark loads, and Spark as the executor of tasks
    land                the work of one task: ranges of offsets become files
    table               Delta tables: rows and offsets in one commit
    read | write        topics to Arrow, and Arrow to topics
    options             of `format("tidelog")`
    values | spec       what is inside the records; the pipeline file
    offset_ranges, errors    nouns that all of them use

Each imports only from those below it.
"""
