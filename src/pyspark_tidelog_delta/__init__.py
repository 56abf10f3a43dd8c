"""Makes `format("tidelog-delta")` known to every Spark session, without registering it (see `pyspark_tidelog`)."""

import contextlib

with contextlib.suppress(ImportError):
    from tidelog.pipeline.spark.delta_sink import DeltaSink as DefaultSource  # noqa: F401
