"""Protobuf schemas: a descriptor set as `protoc --descriptor_set_out` writes it, or `.proto` text if protoc is at hand.

Executors get the descriptor set; only the driver needs protoc, or `grpcio-tools`, which brings one along.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from typing import Any

from tidelog.pipeline.values.ddl import SchemaError
from tidelog.pipeline.values.schemas import read_schema_file

_WELL_KNOWN = ("any", "duration", "empty", "field_mask", "struct", "timestamp", "wrappers")


def descriptor_set(schema: str | None, schema_file: str | None) -> bytes:
    """The descriptor set that the pipeline file gives, or that its .proto text makes."""
    if schema:
        with tempfile.TemporaryDirectory(prefix="tidelog-proto-") as directory:
            path = os.path.join(directory, "inline.proto")
            with open(path, "w", encoding="utf-8") as file:
                file.write(schema)
            return _compile(path)
    if not schema_file:
        raise SchemaError("decode: Protobuf values need schema_file: a .proto file or a descriptor set")
    return _compile(schema_file) if schema_file.endswith(".proto") else read_schema_file(schema_file)


def _compile(path: str) -> bytes:
    read_schema_file(path)
    if shutil.which("protoc"):
        command = ["protoc"]
    elif importlib.util.find_spec("grpc_tools") is not None:
        command = [sys.executable, "-m", "grpc_tools.protoc"]
    else:
        raise SchemaError(
            f"decode.schema_file: reading {path} needs protoc, which is not there: install protoc or "
            "`pip install grpcio-tools`, or give the descriptor set that "
            "`protoc --include_imports --descriptor_set_out=orders.desc orders.proto` makes elsewhere"
        )
    with tempfile.NamedTemporaryFile(prefix="tidelog-", suffix=".desc") as made:
        directory, name = os.path.split(os.path.abspath(path))
        command += [f"-I{directory}", "--include_imports", f"--descriptor_set_out={made.name}", name]
        ran = subprocess.run(command, capture_output=True, text=True, cwd=directory)
        if ran.returncode:
            raise SchemaError(f"decode.schema_file: protoc says: {ran.stderr.strip().splitlines()[0]}")
        return made.read()


def find_message(descriptors: bytes, name: str | None) -> Any:
    """The class of a message; with no name given, of the only one that the file itself defines."""
    from google.protobuf import descriptor_pb2, message_factory
    from google.protobuf.message import DecodeError

    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(descriptors).file
    except DecodeError:
        raise SchemaError("decode.schema_file: not a descriptor set (protoc --descriptor_set_out makes one)") from None
    pool = _pool_of(files)
    known = sorted(_names(files))
    if name is None:
        # protoc writes imported files first; the last one is that which was asked for.
        own = _names(files[-1:]) if files else []
        if len(own) != 1:
            raise SchemaError(f"decode.message: say which message the values are: {', '.join(known)}")
        name = own[0]
    try:
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
    except KeyError:
        raise SchemaError(f"decode.message: there is no message {name}; there are {', '.join(known)}") from None


def _names(files: Any) -> list[str]:
    """Full names of the messages at the top of these files."""
    return [f"{file.package}.{message.name}".lstrip(".") for file in files for message in file.message_type]


def _pool_of(files: Any) -> Any:
    from google.protobuf import descriptor_pool

    pool = descriptor_pool.DescriptorPool()
    given = {file.name: file for file in files}
    added: set[str] = set()

    def add(name: str, wanted_by: str) -> None:
        if name in added:
            return
        added.add(name)
        file = given.get(name) or _well_known(name)
        if file is None:
            raise SchemaError(
                f"decode.schema_file: {wanted_by} imports {name}, which is not in the descriptor set; "
                "make it with protoc --include_imports"
            )
        for needed in file.dependency:
            add(needed, name)
        pool.Add(file)

    for name in given:
        add(name, name)
    return pool


def _well_known(name: str) -> Any:
    from google.protobuf import descriptor_pb2, descriptor_pool

    if name not in {f"google/protobuf/{known}.proto" for known in _WELL_KNOWN}:
        return None
    importlib.import_module(f"google.protobuf.{os.path.basename(name).removesuffix('.proto')}_pb2")
    file = descriptor_pb2.FileDescriptorProto()
    descriptor_pool.Default().FindFileByName(name).CopyToProto(file)
    return file
