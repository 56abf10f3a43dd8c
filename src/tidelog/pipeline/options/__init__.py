"""The options of `format("tidelog")`, for reading from topics and for writing to them.

Is: their names, values and refusals, after Spark's Kafka connector.
Takes: options as Spark hands them over: names without regard to case, values as text.
Gives: frozen dataclasses, or `BadOption` for the first that cannot work.
Never: asks a broker.
"""
