"""A network in memory: the channels of a requester, and the connections that they reach, with faults at will.

    network = MemoryNetwork(clock, timer, Random(7))
    network.listen(("b2", 9092), dispatcher, host)                        # broker 2 serves
    requester = PeerRequester(1, host, network.dialler("b1"), Random(1))  # and broker 1 asks

A request enters as one on a socket does: as an `Exchange` and a frame that `dispatch` is called with, the next one not
before the first is answered or allows it. The answer comes back as bytes. Everything travels by the network's timer,
so that one seed gives one order of events, in any process.

Each direction of a connection keeps its order, as TCP does; between connections nothing is promised. So a message that
is lost is not gone: it arrives later, as TCP sends it again, and what follows it on its connection waits for it. What
`cut` holds back arrives when `mend` is called, if its connection still exists by then. A connection that breaks
drops what is under way.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, Final, Protocol, TypeAlias, cast

from tidelog.clock import Clock
from tidelog.net.channel import ChannelEvents
from tidelog.net.exchange import Exchange
from tidelog.net.inbox import SIZE_BYTES
from tidelog.net.outbox import Part, release
from tidelog.net.server import Dispatch
from tidelog.peers.requester import FailureKind, LinkOptions, PeerAddress
from tidelog.timer.host import Host
from tidelog.timer.wheel import Timer

#: port of the asking side, which nobody listens on
_EPHEMERAL_PORT: Final = 40_000
_BYTES: Final = (bytes, bytearray, memoryview)

Callback: TypeAlias = Callable[[], object]


class ReadableSlice(Protocol):
    @property
    def size_bytes(self) -> int: ...

    def read(self) -> bytes: ...


@dataclass(slots=True)
class Weather:
    """What happens to messages: how long they take, how many are lost and sent again, how many break the connection."""

    shortest_ms: int = 0
    longest_ms: int = 0
    lost_share: float = 0.0
    resend_ms: int = 200
    breaking_share: float = 0.0


class Listening:
    """Who serves at an address: its dispatch, and the broker's environment."""

    __slots__ = ("dispatch", "host", "listener_name")

    def __init__(self, dispatch: Dispatch, host: Host, listener_name: str) -> None:
        self.dispatch = dispatch
        self.host = host
        self.listener_name = listener_name


class MemoryNetwork:
    """Machines have names, which are the hosts of their addresses. `injected` counts the faults that happened."""

    def __init__(self, clock: Clock, timer: Timer, random: Random, weather: Weather | None = None) -> None:
        self.weather = weather or Weather()
        self.injected: Counter[str] = Counter()
        #: machines that something has reached; whoever looks at it clears it
        self.reached: set[str] = set()
        self._clock = clock
        #: (due_ms, callback)
        self.later = timer.add
        self._random = random
        self._listening: dict[tuple[str, int], Listening] = {}
        self._channels: dict[MemoryChannel, None] = {}  # those that live, in the order in which they were made
        self._cuts: dict[tuple[str, str], None] = {}
        self._paused: dict[str, None] = {}
        self._ports = _EPHEMERAL_PORT

    def listen(
        self, address: tuple[str, int], dispatch: Dispatch, host: Host, listener_name: str = "PLAINTEXT"
    ) -> None:
        self._listening[address] = Listening(dispatch, host, listener_name)

    def dialler(self, machine: str) -> MemoryDialler:
        """For the requester of the broker that runs there."""
        return MemoryDialler(self, machine)

    def stop(self, machine: str) -> None:
        """The process there is dead: its machine refuses connections, and those that it had are reset."""
        self._listening = {at: serving for at, serving in self._listening.items() if at[0] != machine}
        self._paused.pop(machine, None)
        for channel in list(self._channels):
            if machine in channel.machines:
                channel.reset(by=machine)

    def cut(self, source: str, target: str) -> None:
        """Nothing that `source` sends reaches `target`, until `mend`; the other direction is not affected."""
        self.injected["cut"] += 1
        self._cuts[source, target] = None

    def mend(self, source: str, target: str) -> None:
        self._cuts.pop((source, target), None)
        for channel in list(self._channels):
            for direction in (channel.there, channel.back):
                if (direction.source, direction.target) == (source, target):
                    self.soon(direction.arrive_held)

    def pause(self, machine: str) -> None:
        """The process there stands still: what reaches its machine waits there, until `resume`."""
        self._paused[machine] = None

    def resume(self, machine: str) -> None:
        self._paused.pop(machine, None)
        for channel in list(self._channels):
            for direction in (channel.there, channel.back):
                if direction.target == machine:
                    self.soon(direction.arrive_held)

    def break_connections(self, one: str, other: str) -> None:
        """Every connection between the two is lost, for both of them; what was under way is not delivered."""
        for channel in list(self._channels):
            if channel.machines == {one, other}:
                self.injected["broken connection"] += 1
                channel.reset()

    # -- for what travels ---------------------------------------------------------------------------------------

    def is_cut(self, source: str, target: str) -> bool:
        return target in self._paused or (source, target) in self._cuts

    def at(self, address: tuple[str, int]) -> Listening | None:
        return self._listening.get(address)

    def soon(self, callback: Callback) -> None:
        self.later(self._clock.monotonic_ms(), callback)

    def arrival_ms(self) -> int:
        """When something arrives that leaves now."""
        weather, random = self.weather, self._random
        arrives_ms = self._clock.monotonic_ms() + weather.shortest_ms
        # What `randint` draws, which takes three calls more for it: nothing happens as often as this.
        delays = weather.longest_ms - weather.shortest_ms + 1
        bits = delays.bit_length()
        while (delay_ms := random.getrandbits(bits)) >= delays:
            pass
        if weather.lost_share and random.random() < weather.lost_share:
            self.injected["lost message"] += 1
            delay_ms += weather.resend_ms
        return arrives_ms + delay_ms

    def breaks(self) -> bool:
        share = self.weather.breaking_share
        if share and self._random.random() < share:
            self.injected["broken connection"] += 1
            return True
        return False

    def opened(self, channel: MemoryChannel) -> int:
        """Gives the port of its near end."""
        self._channels[channel] = None
        self._ports += 1
        return self._ports

    def forget(self, channel: MemoryChannel) -> None:
        self._channels.pop(channel, None)


class Direction:
    """One direction of a connection: what is put in comes out in the same order."""

    __slots__ = ("_drops", "_held", "_last_ms", "_network", "source", "target")

    def __init__(self, network: MemoryNetwork, source: str, target: str) -> None:
        self.source = source
        self.target = target
        self._network = network
        self._last_ms = 0
        self._held: deque[Callback] = deque()
        self._drops = 0

    def carry(self, arrival: Callback) -> None:
        network = self._network
        arrives_ms = network.arrival_ms()
        if arrives_ms > self._last_ms:
            self._last_ms = arrives_ms
        network.later(self._last_ms, partial(self._arrive, self._drops, arrival))

    def drop(self) -> None:
        """What is under way never arrives."""
        self._drops += 1
        self._held.clear()

    def _arrive(self, drops: int, arrival: Callback) -> None:
        if drops != self._drops:
            return
        network = self._network
        if self._held or network.is_cut(self.source, self.target):
            self._held.append(arrival)
            self.arrive_held()
        else:
            network.reached.add(self.target)
            arrival()

    def arrive_held(self) -> None:
        network = self._network
        while self._held and not network.is_cut(self.source, self.target):
            network.reached.add(self.target)
            self._held.popleft()()


class MemoryDialler:
    __slots__ = ("_machine", "_network")

    def __init__(self, network: MemoryNetwork, machine: str) -> None:
        self._network = network
        self._machine = machine

    def dial(self, peer: PeerAddress, options: LinkOptions, events: ChannelEvents) -> MemoryChannel:
        return MemoryChannel(self._network, self._machine, peer, options, events)


class MemoryChannel:
    """The near end of a connection."""

    __slots__ = (
        "_closed",
        "_events",
        "_most_bytes",
        "_network",
        "_peer",
        "_port",
        "back",
        "far_end",
        "machines",
        "received_bytes",
        "taken_bytes",
        "there",
    )

    def __init__(
        self, network: MemoryNetwork, machine: str, peer: PeerAddress, options: LinkOptions, events: ChannelEvents
    ) -> None:
        self._network = network
        self._peer = peer
        self._events = events
        self._most_bytes = options.max_answer_bytes
        self._closed = False
        self.machines = {machine, peer.host}
        self.there = Direction(network, machine, peer.host)
        self.back = Direction(network, peer.host, machine)
        self.far_end: MemoryConnection | None = None
        self.taken_bytes = 0
        self.received_bytes = 0
        self._port = network.opened(self)
        self.there.carry(self._knock)

    @property
    def sent_bytes(self) -> int:
        """All of it: what the system has taken may arrive, whatever becomes of this end."""
        return self.taken_bytes

    def send(self, parts: Iterable[Part]) -> None:
        frame = _joined(parts)
        self.taken_bytes += len(frame)
        if self._network.breaks():
            self.reset()
        else:
            self.there.carry(partial(self._deliver, frame))

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self.there.carry(self._end_far)

    def reset(self, by: str | None = None) -> None:
        """The connection is lost. Both ends learn of it, except one on the machine `by`, which died."""
        if self.far_end is None and by != self.there.source:
            return  # not there yet: it will find out who listens
        self.there.drop()
        self.back.drop()
        if by is not None and by == self.there.source:
            self._closed = True  # nobody is there to be told
        self.back.carry(
            partial(self._lose, FailureKind.DISCONNECTED, f"the connection to {self._peer} was lost: reset")
        )
        if by is not None and by == self.there.target and self.far_end is not None:
            self.far_end.die()
        self.there.carry(self._end_far)

    # -- what arrives at the far end ----------------------------------------------------------------------------

    def _knock(self) -> None:
        if self._closed:
            self._network.forget(self)
            return
        served_by = self._network.at((self._peer.host, self._peer.port))
        if served_by is None:
            why = f"cannot connect to {self._peer}: connection refused"
            self.back.carry(partial(self._lose, FailureKind.REFUSED, why))
            return
        self.far_end = MemoryConnection(self, served_by, (self.there.source, self._port))
        self.back.carry(self._open)

    def _deliver(self, frame: bytes) -> None:
        if self.far_end is not None:
            self.far_end.receive(bytearray(frame))

    def _end_far(self) -> None:
        if self.far_end is not None:
            self.far_end.end()
        self._network.forget(self)

    # -- what arrives here --------------------------------------------------------------------------------------

    def answer(self, frame: bytes) -> None:
        if self._network.breaks():
            self.reset()
        else:
            self.back.carry(partial(self._receive, frame))

    def hang_up(self) -> None:
        self.back.carry(
            partial(
                self._lose, FailureKind.DISCONNECTED, f"the connection to {self._peer} was lost: the peer has closed it"
            )
        )

    def _open(self) -> None:
        if not self._closed:
            self._events.on_open()

    def _receive(self, frame: bytes) -> None:
        if self._closed:
            return
        self.received_bytes += len(frame)
        if len(frame) - SIZE_BYTES > self._most_bytes:
            size, most = len(frame) - SIZE_BYTES, self._most_bytes
            why = f"{self._peer} announced an answer of {size} bytes, where {most} are allowed"
            self._lose(FailureKind.MALFORMED, why)
        else:
            self._events.on_frame(memoryview(frame)[SIZE_BYTES:])

    def _lose(self, kind: FailureKind, why: str) -> None:
        if not self._closed:
            self.close()
            self._events.on_closed(kind, why)


class MemoryConnection:
    """The far end: the connection that the serving broker sees, the `Inbound` of its requests."""

    __slots__ = (
        "_at",
        "_channel",
        "_dispatching",
        "_inbox",
        "_pending",
        "_serial",
        "closed",
        "context",
        "listener_name",
        "local_host",
        "peer",
    )

    def __init__(self, channel: MemoryChannel, at: Listening, peer: tuple[str, int]) -> None:
        self.peer = peer
        self.listener_name = at.listener_name
        self.local_host = channel.there.target
        self.context: Any = None
        self.closed = False
        self._at = at
        self._channel = channel
        self._inbox: deque[bytearray] = deque()
        self._pending: deque[Exchange] = deque()  # in the order of the requests; the first is unanswered
        self._serial: Exchange | None = None  # the newest request, while it keeps the next one waiting
        self._dispatching = False

    def __repr__(self) -> str:
        return f"<connection from {self.peer[0]}:{self.peer[1]} on {self.listener_name}>"

    def remark(self, kind: str, why: str) -> None:
        self._at.host.notice(f"closing {self!r}: {why}")

    def receive(self, frame: bytearray) -> None:
        if not self.closed:
            self._inbox.append(frame)
            self._dispatch()

    def end(self) -> None:
        """The peer is gone, or this end hangs up: whoever works on a request is told."""
        if self.closed:
            return
        self.closed = True
        self._inbox.clear()
        pending, self._pending = self._pending, deque()
        for exchange in pending:
            if exchange._answer is not None:
                _drop(exchange._answer)
            elif exchange.on_abandoned is not None:
                exchange.on_abandoned()

    def die(self) -> None:
        """The process that serves it is dead: nobody is told."""
        self.closed = True
        self._inbox.clear()
        self._pending.clear()

    def _dispatch(self) -> None:
        if self._dispatching:
            return  # an answer was given from within `dispatch`, and the loop below goes on
        self._dispatching = True
        try:
            while self._inbox and self._serial is None and not self.closed:
                exchange = self._serial = Exchange(self, self._at.host.clock.monotonic_ms())
                self._pending.append(exchange)
                try:
                    self._at.dispatch(exchange, memoryview(self._inbox.popleft())[SIZE_BYTES:])
                except Exception as error:
                    self._at.host.report(f"a request of {self!r} failed", error)
                    self._hang_up()
        finally:
            self._dispatching = False

    def _on_answer(self, exchange: Exchange) -> None:
        if self.closed:
            _drop(exchange._answer or ())
            return
        if self._serial is exchange:
            self._serial = None
        while self._pending and (answer := self._pending[0]._answer) is not None:
            closes = self._pending.popleft()._closes
            if answer:
                try:
                    frame = _joined(answer)
                except OSError as error:
                    # What a file cannot give is missing in the middle of the answer.
                    self.remark("read", f"an answer cannot be read: {error}")
                    self._hang_up()
                    return
                self._channel.answer(frame)
            if closes:
                self._hang_up()
                return
        self._dispatch()

    def _on_allow_next(self, exchange: Exchange) -> None:
        if self._serial is exchange:
            self._serial = None
            self._dispatch()

    def _hang_up(self) -> None:
        self.end()
        self._channel.hang_up()


def _joined(parts: Iterable[Part]) -> bytes:
    pieces = []
    for part in parts:
        if isinstance(part, _BYTES):
            pieces.append(part)
        else:
            pieces.append(cast(ReadableSlice, part).read())
            release(part)
    return b"".join(pieces)


def _drop(parts: Iterable[Part]) -> None:
    for part in parts:
        release(part)
