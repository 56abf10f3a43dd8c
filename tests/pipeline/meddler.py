"""Another Delta writer at work on a pipeline's table: it joins files, deletes and updates rows, adds columns, restores.

What it deletes are rows that it is known to delete, so that an oracle can tell those from rows that were lost; what it
updates it puts back, by a RESTORE where nobody has committed since.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from deltalake.schema import Field, PrimitiveType

#: of the rows' ids: those that divide so are deleted, sooner or later
DELETED_MODULUS, DELETED_REST = 11, 4


def is_deleted(number: int) -> bool:
    return number % DELETED_MODULUS == DELETED_REST


class Meddler:
    """Works on the table in a thread of its own until it is left; `done` counts what came of it."""

    def __init__(self, path: str, seed: int) -> None:
        self._path = path
        self._dice = random.Random(seed)
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.done: Counter[str] = Counter()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.set()
        self._thread.join(60)

    def _run(self) -> None:
        works: list[Callable[[DeltaTable], str]] = [self._compact, self._delete, self._add_column, self._put_back]
        while not self._ending.wait(self._dice.uniform(0.01, 0.15)):
            if not DeltaTable.is_deltatable(self._path):
                continue
            work = self._dice.choice(works)
            # Whoever was faster wins; both sides must bear that.
            with suppress(DeltaError):
                self.done[work(DeltaTable(self._path))] += 1

    def _compact(self, table: DeltaTable) -> str:
        table.optimize.compact()
        return "files joined"

    def _delete(self, table: DeltaTable) -> str:
        delete_known(table)
        return "rows deleted"

    def _add_column(self, table: DeltaTable) -> str:
        if len(table.schema().fields) < 30:
            table.alter.add_columns([Field(f"note_{self._dice.randrange(10**6)}", PrimitiveType("string"))])
        return "columns added"

    def _put_back(self, table: DeltaTable) -> str:
        """An update by mistake, and a RESTORE of what was before it: of a version with the same offsets."""
        before = table.version()
        table.update({"id": "id"}, predicate="id % 13 = 1")
        newest = DeltaTable(self._path)
        if newest.version() == before + 1:
            newest.restore(before)
            return "restored"
        return "updated"


def delete_known(table: DeltaTable) -> None:
    table.delete(f"id % {DELETED_MODULUS} = {DELETED_REST}")
