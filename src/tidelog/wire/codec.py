"""The door to the codec: from the tables to compiled functions, each made on first use and kept.

    tables (wire/schema/*.py) -> Schema (table.py) -> classes (classes.py)
                                                   -> source of a decoder, an encoder (decoder.py, encoder.py) -> exec

Importing this module reads no table: a table is parsed when one of its messages is first asked for, and a function is
compiled when it is first wanted. A broker therefore pays only for the APIs and versions that its clients use.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

from tidelog.wire.apis import APIS
from tidelog.wire.classes import Message, make_class
from tidelog.wire.decoder import compile_decoder
from tidelog.wire.encoder import compile_encoder
from tidelog.wire.malformed import WireError
from tidelog.wire.schema import STORED
from tidelog.wire.table import Schema, parse

BytesLike = bytes | bytearray | memoryview


class Codec:
    """One message in one version.

    `decode(buf, pos=0)` gives the message and the position behind it; `encode(message)` gives its bytes.
    `decode_counted(buf, pos, most)` refuses more than `most` elements in all arrays together, before it reads them.
    `write(message, out)` appends its pieces to a list and gives the places of those that are to be parts of their own:
    large records, and slices of files, which only a list of parts can carry.
    """

    __slots__ = ("decode", "decode_counted", "encode", "flexible", "message_class", "schema", "version", "write")

    decode: Callable[..., tuple[Any, int]]
    decode_counted: Callable[[BytesLike, int, int], tuple[Any, int]]
    encode: Callable[[Any], bytes]
    write: Callable[[Any, list[Any]], list[int] | None]

    def __init__(self, schema: Schema, version: int) -> None:
        self.schema = schema
        self.version = version
        self.flexible = schema.flexible(version)
        self.message_class: Any = message_class(schema.name)

    def __getattr__(self, name: str) -> Any:
        # Reached only while a slot is empty: the first use compiles.
        if name == "decode":
            self.decode = compile_decoder(self.schema, self.version, self.message_class)
        elif name == "decode_counted":
            self.decode_counted = compile_decoder(self.schema, self.version, self.message_class, counted=True)
        elif name == "write":
            self.write = compile_encoder(self.schema, self.version, self.message_class)
        elif name == "encode":
            self.encode = _joined(self.write)
        else:
            raise AttributeError(name)
        return getattr(self, name)

    def __repr__(self) -> str:
        return f"<codec of {self.schema.name} v{self.version}>"


def _joined(write: Callable[[Any, list[Any]], list[int] | None]) -> Callable[[Any], bytes]:
    def encode(message: Any) -> bytes:
        out: list[bytes] = []
        write(message, out)
        return b"".join(out)

    return encode


@cache
def request_codec(api_key: int, version: int) -> Codec:
    return _codec(_api_name(api_key) + "Request", version)


@cache
def response_codec(api_key: int, version: int) -> Codec:
    return _codec(_api_name(api_key) + "Response", version)


@cache
def stored_codec(name: str, version: int) -> Codec:
    """Schemas outside requests and responses: records of internal topics, embedded protocols, headers."""
    if name not in STORED:
        raise WireError(f"no schema is called {name}")
    return _codec(name, version)


def schema_of(name: str) -> Schema:
    """The parsed table of a message: `ProduceRequest`, `OffsetCommitKey`."""
    return _tables(_module_of(name))[name]


@cache
def message_class(name: str) -> type[Message]:
    return make_class(schema_of(name))


def _codec(name: str, version: int) -> Codec:
    schema = schema_of(name)
    if not schema.versions[0] <= version <= schema.versions[1]:
        raise WireError(f"{name} has no version {version}")
    return Codec(schema, version)


def _api_name(api_key: int) -> str:
    api = APIS.get(api_key)
    if api is None:
        raise WireError(f"no API has the key {api_key}")
    return api.name


def _module_of(name: str) -> str:
    module = STORED.get(name)
    if module is not None:
        return module
    for suffix in ("Request", "Response"):
        api = _modules_by_api().get(name.removesuffix(suffix)) if name.endswith(suffix) else None
        if api is not None:
            return api
    raise WireError(f"no schema is called {name}")


@cache
def _modules_by_api() -> dict[str, str]:
    return {api.name: api.key.name.lower() for api in APIS.values()}


@cache
def _tables(module: str) -> dict[str, Schema]:
    return parse(import_module(f"tidelog.wire.schema.{module}").TABLE)
