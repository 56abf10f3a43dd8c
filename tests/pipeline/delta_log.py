"""Log entries of Delta tables as other writers make them, of features that the library here does not write."""

from __future__ import annotations

import json
import struct
import time
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

from deltalake import DeltaTable

_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
READER_FEATURES = frozenset(
    {"columnMapping", "deletionVectors", "timestampNtz", "typeWidening", "v2Checkpoint", "vacuumProtocolCheck"}
    | {"variantType", "variantShredding-preview"}
)


def entries(path: str) -> list[dict[str, Any]]:
    """Every action of the log, the oldest first."""
    logs = sorted(Path(path, "_delta_log").glob("*.json"))
    return [json.loads(line) for log in logs for line in log.read_text().splitlines()]


def latest(path: str, kind: str) -> dict[str, Any]:
    found: dict[str, Any] = [action[kind] for action in entries(path) if kind in action][-1]
    return found


def commit(path: str, operation: str, *actions: dict[str, Any]) -> None:
    info = {"commitInfo": {"timestamp": int(time.time() * 1000), "operation": operation, "operationParameters": {}}}
    version = DeltaTable(path).version() + 1
    log = Path(path, "_delta_log", f"{version:020d}.json")
    log.write_text("".join(f"{json.dumps(action)}\n" for action in (info, *actions)))


def protocol(*features: str) -> dict[str, Any]:
    """One that lists these features."""
    readers = [name for name in features if name in READER_FEATURES]
    found: dict[str, Any] = {"minReaderVersion": 3 if readers else 1, "minWriterVersion": 7}
    found["writerFeatures"] = [*features, *({"appendOnly", "invariants"} - set(features))]
    return {"protocol": {**found, "readerFeatures": readers} if readers else found}


def alter(
    path: str, change: Callable[[dict[str, Any], list[dict[str, Any]]], None], *protocols: dict[str, Any]
) -> None:
    """Changes the table's properties and columns."""
    metadata = latest(path, "metaData")
    schema = json.loads(metadata["schemaString"])
    change(metadata["configuration"], schema["fields"])
    commit(path, "SET TBLPROPERTIES", *protocols, {"metaData": {**metadata, "schemaString": json.dumps(schema)}})


def hide_row(path: str, row: int) -> str:
    """Deletes a row of the oldest file by a deletion vector. The vector's own file."""
    add = next(action["add"] for action in entries(path) if "add" in action)
    bitmap = struct.pack("<IIHHIH", 12346, 1, 0, 0, 16, row)
    vector = struct.pack("<IQI", 1681511377, 1, 0) + bitmap
    name = uuid4()
    file = Path(path, f"deletion_vector_{name}.bin")
    file.write_bytes(b"\1" + struct.pack(">I", len(vector)) + vector + struct.pack(">I", zlib.crc32(vector)))
    described = {"storageType": "u", "pathOrInlineDv": _z85(name.bytes), "offset": 1, "sizeInBytes": len(vector)}
    metadata = latest(path, "metaData")
    metadata["configuration"]["delta.enableDeletionVectors"] = "true"
    removed = {key: add[key] for key in ("path", "size", "partitionValues")}
    commit(
        path,
        "DELETE",
        protocol("deletionVectors"),
        {"metaData": metadata},
        {"remove": {**removed, "dataChange": True, "deletionTimestamp": 1, "extendedFileMetadata": True}},
        {"add": {**add, "deletionVector": {**described, "cardinality": 1}}},
    )
    return file.name


def _z85(data: bytes) -> str:
    words: Sequence[int] = struct.unpack(f">{len(data) // 4}I", data)
    return "".join(_Z85[word // 85**power % 85] for word in words for power in (4, 3, 2, 1, 0))
