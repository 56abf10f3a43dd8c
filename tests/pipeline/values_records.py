"""Records and a `[decode]` section, made by hand for the tests of the value decoders."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tidelog.pipeline.values.decoded import KAFKA_TYPES

METADATA = (
    ("topic", "_topic"),
    ("partition", "_partition"),
    ("offset", "_offset"),
    ("timestamp", "_timestamp"),
    ("key", "_key"),
)


@dataclass(frozen=True)
class Decode:
    format: str = "json"
    schema: str | None = None
    schema_file: str | None = None
    infer: bool = False
    message: str | None = None
    on_error: str = "dead_letter"
    on_type_change: str = "dead_letter"
    evolve: bool = False
    framing: str = "none"
    writer_schema_file: str | None = None
    writer_schemas: dict[str, str] = field(default_factory=dict)
    key_format: str = "binary"
    metadata: tuple[tuple[str, str], ...] = METADATA
    keys: tuple[str, ...] = ()


def records(values: list[bytes | None], keys: list[bytes | None] | None = None) -> Any:
    count = len(values)
    columns = {
        "key": keys or [b"%d" % index for index in range(count)],
        "value": values,
        "topic": ["orders"] * count,
        "partition": [3] * count,
        "offset": range(100, 100 + count),
        "timestamp": range(1_000_000, 1_000_000 + count),
        "timestampType": [0] * count,
        "headers": [[]] * count,
    }
    return pa.record_batch([pa.array(columns[name], kind) for name, kind in KAFKA_TYPES.items()], list(KAFKA_TYPES))


def offsets(batch: Any) -> list[int]:
    name = "_offset" if "_offset" in batch.schema.names else "offset"
    found: list[int] = batch.column(name).to_pylist()
    return found
