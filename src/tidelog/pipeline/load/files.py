"""What is to be loaded: files by name, directory or pattern, or the rows that were appended to a Delta table.

A file is known by its address, size and time of last change: one that was changed since is another file. Names that
begin with `_` or `.` are nobody's data, as Spark has it. Files are found through Spark's own file systems, so that
whatever it can read can be listed.

Of a Delta table the log says what was appended since a version. Files that were only rewritten, as by compaction, hold
no new rows. Where rows were removed or changed since, there is no set of files that is what is new, and the table can
only be loaded as a whole, under another name.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import unquote

from tidelog.pipeline.errors import NotReady, PipelineError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

FORMATS: Final = ("parquet", "csv", "json", "text", "delta")
_ENDINGS: Final = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".txt": "text",
}
_COMPRESSED: Final = (".gz", ".bz2", ".zst", ".lz4", ".snappy")
_FINGERPRINT_BYTES: Final = 8
_ANOTHER_NAME: Final = "load the whole table under another name, with --job"


class Gone(PipelineError):
    """Rows that were there have gone or changed: what is new cannot be told apart."""


class SourceFile(NamedTuple):
    address: str
    size_bytes: int
    modified_ms: int

    @property
    def fingerprint(self) -> str:
        whole = f"{self.address}\0{self.size_bytes}\0{self.modified_ms}"
        return blake2b(whole.encode(), digest_size=_FINGERPRINT_BYTES).hexdigest()


# --- files ------------------------------------------------------------------------------------------


def list_files(spark: SparkSession, paths: Iterable[str]) -> list[SourceFile]:
    """The files that the paths stand for, in the order of their names; each once."""
    found: dict[str, SourceFile] = {}
    for path in paths:
        for status in _matching(spark, path):
            each = SourceFile(status.getPath().toString(), status.getLen(), status.getModificationTime())
            found[each.address] = each
    return [found[address] for address in sorted(found)]


def _matching(spark: SparkSession, path: str) -> Iterator[Any]:
    where, system = _located(spark, path)
    # A name that exists is taken at its word, whatever signs are in it.
    roots = [system.getFileStatus(where)] if system.exists(where) else list(system.globStatus(where) or ())
    if not roots:
        raise NotReady(f"there is no file {path}", "give a file, a directory, or a pattern such as 'data/*.parquet'")
    for root in roots:
        if not root.isDirectory():
            yield root
            continue
        above = root.getPath().toString()
        files = system.listFiles(root.getPath(), True)
        while files.hasNext():
            status = files.next()
            below = status.getPath().toString()[len(above) :]
            if not any(part.startswith(("_", ".")) for part in below.split("/")):
                yield status


def _located(spark: SparkSession, path: str) -> tuple[Any, Any]:
    jvm: Any = spark._jvm
    where = jvm.org.apache.hadoop.fs.Path(path)
    return where, where.getFileSystem(spark._jsc.hadoopConfiguration())


def is_directory(spark: SparkSession, path: str) -> bool:
    where, system = _located(spark, path)
    return bool(system.exists(where) and system.getFileStatus(where).isDirectory())


def is_delta(spark: SparkSession, path: str) -> bool:
    return is_directory(spark, f"{path.rstrip('/')}/_delta_log")


def format_of(files: Sequence[SourceFile]) -> str:
    """The format that the names of the files tell."""
    found: dict[str, str] = {}
    for each in files:
        name = each.address.rpartition("/")[2].lower()
        for ending in _COMPRESSED:
            name = name.removesuffix(ending)
        ending = name[name.rfind(".") :] if "." in name else ""
        if ending not in _ENDINGS:
            raise NotReady(f"what is in {each.address} is not told by its name", f"say --format {'|'.join(FORMATS)}")
        found.setdefault(_ENDINGS[ending], each.address)
    if len(found) > 1:
        said = ", ".join(f"{address} is {kind}" for kind, address in found.items())
        raise NotReady(f"the files are of several formats: {said}", "load them in several runs")
    return next(iter(found))


def escaped(address: str) -> str:
    """An address that Spark does not take for a pattern."""
    return "".join(f"\\{sign}" if sign in "{}[]*?\\" else sign for sign in address)


# --- Delta tables -----------------------------------------------------------------------------------


class DeltaFile(NamedTuple):
    """A file of a table, and a version of the table that has it; in the log its path is encoded, as in addresses."""

    path: str
    version: int
    size_bytes: int


class DeltaFiles(NamedTuple):
    table: str
    version: int
    files: tuple[DeltaFile, ...]


def list_delta(path: str, after: int | None) -> DeltaFiles:
    """All files of the newest version; with `after`, those with rows that were appended since that version."""
    table = _open_delta(path, None)
    version = table.version()
    if after is not None:
        return DeltaFiles(path, version, tuple(_appended(table, after, version)))
    adds = table.get_add_actions(flatten=True)
    sizes = zip(adds["path"].to_pylist(), adds["size_bytes"].to_pylist(), strict=True)
    return DeltaFiles(path, version, tuple(DeltaFile(unquote(name), version, size) for name, size in sorted(sizes)))


def _open_delta(path: str, version: int | None) -> Any:
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    from tidelog.pipeline.table import delta_features

    try:
        table = DeltaTable(path, version=version)
    except DeltaError as error:
        raise NotReady(f"{path} cannot be read as a Delta table: {str(error).partition(chr(10))[0]}") from error
    delta_features.check(table, path, delta_features.Door.LOAD)
    return table


def _appended(table: Any, after: int, version: int) -> Iterator[DeltaFile]:
    """Read at the version that added them: compaction may have put their rows into other files since."""
    from pyarrow import fs

    if after > version:
        raise Gone(f"version {after} of {table.table_uri} was loaded, and its newest is {version}", _ANOTHER_NAME)
    system, root = fs.FileSystem.from_uri(table.table_uri)
    for number in range(after + 1, version + 1):
        try:
            with system.open_input_stream(f"{root.rstrip('/')}/_delta_log/{number:020}.json") as stream:
                actions = [json.loads(line) for line in stream.read().decode().splitlines()]
        except FileNotFoundError:
            said = f"what version {number} of {table.table_uri} changed is no longer in its log"
            raise Gone(said, _ANOTHER_NAME) from None
        if any("remove" in action and action["remove"].get("dataChange", True) for action in actions):
            raise Gone(f"version {number} of {table.table_uri} removes or changes rows", _ANOTHER_NAME)
        for action in actions:
            if "add" in action and action["add"].get("dataChange", True):
                yield DeltaFile(unquote(action["add"]["path"]), number, action["add"]["size"])


def read_delta(spark: SparkSession, files: DeltaFiles) -> DataFrame:
    """The rows of the files, read by the executors."""
    from pyspark.sql.pandas.types import from_arrow_schema

    table, arrow = files.table, _arrow_schema(files.table, files.version)
    tasks = max(1, min(len(files.files), 4 * spark.sparkContext.defaultParallelism))
    rows = [(each.path, each.version) for each in files.files]
    names = spark.createDataFrame(rows, "path string, version long").repartition(tasks)

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        wanted: dict[int, set[str]] = {}
        for batch in batches:
            for row in batch.to_pylist():
                wanted.setdefault(row["version"], set()).add(row["path"])
        for version, paths in sorted(wanted.items()):
            yield from _read_fragments(table, version, paths, arrow)

    return names.mapInArrow(read, from_arrow_schema(arrow))


def _arrow_schema(table: str, version: int) -> pa.Schema:
    import pyarrow as pa

    return pa.schema(_open_delta(table, version).schema().to_arrow())


def _read_fragments(table: str, version: int, wanted: set[str], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    delta = _open_delta(table, version)
    found = [fragment for path, fragment in _fragments(delta, schema) if path in wanted]
    if len(found) != len(wanted):
        raise Gone(f"{len(wanted) - len(found)} files of version {version} of {table} are gone", _ANOTHER_NAME)
    hidden = _hidden(delta)
    for fragment in found:
        masks = (mask for end, mask in hidden.items() if end.endswith(f"/{fragment.path.lstrip('/')}"))
        for batch in _without(fragment.to_batches(schema=schema), next(masks, None)):
            if batch.num_rows:
                yield batch


def _fragments(delta: Any, schema: pa.Schema) -> Iterator[tuple[str, Any]]:
    """The files of a table: their paths in it, and what reads them, partition values included."""
    import pyarrow as pa
    import pyarrow.dataset as ds
    from pyarrow import fs

    system, root = fs.FileSystem.from_uri(delta.table_uri)
    adds = pa.table(delta.get_add_actions(flatten=True))
    values = {
        name: adds[f"partition.{name}"].cast(schema.field(name).type) for name in delta.metadata().partition_columns
    }
    for row, name in enumerate(adds["path"].to_pylist()):
        path = unquote(name)
        said = ds.scalar(True)
        for column, texts in values.items():
            value, field = texts[row], ds.field(column)
            said = said & (field == value if value.is_valid else field.is_null())
        inner = f"{root.rstrip('/')}/{path}"
        yield path, ds.ParquetFileFormat().make_fragment(inner, filesystem=system, partition_expression=said)


def _hidden(delta: Any) -> dict[str, Any]:
    """Which rows deletion vectors leave of a file, by its address."""
    import pyarrow as pa

    if "deletionVectors" not in (delta.protocol().reader_features or ()):
        return {}
    found = pa.table(delta.deletion_vectors())
    masks = zip(found["filepath"].to_pylist(), found["selection_vector"].combine_chunks(), strict=True)
    return {unquote(address): mask.values for address, mask in masks}


def _without(batches: Iterable[pa.RecordBatch], mask: Any) -> Iterator[pa.RecordBatch]:
    """The rows that a mask leaves; those beyond its end stay."""
    import pyarrow as pa

    first = 0
    for batch in batches:
        if mask is None:
            yield batch
            continue
        own = mask.slice(first, batch.num_rows)
        first += batch.num_rows
        yield batch.filter(pa.concat_arrays([own, pa.array([True] * (batch.num_rows - len(own)), pa.bool_())]))
