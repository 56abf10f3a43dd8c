"""Frames: what stands around a message on a connection.

    request   size int32 | api key int16 | api version int16 | correlation id int32 | client id | tags | body
    response  size int32 | correlation id int32 | tags | body

The size counts what follows it. A request's header has the client id from version 1 on (only ControlledShutdown 0 has
none; it is never compact) and tagged fields where the API's version is flexible. A response's header has tagged fields
where the version is flexible, except ApiVersions, whose header a client must be able to read before it knows the
broker's versions.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError
from typing import Any, Final

from tidelog.wire.apis import APIS, FIRST_FLEXIBLE, ApiKey
from tidelog.wire.codec import BytesLike, Codec, request_codec, response_codec
from tidelog.wire.malformed import WireError
from tidelog.wire.varint import skip_tags

#: Bytes, or an object with `size_bytes` (a slice of a file) that stands for that many.
Part = Any

# Plain ints: comparing with an enum member costs a lookup and a call on every frame.
_CONTROLLED_SHUTDOWN: Final = int(ApiKey.CONTROLLED_SHUTDOWN)
_API_VERSIONS: Final = int(ApiKey.API_VERSIONS)

_PLAIN: Final = Struct(">ii").pack
_TAGGED: Final = Struct(">iix").pack
_REQUEST: Final = Struct(">ihhih").pack
_REQUEST_START: Final = Struct(">hhi").unpack_from
_HEADER: Final = Struct(">hhih").unpack_from
_CORRELATION: Final = Struct(">i").unpack_from

#: Pieces from this size on are parts of their own: joining them would cost a copy.
_APART_BYTES: Final = 16384
_BYTES_LIKE: Final = (bytes, memoryview, bytearray)


class RequestHeader:
    """`body_at` is where the body starts in the frame."""

    __slots__ = ("api_key", "api_version", "body_at", "client_id", "correlation_id")

    def __init__(
        self, api_key: int, api_version: int, correlation_id: int, client_id: str | None, body_at: int
    ) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.body_at = body_at

    def __repr__(self) -> str:
        return (
            f"RequestHeader(api_key={self.api_key}, api_version={self.api_version}, "
            f"correlation_id={self.correlation_id}, client_id={self.client_id!r}, body_at={self.body_at})"
        )


def decode_request_header(frame: BytesLike) -> RequestHeader:
    """Read the header of a request; `frame` starts behind the size. An unknown API key is a WireError."""
    try:
        api_key, version, correlation_id, length = _HEADER(frame, 0)
    except StructError:
        return _header_without_client_id(frame)
    if api_key == _CONTROLLED_SHUTDOWN and version == 0:
        return RequestHeader(api_key, version, correlation_id, None, 8)
    flexible_from = FIRST_FLEXIBLE.get(api_key)
    if flexible_from is None:
        raise WireError(f"a request with the unknown API key {api_key}")
    pos = 10
    client_id = None
    if length >= 0:
        pos += length
        if pos > len(frame):
            raise WireError(f"a client id of {length} bytes beyond the request")
        try:
            client_id = bytes(frame[10:pos]).decode()
        except UnicodeDecodeError as cause:
            raise WireError(f"client id: {cause}") from None
    if version >= flexible_from:
        try:
            count = frame[pos]
            pos += 1
            if count:
                pos = skip_tags(frame, pos, count, len(frame))
        except IndexError:
            raise WireError("a request that ends in its header") from None
    return RequestHeader(api_key, version, correlation_id, client_id, pos)


def _header_without_client_id(frame: BytesLike) -> RequestHeader:
    if len(frame) >= 8:
        api_key, version, correlation_id = _REQUEST_START(frame, 0)
        if api_key == _CONTROLLED_SHUTDOWN and version == 0:
            return RequestHeader(api_key, version, correlation_id, None, 8)
    raise WireError("a request that ends in its header")


def encode_response(api_key: int, version: int, correlation_id: int, message: Any) -> list[Part]:
    """The whole frame: size, header and body."""
    codec = response_codec(api_key, version)
    out: list[Any] = []
    tagged = codec.flexible and api_key != _API_VERSIONS
    if codec.write(message, out):
        parts, size = _gather(out)
        prefix = _TAGGED(size + 5, correlation_id) if tagged else _PLAIN(size + 4, correlation_id)
        return _with_prefix(prefix, parts)
    body = b"".join(out)
    if tagged:
        return [_TAGGED(len(body) + 5, correlation_id) + body]
    return [_PLAIN(len(body) + 4, correlation_id) + body]


def encode_request(api_key: int, version: int, correlation_id: int, client_id: str | None, message: Any) -> list[Part]:
    """The whole frame: size, header and body."""
    codec = request_codec(api_key, version)
    out: list[Any] = []
    if codec.write(message, out):
        parts, size = _gather(out)
    else:
        parts = [b"".join(out)]
        size = len(parts[0])
    return _with_prefix(_request_prefix(codec, api_key, correlation_id, client_id, size), parts)


def _request_prefix(codec: Codec, api_key: int, correlation_id: int, client_id: str | None, body_size: int) -> bytes:
    if api_key == _CONTROLLED_SHUTDOWN and codec.version == 0:
        return Struct(">ihhi").pack(8 + body_size, api_key, 0, correlation_id)
    name = b"" if client_id is None else client_id.encode()
    length = -1 if client_id is None else len(name)
    tags = b"\0" if codec.flexible else b""
    size = 10 + len(name) + len(tags) + body_size
    return _REQUEST(size, api_key, codec.version, correlation_id, length) + name + tags


def decode_response_header(api_key: int, version: int, frame: BytesLike) -> tuple[int, int]:
    """The correlation id, and where the body starts; `frame` starts behind the size."""
    try:
        (correlation_id,) = _CORRELATION(frame, 0)
        if version < APIS[api_key].flexible_from or api_key == _API_VERSIONS:
            return correlation_id, 4
        count = frame[4]
        return correlation_id, skip_tags(frame, 5, count, len(frame)) if count else 5
    except (StructError, IndexError):
        raise WireError("a response that ends in its header") from None


def _gather(pieces: list[Any]) -> tuple[list[Part], int]:
    """Join neighbouring small pieces; leave slices and large pieces as parts of their own."""
    parts: list[Part] = []
    run: list[Any] = []
    size = 0
    for piece in pieces:
        if isinstance(piece, _BYTES_LIKE):
            piece_size = len(piece)
            if piece_size < _APART_BYTES:
                run.append(piece)
                size += piece_size
                continue
        else:
            piece_size = piece.size_bytes
        size += piece_size
        if run:
            parts.append(b"".join(run))
            run = []
        parts.append(piece)
    if run:
        parts.append(b"".join(run))
    return parts, size


def _with_prefix(prefix: bytes, parts: list[Part]) -> list[Part]:
    if parts and type(parts[0]) is bytes and len(parts[0]) < _APART_BYTES:
        parts[0] = prefix + parts[0]
        return parts
    return [prefix, *parts]
