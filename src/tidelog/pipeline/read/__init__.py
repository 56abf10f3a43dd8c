"""Reading topics.

Is: what a pipeline's batch or a Spark query reads next, and how a range of offsets becomes Arrow batches.
Takes: what was read before, what the log holds, limits.
Gives: ranges of offsets divided into tasks; records as Arrow, in the stock connector's columns; what was lost.
Never: decodes values, writes anything or starts Spark.
"""
