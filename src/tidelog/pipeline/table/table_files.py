"""The files of a version of a table, as its log describes them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.transaction import AddAction, RemoveAction

from tidelog.pipeline.table.parquet_files import WrittenFile, partition_texts


@dataclass(frozen=True, slots=True)
class TableFile:
    path: str
    size_bytes: int
    rows: int
    partition_values: Mapping[str, str | None]
    #: least and greatest value by column, as far as they are known; not of times
    least: Mapping[str, Any]
    greatest: Mapping[str, Any]


def files_of(delta: DeltaTable) -> list[TableFile]:
    adds = pa.table(delta.get_add_actions(flatten=True))
    partition_by = delta.metadata().partition_columns if adds.num_rows else []
    values = {name: partition_texts(adds[f"partition.{name}"].combine_chunks()) for name in partition_by}
    # Of times there may be some that Python has no word for, and nobody asks for them.
    asked = [f.name for f in adds.schema if not pa.types.is_temporal(f.type) and not f.name.startswith("partition.")]
    return [
        TableFile(
            row["path"],
            row["size_bytes"],
            row.get("num_records") or 0,
            {name: texts[number] for name, texts in values.items()},
            _values(row, "min."),
            _values(row, "max."),
        )
        for number, row in enumerate(adds.select(asked).to_pylist())
    ]


def _values(row: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {name.removeprefix(prefix): value for name, value in row.items() if name.startswith(prefix)}


def remove_action(file: TableFile) -> RemoveAction:
    """It does not name a deletion vector, and removes no file that has one."""
    return RemoveAction(file.path, True, int(time.time() * 1000), file.size_bytes, dict(file.partition_values))


def add_action(file: WrittenFile) -> AddAction:
    return AddAction(
        path=file.path,
        size=file.size_bytes,
        partition_values=dict(file.partition_values),
        modification_time=int(time.time() * 1000),
        data_change=True,
        stats=file.stats,
    )
