"""Which Python Spark runs: the one that the job runs in.

Spark starts the `python3` of the PATH, for its tasks and to look for data sources. A job that was started as
`.venv/bin/python job.py`, in an environment that is not activated, would run there, where tidelog is not installed.
"""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: what Spark's own scripts and PySpark ask, in this order
CHOSEN_BY: Final = ("PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON")


def _is_left_to_chance() -> bool:
    """Whether nobody has said which Python, and the one of the PATH is of another environment."""
    if any(name in os.environ for name in CHOSEN_BY):
        return False
    found = shutil.which("python3")
    return found is None or os.path.dirname(found) != os.path.dirname(sys.executable)


def for_new_sessions() -> None:
    """For the sessions of this process, as long as its JVM has not been started."""
    if _is_left_to_chance():
        os.environ["PYSPARK_PYTHON"] = sys.executable


def for_session(spark: SparkSession) -> None:
    """For what is registered with this session from now on. Other machines have Pythons of their own."""
    context = spark.sparkContext
    if (context.master or "").startswith("local") and _is_left_to_chance():
        context.pythonExec = sys.executable
