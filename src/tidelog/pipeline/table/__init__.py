"""Delta tables.

Is: a table that holds its rows together with the offsets they came from; what else happens to tables: merges, part
replacements, restores, vacuums; and the table that streaming queries write to.
Takes: Parquet files that tasks wrote, or rows to merge, with the offsets or the batch that they belong to.
Gives: commits, all or nothing, and what the table says of itself.
Never: reads a topic, decodes a value or starts Spark.
"""
