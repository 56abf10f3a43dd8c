"""From a frame to its handler: decode the header, pick the version, call, encode.

Malformed input ends the connection it came on and nothing else. So does a version that is not served, as in Apache
Kafka: its request cannot be read, and no answer would be understood. ApiVersions alone is answered, with
UNSUPPORTED_VERSION in a version 0 body, so that the client can choose another.
An exception in a handler answers UNKNOWN_SERVER_ERROR, on every item where the API has no other place for it, and is
reported with its traceback; the broker lives on.

A request that is long is read on a worker's thread, handled a part at a time and answered when all parts are, so that
nobody else waits for it (`tidelog.timer.slices`). Produce is the exception: what is long in it is records, which are
not read here. Requests beyond any that a client sends end their connection.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from struct import Struct
from struct import error as StructError
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final

from tidelog.api.deadlines import in_time
from tidelog.api.parts import Answers, parts_of
from tidelog.api.refusal import ECHOES, refuse
from tidelog.api.relaying import relaying
from tidelog.api.request import Request
from tidelog.api.routes import PEER_ROUTES, ROUTES
from tidelog.net.meter import RequestMeter
from tidelog.wire.apis import ApiKey
from tidelog.wire.codec import BytesLike, request_codec
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.frame import RequestHeader, decode_request_header, encode_response
from tidelog.wire.malformed import WireError

if TYPE_CHECKING:
    from tidelog.api.doors import Doors
    from tidelog.net.exchange import Exchange
    from tidelog.timer.slices import Job
    from tidelog.wire.classes import Message

API_VERSIONS: Final = 18
#: a request from this size on is long
LONG_BYTES: Final = 16 * 1024
#: the few bytes that ask for all settings of a broker are answered with tens of kilobytes
LONG_BYTES_OF: Final[dict[int, int]] = {ApiKey.DESCRIBE_CONFIGS: 256}
#: of any request but Produce: Apache Kafka's clients stay far below a tenth of it; and what must fit into a record
MAX_BYTES: Final = 32 * 1024 * 1024
MAX_BYTES_OF: Final[dict[int, int]] = {ApiKey.JOIN_GROUP: 8 * 1024 * 1024, ApiKey.SYNC_GROUP: 8 * 1024 * 1024}
#: elements of all arrays of one request; a topic counts, and each of its partitions
MAX_ELEMENTS: Final = 100_000
MAX_ELEMENTS_OF: Final[dict[int, int]] = {
    ApiKey.PRODUCE: 20_000,
    ApiKey.FETCH: 30_000,
    ApiKey.DESCRIBE_CONFIGS: 20_000,
    ApiKey.OFFSET_COMMIT: 30_000,
    ApiKey.TXN_OFFSET_COMMIT: 30_000,
    ApiKey.LEAVE_GROUP: 20_000,
    ApiKey.ADD_PARTITIONS_TO_TXN: 20_000,
    ApiKey.ALTER_REPLICA_LOG_DIRS: 20_000,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: 20_000,
    ApiKey.OFFSET_DELETE: 20_000,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: 20_000,
}
#: topics or resources of a request: all are decided in one turn, or answered together at length
MAX_ITEMS_OF: Final[dict[int, int]] = {
    ApiKey.DESCRIBE_CONFIGS: 10_000,
    ApiKey.ALTER_CONFIGS: 10_000,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: 10_000,
    ApiKey.CREATE_TOPICS: 10_000,
    ApiKey.DELETE_TOPICS: 10_000,
    ApiKey.CREATE_PARTITIONS: 10_000,
}

#: of the request's own type, which the route chooses
Handler = Callable[[Any, Request], "Message | None"]
Decode = Callable[[BytesLike, int], tuple[Any, int]]
#: decoder, handler, whether headers have tagged fields, the size up to which a request is short, what counts it
Route = tuple[Decode, Handler, bool, int, RequestMeter]
#: api key, version, correlation id, length of the client id
_START: Final = Struct(">hhih").unpack_from


class Dispatcher:
    """`dispatch` of net: one call a frame."""

    __slots__ = ("_doors", "_routes", "meters")

    def __init__(self, doors: Doors) -> None:
        self._doors = doors
        #: api key << 16 | version -> what answers it; filled on first use
        self._routes: dict[int, Route] = {}
        #: by API key and version, of what was asked so far
        self.meters: dict[tuple[int, int], RequestMeter] = {}

    def __call__(self, exchange: Exchange, frame: memoryview) -> None:
        """A request of a kind that was seen before takes the short way; anything unusual the careful one."""
        try:
            api_key, version, correlation_id, id_length = _START(frame, 0)
            decode, handler, flexible, short_bytes, meter = self._routes[api_key << 16 | version]
            body_at = 10 + id_length
            if id_length < 0 or (flexible and frame[body_at]):
                raise KeyError
            client_id = str(frame[10:body_at], "utf-8")
        except (KeyError, IndexError, StructError, UnicodeDecodeError):
            self._carefully(exchange, frame)
            return
        if flexible:
            body_at += 1
        meter.count = count = meter.count + 1
        if not count & meter.mask:
            exchange.meter, exchange.began_ns = meter, perf_counter_ns()
        request = Request(self._doors, exchange, api_key, version, correlation_id, client_id, meter)
        if len(frame) > short_bytes:
            self._answer_long(request, frame, body_at, handler)
        else:
            self._answer(request, frame, body_at, decode, handler)

    def _carefully(self, exchange: Exchange, frame: memoryview) -> None:
        try:
            header = decode_request_header(frame)
        except WireError as error:
            exchange.hang_up(f"malformed request header: {error}")
            return
        route = self._find_route(exchange, header)
        if route is not None:
            meter = route[4]
            meter.count = count = meter.count + 1
            if not count & meter.mask:
                exchange.meter, exchange.began_ns = meter, perf_counter_ns()
            key, version, correlation_id = header.api_key, header.api_version, header.correlation_id
            request = Request(self._doors, exchange, key, version, correlation_id, header.client_id, meter)
            if len(frame) > route[3]:
                self._answer_long(request, frame, header.body_at, route[1])
            else:
                self._answer(request, frame, header.body_at, route[0], route[1])

    def _answer_long(self, request: Request, frame: memoryview, body_at: int, handler: Handler) -> None:
        key = request.api_key
        most_elements = MAX_ELEMENTS_OF.get(key, MAX_ELEMENTS)
        most_bytes = MAX_BYTES_OF.get(key, MAX_BYTES)
        counted = request_codec(key, request.version).decode_counted

        def decode(buf: BytesLike, at: int) -> tuple[Any, int]:
            return counted(buf, at, most_elements)

        if key == ApiKey.PRODUCE:
            self._answer(request, frame, body_at, decode, handler)
        elif len(frame) > most_bytes:
            request.exchange.hang_up(f"{request} has {len(frame)} bytes, and more than {most_bytes} are not read")
        elif not self._doors.slices.add(self._at_length(request, bytes(frame), body_at, decode, handler), len(frame)):
            request.exchange.hang_up(f"too many long requests wait to be answered before {request}")

    def _at_length(self, request: Request, frame: bytes, body_at: int, decode: Decode, handler: Handler) -> Job:
        exchange = request.exchange
        if exchange.connection.closed:
            return
        try:
            body, parts = yield lambda: _read(request.api_key, decode, frame, body_at)
        except WireError as error:
            exchange.hang_up(f"malformed {request}: {error}")
            return
        asked = request if len(parts) == 1 else Answers(request, len(parts))
        try:
            for at, part in enumerate(parts):
                if at:
                    yield None
                if exchange.connection.closed:
                    return
                message = handler(part, asked)
                if message is not None:
                    asked.reply(message)
        except Exception as error:
            self._failed(request, body, error)

    def _answer(self, request: Request, frame: memoryview, body_at: int, decode: Decode, handler: Handler) -> None:
        try:
            message = handler(decode(frame, body_at)[0], request)
        except WireError as error:
            request.exchange.hang_up(f"malformed {request}: {error}")
            return
        except Exception as error:
            self._failed(request, decode(frame, body_at)[0], error)
            return
        if message is not None:
            request.reply(message)

    def _failed(self, request: Request, body: Message, error: Exception) -> None:
        code, why = ErrorCode.UNKNOWN_SERVER_ERROR, None
        if isinstance(error, KafkaError):
            code, why = error.code, error.message
        else:
            self._doors.host.report(f"{request} failed", error)
        if request.exchange.answered:
            return
        message = refuse(request.api_key, request.version, body, code, why)
        if message is None:
            request.exchange.close()
        else:
            request.reply(message)

    def _find_route(self, exchange: Exchange, header: RequestHeader) -> Route | None:
        key, version = header.api_key, header.api_version
        known = self._routes.get(key << 16 | version)
        if known is not None:
            return known
        served = ROUTES.get(key)
        if not self._doors.controller.is_alone:
            if not self._doors.cluster.driver.is_pictured and key != API_VERSIONS and key not in PEER_ROUTES:
                # The controller has not said yet what there is: clients had better ask another broker.
                exchange.close()
                return None
            served = served or PEER_ROUTES.get(key)
        if served is None:
            exchange.hang_up(f"API key {key} is not served")
            return None
        if not served.min_version <= version <= served.max_version:
            if key == API_VERSIONS:
                message = import_module("tidelog.api.api_versions").served(ErrorCode.UNSUPPORTED_VERSION)
                exchange.reply(encode_response(key, 0, header.correlation_id, message))
            else:
                asked = f"{ApiKey(key).name} v{version} from {header.client_id or ''!r}"
                exchange.hang_up(f"{asked} is not served, versions {served.min_version} to {served.max_version} are")
            return None
        handler: Handler = import_module(f"tidelog.api.{served.module}").handle
        if served.relayed:
            handler = relaying(handler)
        if served.relayed or key == ApiKey.INCREMENTAL_ALTER_CONFIGS:
            handler = in_time(handler)
        codec = request_codec(key, version)
        meter = self.meters[key, version] = RequestMeter()
        if key == ApiKey.FETCH:
            meter.of_followers = RequestMeter()
        route = (codec.decode, handler, codec.flexible, LONG_BYTES_OF.get(key, LONG_BYTES), meter)
        self._routes[key << 16 | version] = route
        return route


def _read(api_key: int, decode: Decode, frame: bytes, body_at: int) -> tuple[Message, list[Message]]:
    """The request, and the parts in which it is handled."""
    body, _ = decode(frame, body_at)
    most = MAX_ITEMS_OF.get(api_key)
    if most is not None:
        count = sum(len(getattr(body, echo.asked) or ()) for echo in ECHOES[api_key])
        if count > most:
            raise WireError(f"it names {count} resources or topics, and more than {most} are not read: ask in parts")
    return body, parts_of(api_key, body)
