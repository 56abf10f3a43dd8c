"""Makes `format("tidelog")` known to every Spark session, without registering it.

PySpark imports all top-level packages whose name begins with `pyspark_` when a session first looks for a data source,
and takes their `DefaultSource`. An import that fails would keep it from finding anybody else's sources too: with a
PySpark that is too old for ours there is no `DefaultSource`, and nothing happens.
"""

import contextlib

with contextlib.suppress(ImportError):
    from tidelog.pipeline.spark.source import TidelogDataSource as DefaultSource  # noqa: F401
