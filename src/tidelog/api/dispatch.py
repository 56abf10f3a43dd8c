"""From a frame to its handler: decode the header, pick the version, call, encode.

Malformed input ends the connection it came on and nothing else. A version that is not served is answered with
UNSUPPORTED_VERSION and the connection is kept: ApiVersions in a version 0 body, others in the nearest version.
An exception in a handler answers UNKNOWN_SERVER_ERROR and is reported with its traceback; the broker lives on.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from tidelog.api.request import Request
from tidelog.api.table import ROUTES
from tidelog.wire.apis import ApiKey
from tidelog.wire.codec import request_codec, response_codec
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.frame import decode_request_header, encode_response
from tidelog.wire.malformed import WireError

if TYPE_CHECKING:
    from tidelog.broker import Broker
    from tidelog.net.exchange import Exchange

API_VERSIONS: Final = 18

Handler = Callable[[Any, Request], Any]
Decode = Callable[[Any, int], tuple[Any, int]]


class Dispatcher:
    """`dispatch` of net: one call a frame."""

    __slots__ = ("_broker", "_routes")

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        #: (api key, version) -> what answers it; filled on first use
        self._routes: dict[tuple[int, int], tuple[Decode, Handler]] = {}

    def __call__(self, exchange: Exchange, frame: memoryview) -> None:
        try:
            header = decode_request_header(frame)
        except WireError as error:
            self._hang_up(exchange, f"malformed request header: {error}")
            return
        api_key = header.api_key
        version = header.api_version
        route = self._routes.get((api_key, version))
        if route is None:
            route = self._find_route(exchange, header)
            if route is None:
                return
        decode, handler = route
        try:
            body, _ = decode(frame, header.body_at)
        except WireError as error:
            self._hang_up(exchange, f"malformed {ApiKey(api_key).name} v{version} request: {error}")
            return
        request = Request(self._broker, exchange, api_key, version, header.correlation_id, header.client_id)
        try:
            message = handler(body, request)
        except KafkaError as error:
            message = failure(api_key, error.code, error.message)
        except Exception as error:
            self._broker.report(f"{ApiKey(api_key).name} v{version} from {request.client_id!r} failed", error)
            message = failure(api_key, ErrorCode.UNKNOWN_SERVER_ERROR, None)
        if message is not None:
            exchange.reply(encode_response(api_key, version, header.correlation_id, message))

    def _hang_up(self, exchange: Exchange, why: str) -> None:
        self._broker.notice(f"closing {exchange.connection!r}: {why}")
        exchange.close()

    def _find_route(self, exchange: Exchange, header: Any) -> tuple[Decode, Handler] | None:
        key, version = header.api_key, header.api_version
        served = ROUTES.get(key)
        if served is None:
            self._hang_up(exchange, f"API key {key} is not served")
            return None
        if not served.min_version <= version <= served.max_version:
            if key == API_VERSIONS:
                answer_version = 0
                message = import_module("tidelog.api.api_versions").served(ErrorCode.UNSUPPORTED_VERSION)
            else:
                answer_version = max(served.min_version, min(version, served.max_version))
                message = failure(key, ErrorCode.UNSUPPORTED_VERSION, None)
            exchange.reply(encode_response(key, answer_version, header.correlation_id, message))
            return None
        handler: Handler = import_module(f"tidelog.api.{served.module}").handle
        route = (request_codec(key, version).decode, handler)
        self._routes[key, version] = route
        return route


def failure(api_key: int, code: int, message: str | None) -> Any:
    """A response that carries nothing but an error, where the API has a place for one at its top."""
    response = response_codec(api_key, ROUTES[api_key].max_version).message_class()
    if hasattr(response, "error_code"):
        response.error_code = code
    if hasattr(response, "error_message"):
        response.error_message = message
    return response
