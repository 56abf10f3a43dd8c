"""What a handler knows of the request that it answers, and how it answers.

A handler returns the response message, or None when the answer comes later (`Request.reply`) or not at all
(`Request.no_reply`). It must not keep a view into the request's frame past its return: net reuses the buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final, ParamSpec

from tidelog.wire.apis import ApiKey
from tidelog.wire.frame import Part, encode_response

if TYPE_CHECKING:
    from tidelog.api.doors import Doors
    from tidelog.net.exchange import Exchange
    from tidelog.net.meter import RequestMeter
    from tidelog.timer.slices import Job
    from tidelog.wire.classes import Message

FEW_ITEMS: Final = 200

P = ParamSpec("P")


class Request:
    __slots__ = ("api_key", "client_id", "correlation_id", "doors", "exchange", "is_withdrawn", "meter", "version")

    def __init__(
        self,
        doors: Doors,
        exchange: Exchange,
        api_key: int,
        version: int,
        correlation_id: int,
        client_id: str | None,
        meter: RequestMeter,
    ) -> None:
        self.doors = doors
        self.exchange = exchange
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id or ""
        self.meter = meter
        #: nobody waits for it any more
        self.is_withdrawn = False

    def __str__(self) -> str:
        return f"{ApiKey(self.api_key).name} v{self.version} from {self.client_id!r}"

    def shared(self) -> dict[Hashable, Any]:
        """What the parts of a long request may tell each other; a short one has no other parts."""
        return {}

    @property
    def is_part(self) -> bool:
        """Of a long request that is answered as a whole."""
        return False

    def is_wanted(self) -> bool:
        """Not answered yet: its time may have been over before it was decided (`deadlines`)."""
        return not self.exchange.answered and not self.is_withdrawn

    def guard(self, answer: Callable[P, None]) -> Callable[P, None]:
        """`answer`, to be called later: where it fails the client is not left waiting for a reply that never comes."""

        def guarded(*results: P.args, **named: P.kwargs) -> None:
            if not self.is_wanted():
                return
            try:
                answer(*results, **named)
            except Exception as error:
                self.doors.host.report(f"{self} failed", error)
                if not self.exchange.answered:
                    self.exchange.close()

        return guarded

    def reply(self, message: Message) -> None:
        self.exchange.reply(self.encode(message))

    def reply_with_many(self, message: Message, items: int) -> None:
        """As `reply`; where there are many items the answer is written beside the loop."""
        if items <= FEW_ITEMS:
            self.reply(message)
        else:
            self.doors.slices.add(self._write_and_send(message))

    def _write_and_send(self, message: Message) -> Job:
        if self.exchange.connection.closed:
            return
        parts = yield lambda: self.encode(message)
        if not self.exchange.answered:
            self.exchange.reply(parts)

    def comes_from_follower(self) -> None:
        """It is counted apart from what clients ask."""
        own = self.meter.of_followers
        if own is not None:
            self.meter.count -= 1
            own.count += 1
            self.meter = own
            self.exchange.meter = None if own.count & own.mask else own
            self.exchange.began_ns = perf_counter_ns()

    def encode(self, message: Message) -> list[Part]:
        code = getattr(message, "error_code", 0)
        if code:
            self.meter.failed(code)
        return encode_response(self.api_key, self.version, self.correlation_id, message)

    def no_reply(self) -> None:
        self.exchange.no_reply()
