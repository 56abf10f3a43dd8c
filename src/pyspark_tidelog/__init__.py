"""Makes `format("tidelog")` known to every Spark session, without registering it.

PySpark imports all top-level packages whose name begins with `pyspark_` when a session first looks for a data source,
and takes their `DefaultSource`. An import that fails would keep it from finding anybody else's sources too: with a
PySpark that is too old for ours there is no `DefaultSource`, and nothing happens.

It looks with the `python3` of the PATH. A job that imports this package before it makes its session has it look with
the Python that the job runs in, so that an environment need not be activated.
"""

import contextlib

from tidelog.pipeline import this_python as _this_python

_this_python.for_new_sessions()

with contextlib.suppress(ImportError):
    from tidelog.pipeline.source import TidelogDataSource as DefaultSource  # noqa: F401
