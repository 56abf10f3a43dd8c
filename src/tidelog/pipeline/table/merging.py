"""The rows of a batch into a table with keys: read where they landed, merged with the batch's offsets in one commit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable

from tidelog.pipeline.errors import PipelineError
from tidelog.pipeline.spec import DELETED
from tidelog.pipeline.table import storage
from tidelog.pipeline.table.changes import Keyed, merge, orders_of, resolve, without_key
from tidelog.pipeline.table.graves import Graves
from tidelog.pipeline.table.marks import GRAVES

if TYPE_CHECKING:
    from tidelog.pipeline.spec import Pipeline
    from tidelog.pipeline.table.parquet_files import WrittenFile
    from tidelog.pipeline.table.pipeline_table import Committing, PipelineTable, TableChange


def keyed_of(pipeline: Pipeline) -> Keyed:
    return Keyed(pipeline.table.keys, pipeline.table.order_by, pipeline.table.deletes, pipeline.table.keep_deleted_ms)


def merge_rows(
    pipeline: Pipeline, table: PipelineTable, epoch: int, batch: TableChange, files: Sequence[WrittenFile]
) -> None:
    keyed = keyed_of(pipeline)
    graves = Graves(table.path, table.writer, keyed.keep_deleted_ms)
    rows = landed_rows(pipeline, table.path, files)

    def change(delta: DeltaTable, committing: Committing) -> dict[str, int]:
        kept = table.mark(GRAVES)
        changes = resolve(rows, keyed, lambda: graves.read(kept), lambda: orders_of(delta, keyed))
        if changes.graves is not None:
            kept = graves.add(kept, changes.graves)
        entries = {} if kept is None else {GRAVES: kept}
        merge(delta, changes, keyed, committing(entries))
        return entries

    table.change(epoch, batch, change)


def landed_rows(pipeline: Pipeline, root: str, files: Sequence[WrittenFile]) -> pa.Table:
    """In the order in which they count as read: by partitions and offsets."""
    parts = []
    for file in files:
        data = storage.read(root, file.path)
        if data is None:
            raise PipelineError(
                f"{root}: the file {file.path}, which a task wrote for this batch, is gone",
                "run the pipeline again: nothing of the batch is in the table, whose path must be on shared storage",
            )
        parts.append(pq.read_table(pa.BufferReader(data)))
    rows = pa.concat_tables(parts, promote_options="permissive")
    if pipeline.decode.format == "raw" and pipeline.transform is None:
        rows = rows.append_column(DELETED, pc.is_null(rows["value"]))
    if missing := without_key(rows, pipeline.table.keys):
        raise PipelineError(
            f"{missing} rows have no {' or no '.join(pipeline.table.keys)}, which are keys of the table",
            "let a transform leave them out, or give the table other keys under [table]",
        )
    order = [(name, "ascending") for name in arrival_of(pipeline) if name in rows.schema.names]
    return rows.take(pc.sort_indices(rows.select([name for name, _ in order]), sort_keys=order)) if order else rows


def arrival_of(pipeline: Pipeline) -> list[str]:
    """The columns that say when a row was read, as far as the rows have them."""
    columns = ("topic", "partition", "offset")
    if pipeline.decode.format == "raw":
        return list(columns)
    names = dict(pipeline.decode.metadata)
    return [names[column] for column in columns if column in names]


def check_keys(schema: pa.Schema, pipeline: Pipeline) -> None:
    """Whether rows with these columns can be told apart and ordered as the file says."""
    table = pipeline.table
    if not table.keys:
        return
    deletes = [] if table.deletes is None else [table.deletes.partition("=")[0].strip()]
    ordering = arrival_of(pipeline) if table.order_by is None else [table.order_by]
    for where, names in (("keys", table.keys), ("order_by", ordering), ("deletes", deletes)):
        for name in names:
            found = _type_of(schema, name)
            if found is None:
                raise PipelineError(
                    f"{pipeline.file}: [table] {where}: the rows have no column {name}",
                    f"they have: {', '.join(schema.names)}",
                )
            if where != "deletes" and pa.types.is_nested(found):
                raise PipelineError(
                    f"{pipeline.file}: [table] {where}: column {name} is {found}",
                    f"name a field of it, such as {name}.id, or another column",
                )
    if table.order_by is None and len(ordering) < 3:
        raise PipelineError(
            f"{pipeline.file}: [table] keys: the rows do not say in which order they were read",
            "write order_by, or leave topic, partition and offset among [table] metadata",
        )


def _type_of(schema: pa.Schema, path: str) -> pa.DataType | None:
    first, *inner = path.split(".")
    kind = schema.field(first).type if first in schema.names else None
    for name in inner:
        index = kind.get_field_index(name) if kind is not None and pa.types.is_struct(kind) else -1
        kind = kind.field(index).type if kind is not None and index >= 0 else None
    return kind
