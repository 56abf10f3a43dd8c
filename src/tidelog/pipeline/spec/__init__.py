"""The pipeline file.

Is: the sections and keys of the file, and how they are read and checked.
Takes: a TOML document.
Gives: a `Pipeline`, or `SpecError` with all that is wrong with the file.
Never: opens a table, asks a broker or starts Spark.
"""

from tidelog.pipeline.spec.file import SpecError, load, parse
from tidelog.pipeline.spec.sections import (
    DEFAULT_BOOTSTRAP,
    DELETED,
    KEEP_DELETED_MS,
    METADATA,
    SECTIONS,
    Decode,
    OnRestore,
    Pipeline,
    Source,
    Spark,
    StartingOffsets,
    Transform,
)

__all__ = [
    "DEFAULT_BOOTSTRAP",
    "DELETED",
    "KEEP_DELETED_MS",
    "METADATA",
    "SECTIONS",
    "Decode",
    "OnRestore",
    "Pipeline",
    "Source",
    "Spark",
    "SpecError",
    "StartingOffsets",
    "Transform",
    "load",
    "parse",
]
