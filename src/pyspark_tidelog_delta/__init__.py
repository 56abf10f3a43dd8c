"""Makes `format("tidelog-delta")` known to every Spark session, without registering it (see `pyspark_tidelog`)."""

import contextlib

from tidelog.pipeline import this_python as _this_python

_this_python.for_new_sessions()

with contextlib.suppress(ImportError):
    from tidelog.pipeline.delta_sink import DeltaSink as DefaultSource  # noqa: F401
