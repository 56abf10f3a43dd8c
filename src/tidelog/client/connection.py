"""One blocking connection to one broker: requests out, their responses in, in the same order.

The versions that both sides support are negotiated once, right after connecting; a request then uses the highest one. A
name may resolve to several addresses (`localhost` is often ::1 and 127.0.0.1): each is tried until a Kafka broker
answers.

`send` and `receive` are separate, so that a request can be in flight while the caller works on earlier data, or while
other brokers are asked. Responses arrive in the order of their requests. A response whose reader has gone away is read
and dropped when the next one is needed.

A large response goes into a buffer that is reused once nothing refers to it any more: fresh memory has to be cleared
first, by Python and by the kernel, which costs half of what receiving does. Python itself tracks the references: a
bytearray refuses to change its length while a view of it exists.

A connection that failed is closed and never used again; its owner opens another.
"""

from __future__ import annotations

import socket
import struct
from collections import deque
from typing import Any, Final, Generic, NamedTuple, TypeVar

from tidelog import __version__
from tidelog.client.errors import ClientError, Unreachable
from tidelog.wire import messages
from tidelog.wire.apis import APIS, ApiKey
from tidelog.wire.classes import RequestMessage
from tidelog.wire.codec import response_codec
from tidelog.wire.errors import ErrorCode, untraced
from tidelog.wire.frame import decode_response_header, encode_request
from tidelog.wire.malformed import WireError

SIZE: Final = struct.Struct(">i")
MAX_RESPONSE_BYTES: Final = 1 << 30
NEWEST: Final = 1 << 15
#: responses of such sizes land in buffers that are kept
LEAST_KEPT_BYTES: Final = 64 * 1024
MOST_KEPT_BYTES: Final = 8 * 1024 * 1024
#: one that is looked at while the next response comes, and the one that it comes into
KEPT_BUFFERS: Final = 2
#: what the controller decides and ZooKeeper keeps; while that is away, the answer is late, and not the broker
_CHANGES: Final = {
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.ALTER_CONFIGS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.ELECT_LEADERS,
}
_WAITING_CHANGE: Final = (
    "it may be stopped, overloaded or unreachable, or wait for ZooKeeper; what was asked for may still be done"
)


R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Sent(NamedTuple, Generic[R_co]):
    """A request that was sent and whose response, an `R_co`, is due."""

    api_key: int
    version: int
    correlation_id: int


class Connection:
    __slots__ = (
        "_correlation_id",
        "_due",
        "_kept",
        "_socket",
        "_timeout_s",
        "_versions",
        "address",
        "client_id",
        "closed",
        "features",
    )

    def __init__(
        self, host: str, port: int, client_id: str, timeout_s: float, connect_timeout_s: float | None = None
    ) -> None:
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self.client_id = client_id
        self.closed = True
        self._timeout_s = timeout_s
        self._correlation_id = 0
        self._due: deque[Sent[object]] = deque()
        self._kept: list[bytearray] = []
        self._versions: dict[int, tuple[int, int]] = {}
        #: what the cluster has switched on: name -> level
        self.features: dict[str, int] = {}
        self._socket = self._open(host, port, timeout_s if connect_timeout_s is None else connect_timeout_s)
        self._socket.settimeout(timeout_s)

    # --- opening and closing ------------------------------------------------------------------------

    def _open(self, host: str, port: int, timeout_s: float) -> socket.socket:
        hint = "is it running, and is the address right?"
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise Unreachable(
                f"cannot reach a broker at {self.address}: no such host", hint="check the name of the host"
            ) from error
        failure: ClientError | None = None
        for family, kind, protocol, _, address in found:
            self._socket = socket.socket(family, kind, protocol)
            self._socket.settimeout(timeout_s)
            self.closed = False
            try:
                self._socket.connect(address)
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._negotiate()
                return self._socket
            except OSError as error:
                reason = "no response in time" if isinstance(error, TimeoutError) else _reason(error)
                # A broker that answered wrongly says more than an address where nothing listens.
                failure = failure or Unreachable(f"cannot reach a broker at {self.address}: {reason}", hint=hint)
            except ClientError as error:
                if failure is None or not isinstance(error, Unreachable):
                    failure = untraced(error)
            except BaseException:
                self.close()
                raise
            self.close()
        assert failure is not None
        try:
            raise failure
        finally:
            del failure  # or it would hold this frame, and this frame it

    def close(self) -> None:
        self.closed = True
        self._due.clear()
        self._kept.clear()
        self._socket.close()

    def _negotiate(self) -> None:
        asked = messages.ApiVersionsRequest(client_software_name="tidelog", client_software_version=__version__)
        version = APIS[ApiKey.API_VERSIONS].max_version
        answer = self.receive(self._send(ApiKey.API_VERSIONS, version, asked))
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            answer = self.receive(self._send(ApiKey.API_VERSIONS, 0, messages.ApiVersionsRequest()))
        if answer.error_code:
            raise self._not_kafka(f"it answers the ApiVersions request with error {answer.error_code}")
        self._versions = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
        self.features = {feature.name: feature.max_version_level for feature in answer.finalized_features}

    def _not_kafka(self, why: str) -> ClientError:
        self.close()
        return ClientError(f"{self.address} does not behave like a Kafka broker: {why}", hint="check host and port")

    # --- versions -----------------------------------------------------------------------------------

    @property
    def versions(self) -> dict[int, tuple[int, int]]:
        """API key -> the oldest and newest version that the broker serves."""
        return self._versions

    def version_of(self, api_key: int, at_most: int = NEWEST) -> int:
        """The highest version that both sides speak."""
        name = APIS[api_key].name
        if api_key not in self._versions:
            raise ClientError(
                f"the broker at {self.address} does not support {name}",
                ErrorCode.UNSUPPORTED_VERSION,
                "a newer broker may support it",
            )
        low, high = self._versions[api_key]
        ours = APIS[api_key]
        version = min(high, ours.max_version, at_most)
        if version < max(low, ours.min_version):
            raise ClientError(
                f"the broker at {self.address} supports {name} in versions {low} to {high}, "
                f"of which none is known here ({ours.min_version} to {min(ours.max_version, at_most)})",
                ErrorCode.UNSUPPORTED_VERSION,
            )
        return version

    # --- asking -------------------------------------------------------------------------------------

    def call(self, api_key: int, message: RequestMessage[R], at_most: int = NEWEST) -> R:
        """Sends a request and waits for its response. `records` in the response are views of its buffer."""
        return self.receive(self.send(api_key, message, at_most))

    def send(self, api_key: int, message: RequestMessage[R], at_most: int = NEWEST) -> Sent[R]:
        """Sends a request; `receive` gives its response."""
        return self._send(api_key, self.version_of(api_key, at_most), message)

    def send_only(self, api_key: int, message: RequestMessage[object], at_most: int = NEWEST) -> None:
        """Sends a request that is never answered: Produce with acks=0."""
        self._send(api_key, self.version_of(api_key, at_most), message)
        if not self.closed:
            self._due.pop()

    def _send(self, api_key: int, version: int, message: RequestMessage[R]) -> Sent[R]:
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        parts = encode_request(api_key, version, self._correlation_id, self.client_id, message)
        try:
            for part in parts:
                self._socket.sendall(part)
        except OSError as error:
            raise self._broken(error) from error
        sent: Sent[R] = Sent(api_key, version, self._correlation_id)
        self._due.append(sent)
        return sent

    def receive(self, sent: Sent[R]) -> R:
        """The response to `sent`; those to earlier requests that nobody came for are dropped."""
        if sent not in self._due:
            raise Unreachable(f"the connection to {self.address} was closed before the response arrived")
        while True:
            try:
                answer = self._receive()
            except OSError as error:
                raise self._broken(error) from error
            due = self._due.popleft()
            decoded: R = self._decode(due, answer, wanted=due == sent)
            if due == sent:
                return decoded

    def _broken(self, error: OSError) -> Unreachable:
        is_change = bool(self._due) and self._due[0].api_key in _CHANGES
        self.close()
        if isinstance(error, TimeoutError):
            return Unreachable(
                f"the broker at {self.address} did not answer within {self._timeout_s:g} s",
                hint=_WAITING_CHANGE if is_change else "it may be stopped, overloaded or unreachable",
            )
        return Unreachable(f"the connection to {self.address} broke: {_reason(error)}", hint="is the broker running?")

    def _decode(self, due: Sent[object], answer: memoryview, wanted: bool) -> Any:
        version = due.version
        # A broker that does not know our ApiVersions answers in version 0, which begins alike in every version.
        if due.api_key == ApiKey.API_VERSIONS and _error_at(answer) == ErrorCode.UNSUPPORTED_VERSION:
            version = 0
        try:
            correlation_id, body_at = decode_response_header(due.api_key, version, answer)
            if correlation_id != due.correlation_id:
                raise self._not_kafka(f"it answered request {correlation_id} instead of {due.correlation_id}")
            return response_codec(due.api_key, version).decode(answer, body_at)[0] if wanted else None
        except WireError as error:
            raise self._not_kafka(f"its answer cannot be read ({error})") from error

    def _receive(self) -> memoryview:
        size = SIZE.unpack(self._receive_exactly(4))[0]
        if not 4 <= size <= MAX_RESPONSE_BYTES:
            raise self._not_kafka(f"it sent a frame of {size} bytes")
        return self._receive_exactly(size)

    def _room(self, size: int) -> memoryview:
        """Memory for a response that nobody else looks at."""
        if not LEAST_KEPT_BYTES <= size <= MOST_KEPT_BYTES:
            return memoryview(bytearray(size))
        for number, buffer in enumerate(self._kept):
            try:
                buffer.append(0)  # one byte longer does no harm, and is refused where somebody looks
            except BufferError:
                continue
            if len(buffer) < size:
                self._kept[number] = buffer = bytearray(size)
            return memoryview(buffer)[:size]
        fresh = bytearray(size)
        if len(self._kept) < KEPT_BUFFERS:
            self._kept.append(fresh)
        return memoryview(fresh)

    def _receive_exactly(self, size: int) -> memoryview:
        view = self._room(size)
        at = 0
        while at < size:
            got = self._socket.recv_into(view[at:])
            if got == 0:
                raise ConnectionResetError("closed by the broker")
            at += got
        return view


def _error_at(answer: memoryview) -> int:
    return int.from_bytes(answer[4:6], "big", signed=True) if len(answer) >= 6 else 0


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
