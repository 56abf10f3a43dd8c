"""Frames: what stands around a message on a connection.

    request   size int32 | api key int16 | api version int16 | correlation id int32 | client id | tags | body
    response  size int32 | correlation id int32 | tags | body

The size counts what follows it. A request's header has the client id from version 1 on (only ControlledShutdown 0 has
none; it is never compact) and tagged fields where the API's version is flexible. A response's header has tagged fields
where the version is flexible, except ApiVersions, whose header a client must be able to read before it knows the
broker's versions.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from struct import Struct
from struct import error as StructError
from typing import Any, Final

from tidelog.wire.apis import APIS, FIRST_FLEXIBLE, ApiKey
from tidelog.wire.classes import Message
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
_CLIENT_ID_LENGTH: Final = Struct(">h").unpack_from
_CORRELATION: Final = Struct(">i").unpack_from

_BYTES_LIKE: Final = (bytes, memoryview, bytearray)


class RequestHeader:
    """`body_at` is where the body starts in the frame."""

    __slots__ = ("api_key", "api_version", "body_at", "client_id", "correlation_id")

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_at: int

    def __repr__(self) -> str:
        return (
            f"RequestHeader(api_key={self.api_key}, api_version={self.api_version}, "
            f"correlation_id={self.correlation_id}, client_id={self.client_id!r}, body_at={self.body_at})"
        )


def decode_request_header(frame: BytesLike) -> RequestHeader:
    """Read the header of a request; `frame` starts behind the size. An unknown API key is a WireError."""
    header = RequestHeader()
    header.client_id = None
    try:
        header.api_key, header.api_version, header.correlation_id = _REQUEST_START(frame, 0)
        flexible_from = FIRST_FLEXIBLE.get(header.api_key)
        if flexible_from is None:
            raise WireError(f"a request with the unknown API key {header.api_key}")
        if header.api_key == _CONTROLLED_SHUTDOWN and header.api_version == 0:
            header.body_at = 8
            return header
        (length,) = _CLIENT_ID_LENGTH(frame, 8)
        pos = 10
        if length >= 0:
            pos += length
            if pos > len(frame):
                raise WireError(f"a client id of {length} bytes beyond the request")
            header.client_id = bytes(frame[10:pos]).decode()
        if header.api_version >= flexible_from:
            count = frame[pos]
            pos = skip_tags(frame, pos + 1, count, len(frame)) if count else pos + 1
        header.body_at = pos
        return header
    except (StructError, IndexError, UnicodeDecodeError) as cause:
        raise WireError(f"request header: {cause}") from None


def encode_response(api_key: int, version: int, correlation_id: int, message: Message) -> list[Part]:
    """The whole frame: size, header and body."""
    write, prefix, header_bytes = _response_writer(api_key, version)
    out: list[Any] = []
    apart = write(message, out)
    if apart:
        parts, size = _gather(out, apart)
        parts[0] = prefix(size + header_bytes, correlation_id) + parts[0]
        return parts
    body = b"".join(out)
    return [prefix(len(body) + header_bytes, correlation_id) + body]


@cache
def _response_writer(
    api_key: int, version: int
) -> tuple[Callable[[Message, list[Any]], list[int] | None], Callable[[int, int], bytes], int]:
    """What writes the body, what writes size and header, and how many bytes of the header the size counts."""
    codec = response_codec(api_key, version)
    if codec.flexible and api_key != _API_VERSIONS:
        return codec.write, _TAGGED, 5
    return codec.write, _PLAIN, 4


def encode_request(
    api_key: int, version: int, correlation_id: int, client_id: str | None, message: Message
) -> list[Part]:
    """The whole frame: size, header and body."""
    codec = request_codec(api_key, version)
    out: list[Any] = []
    parts, size = _gather(out, codec.write(message, out) or [])
    prefix = _request_prefix(codec, api_key, correlation_id, client_id, size)
    return [prefix + parts[0], *parts[1:]] if parts else [prefix]


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


def _gather(pieces: list[Any], apart: list[int]) -> tuple[list[Part], int]:
    """Join what lies between the pieces that stay apart."""
    parts: list[Part] = []
    size = start = 0
    for at in apart:
        between = b"".join(pieces[start:at])
        piece = pieces[at]
        size += len(between) + (len(piece) if isinstance(piece, _BYTES_LIKE) else piece.size_bytes)
        parts.append(between)
        parts.append(piece)
        start = at + 1
    rest = b"".join(pieces[start:])
    if rest:
        parts.append(rest)
    return parts, size + len(rest)
