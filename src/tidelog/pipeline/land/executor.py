"""Who carries out the tasks of a batch: Spark, or this process.

An executor runs every task, perhaps several times, and gives back one result for each. Which attempt's result that is
does not matter: only files that a result names are ever committed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from tidelog.pipeline.errors import NotReady
from tidelog.pipeline.land.landing import Landed, LandingTask, land
from tidelog.pipeline.table.parquet_files import SinkSettings, WrittenFile

if TYPE_CHECKING:
    import pyarrow as pa

    from tidelog.pipeline.spec import Transform

Done = Callable[[Landed], None]


class Executor(Protocol):
    @property
    def parallelism(self) -> int:
        """How many tasks run at a time."""

    def land(self, tasks: Sequence[LandingTask], done: Done) -> list[Landed]:
        """Runs the tasks; `done` is called for each as its result comes in. In the order of the tasks."""

    def transformed_schema(self, transform: Transform, schema: pa.Schema) -> pa.Schema:
        """The columns that the transform makes of rows with this schema."""

    def transform(
        self, transform: Transform, schema: pa.Schema, staged: Sequence[str], settings: SinkSettings
    ) -> list[WrittenFile]:
        """Transforms staged files (full paths) and writes what comes out."""

    def close(self) -> None: ...


class InProcess:
    """Tasks one after the other in this process, without Spark and without Java. It cannot transform."""

    parallelism = 1

    def land(self, tasks: Sequence[LandingTask], done: Done) -> list[Landed]:
        results = []
        for task in tasks:
            results.append(land(task))
            done(results[-1])
        return results

    def transformed_schema(self, transform: Transform, schema: pa.Schema) -> pa.Schema:
        raise _needs_spark()

    def transform(
        self, transform: Transform, schema: pa.Schema, staged: Sequence[str], settings: SinkSettings
    ) -> list[WrittenFile]:
        raise _needs_spark()

    def close(self) -> None:
        pass


def _needs_spark() -> NotReady:
    return NotReady(
        'a [transform] is run by Spark, and the file says master = "none"',
        'write master = "local[*]" or the address of a cluster under [spark]',
    )
