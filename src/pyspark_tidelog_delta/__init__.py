"""Makes `format("tidelog-delta")` known to every Spark session, without registering it (see `pyspark_tidelog`)."""

import contextlib

with contextlib.suppress(ImportError):
    from tidelog.pipeline.delta_sink import DeltaSink as DefaultSource  # noqa: F401
