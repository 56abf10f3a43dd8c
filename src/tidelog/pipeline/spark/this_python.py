"""Which Python Spark runs where a source is registered by hand: the one that the job runs in.

Spark runs the `python3` of the PATH. In an environment that is installed but not activated, `tidelog_pyspark.pth` puts
the environment's own on the PATH before a session is made; this is for sessions that were made without it, for example
where tidelog comes from a PYTHONPATH.
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


def for_session(spark: SparkSession) -> None:
    """For what is registered with this session from now on. Other machines have Pythons of their own."""
    context = spark.sparkContext
    if (context.master or "").startswith("local") and _is_left_to_chance():
        context.pythonExec = sys.executable


def _is_left_to_chance() -> bool:
    """Whether nobody has said which Python, and the one of the PATH is of another environment."""
    if any(name in os.environ for name in CHOSEN_BY):
        return False
    found = shutil.which("python3")
    return found is None or os.path.dirname(found) != os.path.dirname(sys.executable)
