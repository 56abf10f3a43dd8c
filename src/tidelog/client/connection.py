"""One blocking connection to one broker: a request out, its response in.

The versions that both sides speak are found once, right after connecting; `call` then uses the highest one. A
connection that failed is closed and never used again: whoever holds it opens another.
"""

from __future__ import annotations

import socket
import struct
from typing import Any, Final

from tidelog.client.errors import ClientError, Unreachable
from tidelog.wire import messages
from tidelog.wire.apis import APIS, ApiKey
from tidelog.wire.codec import response_codec
from tidelog.wire.errors import ErrorCode
from tidelog.wire.frame import decode_response_header, encode_request

SIZE: Final = struct.Struct(">i")
MAX_RESPONSE_BYTES: Final = 1 << 30


class Connection:
    __slots__ = ("_correlation_id", "_socket", "_versions", "address", "client_id")

    def __init__(self, host: str, port: int, client_id: str, timeout_s: float) -> None:
        self.address = f"{host}:{port}"
        self.client_id = client_id
        self._correlation_id = 0
        try:
            self._socket = socket.create_connection((host, port), timeout=timeout_s)
        except OSError as error:
            raise Unreachable(f"cannot reach a broker at {self.address}: {error}. Is it running?") from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._versions: dict[int, tuple[int, int]] = {}
        try:
            self._negotiate()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._socket.close()

    def _negotiate(self) -> None:
        asked = messages.ApiVersionsRequest(client_software_name="tidelog", client_software_version="0.1.0")
        version = APIS[ApiKey.API_VERSIONS].max_version
        answer = self._exchange(ApiKey.API_VERSIONS, version, asked)
        if answer is not None and answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            answer = self._exchange(ApiKey.API_VERSIONS, 0, messages.ApiVersionsRequest())
        if answer is None or answer.error_code:
            raise ClientError(f"{self.address} does not tell its API versions: is it a Kafka broker?")
        self._versions = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}

    def version_of(self, api_key: int, at_most: int = 2**15) -> int:
        """The highest version that both sides speak."""
        if api_key not in self._versions:
            raise ClientError(f"{self.address} does not serve {ApiKey(api_key).name}", ErrorCode.UNSUPPORTED_VERSION)
        low, high = self._versions[api_key]
        ours = APIS[api_key]
        version = min(high, ours.max_version, at_most)
        if version < max(low, ours.min_version):
            raise ClientError(
                f"{self.address} serves {ApiKey(api_key).name} {low}-{high}, and no version of it is known here",
                ErrorCode.UNSUPPORTED_VERSION,
            )
        return version

    def call(self, api_key: int, message: Any, at_most: int = 2**15, expect_answer: bool = True) -> Any:
        """Sends a request and waits for its response. `records` in the response are views of its buffer."""
        return self._exchange(api_key, self.version_of(api_key, at_most), message, expect_answer)

    def _exchange(self, api_key: int, version: int, message: Any, expect_answer: bool = True) -> Any:
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        parts = encode_request(api_key, version, self._correlation_id, self.client_id, message)
        try:
            for part in parts:
                self._socket.sendall(part)
            if not expect_answer:
                return None
            answer = self._receive()
        except OSError as error:
            self.close()
            raise Unreachable(f"the connection to {self.address} broke: {error or 'no answer in time'}") from error
        # A broker that does not know our ApiVersions answers in version 0, which begins alike in every version.
        if api_key == ApiKey.API_VERSIONS and _error_at(answer) == ErrorCode.UNSUPPORTED_VERSION:
            version = 0
        correlation_id, body_at = decode_response_header(api_key, version, answer)
        if correlation_id != self._correlation_id:
            self.close()
            raise ClientError(f"{self.address} answered request {correlation_id}, not {self._correlation_id}")
        decoded, _ = response_codec(api_key, version).decode(answer, body_at)
        return decoded

    def _receive(self) -> memoryview:
        size = SIZE.unpack(self._receive_exactly(4))[0]
        if not 4 <= size <= MAX_RESPONSE_BYTES:
            self.close()
            raise ClientError(f"{self.address} sent a frame of {size} bytes: is it a Kafka broker?")
        return self._receive_exactly(size)

    def _receive_exactly(self, size: int) -> memoryview:
        view = memoryview(bytearray(size))
        at = 0
        while at < size:
            got = self._socket.recv_into(view[at:])
            if got == 0:
                raise ConnectionResetError("closed by the broker")
            at += got
        return view


def _error_at(answer: memoryview) -> int:
    return int.from_bytes(answer[4:6], "big", signed=True) if len(answer) >= 6 else 0
