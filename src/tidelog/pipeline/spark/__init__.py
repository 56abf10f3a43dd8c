"""Spark.

Is: `format("tidelog")`, `format("tidelog-delta")`, and Spark as the executor of a pipeline's tasks.
Takes: what PySpark calls a data source with; the tasks and transforms of a batch.
Gives: rows, commits, and results of tasks.
Never: decides what a pipeline reads next.
"""
