"""The controller's voice: what changes in its image is told to every other broker, in order, until it is acknowledged.

A broker that registers is told the whole picture first, in parts of bounded size, and then every difference. There is a
queue for each broker and one message at a time is on its way, so that nobody waits for a slow broker. One that cannot
be reached has its message repeated; one that has fallen far behind, or missed something, is told the whole picture
again. The other side is `tidelog.node.hearing`.

A request is answered when the brokers that can be reached know what it changed, or after `PATIENCE_MS`: a topic whose
creation was answered is known to whichever broker the client asks next.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from tidelog.control.image import NodeChange
from tidelog.control.model import Broker
from tidelog.control.picture import changes_of_image, in_pieces
from tidelog.node.cluster_view import ClusterView
from tidelog.peers.requester import Answered, Failure, FailureKind, Link, PeerAddress, Requester
from tidelog.timer.host import Host
from tidelog.wire import messages
from tidelog.wire.apis import ApiKey
from tidelog.wire.errors import ErrorCode

PURPOSE: Final = "voice"
#: how long a request waits until the other brokers know what it changed
PATIENCE_MS: Final = 500
#: a dead process refuses connections; one that is being replaced may refuse one
REFUSALS: Final = 2
#: so often a process may not know the registration that it is told about: it has just made it, or never did
STALE_ANSWERS: Final = 5
#: between two attempts to tell the same
RETRY_MS: Final = 100
PART_BYTES: Final = 512 * 1024
#: changes that are told in one message
MOST_CHANGES: Final = 2_000
#: changes that wait for one broker; beyond, the whole picture is shorter
FAR_BEHIND: Final = 50_000


class Utterance(NamedTuple):
    """Something to tell one broker. `parts` 0: a difference. `ordinal` counts what was ever put into its queue."""

    ordinal: int
    changes: Sequence[NodeChange]
    part: int = 0
    parts: int = 0


class ToldBroker:
    """A broker that is told; it lives as long as the registration that it was made for."""

    def __init__(self, voice: Voice, broker: Broker, address: PeerAddress, link: Link, epoch: int) -> None:
        self.broker_id = broker.broker_id
        self.broker_epoch = broker.epoch
        self.address = address
        #: whether it answered the last time
        self.is_reachable = True
        self._voice = voice
        self._link = link
        self._controller_epoch = epoch
        self._queue: deque[Utterance] = deque()
        self._queued_changes = 0
        #: of the message that is on its way, or was the last one
        self._sequence = -1
        #: what is being told until it is acknowledged; None after a fresh start
        self._current: Utterance | None = None
        self._is_sending = False
        self._is_closed = False
        #: how often its machine has refused a connection since it last answered
        self._refusals = 0
        #: how often in a row it did not know its registration
        self._stale_answers = 0
        self._ordinal = 0
        self._told = 0
        #: ordinal -> who waits until everything up to it is told
        self._waiting: list[tuple[int, Callable[[], None]]] = []
        self.start_anew()

    def move_to(self, address: PeerAddress, link: Link) -> None:
        """The broker is told at another address from now on; what was sent to the old one is repeated."""
        old, self._link, self.address = self._link, link, address
        old.close()

    # --- what to tell -------------------------------------------------------------------------------

    def start_anew(self) -> None:
        self._draw_whole()
        self._speak()

    def _draw_whole(self) -> None:
        """The whole picture is told next; what waits is in it."""
        self._queue.clear()
        self._queued_changes = 0
        self._current = None
        pieces = self._voice.picture()
        for part, changes in enumerate(pieces):
            self._ordinal += 1
            self._queue.append(Utterance(self._ordinal, changes, part, len(pieces)))

    def tell(self, changes: Sequence[NodeChange]) -> None:
        if self._queued_changes > FAR_BEHIND:
            self.start_anew()
            return
        self._ordinal += 1
        self._queue.append(Utterance(self._ordinal, changes))
        self._queued_changes += len(changes)
        self._speak()

    def beat(self) -> None:
        """Says something, where there is nothing to say: who does not answer may be dead."""
        if self._told >= self._ordinal:
            self.tell(())

    def when_told(self, then: Callable[[], None]) -> None:
        """Calls `then` when everything that there is to tell now is acknowledged."""
        if self._told >= self._ordinal or self._is_closed:
            then()
        else:
            self._waiting.append((self._ordinal, then))

    def close(self) -> None:
        self._is_closed = True
        self._link.close()
        waiting, self._waiting = self._waiting, []
        for _, then in waiting:
            then()

    # --- telling ------------------------------------------------------------------------------------

    def _speak(self) -> None:
        if self._is_sending or self._is_closed:
            return
        if self._current is None:
            if not self._queue:
                return
            self._current = self._next()
            self._sequence += 1
        self._is_sending = True
        said = self._current
        kind = messages.PublishMetadataRequest
        request = kind(
            controller_id=self._voice.broker_id,
            controller_epoch=self._controller_epoch,
            broker_epoch=self.broker_epoch,
            sequence=self._sequence,
            part=said.part,
            parts=said.parts,
            changes=[
                kind.NodeChange(path=c.path, data=c.data, version=c.version, czxid=c.czxid, mzxid=c.mzxid)
                for c in said.changes
            ],
        )
        self._link.send(
            ApiKey.PUBLISH_METADATA, request, lambda outcome: self._answered(said, outcome), self._voice.timeout_ms
        )

    def _next(self) -> Utterance:
        """The next message: a part of a picture, or differences that are put together while they are few."""
        first = self._queue.popleft()
        if first.parts:
            return first
        changes = list(first.changes)
        ordinal = first.ordinal
        while self._queue and not self._queue[0].parts and len(changes) + len(self._queue[0].changes) <= MOST_CHANGES:
            following = self._queue.popleft()
            changes += following.changes
            ordinal = following.ordinal
        self._queued_changes -= len(changes)
        return Utterance(ordinal, changes)

    def _answered(self, said: Utterance, outcome: Answered[messages.PublishMetadataResponse] | Failure) -> None:
        self._is_sending = False
        if self._is_closed:
            return
        if isinstance(outcome, Failure):
            self.is_reachable = False
            self._refusals += outcome.kind is FailureKind.REFUSED
            if self._refusals == REFUSALS:
                self._voice.on_dead(self.broker_id, self.broker_epoch, "refuses connections")
            self._speak_later()
            return
        self._refusals = 0
        code = outcome.message.error_code
        self._stale_answers = self._stale_answers + 1 if code == ErrorCode.STALE_BROKER_EPOCH else 0
        self.is_reachable = code == ErrorCode.NONE
        if code == ErrorCode.NONE:
            if self._current is said:
                self._current = None
            self._speak()
            self._acknowledged(said.ordinal)
        elif code == ErrorCode.STALE_CONTROLLER_EPOCH:
            self._voice.deposed()
        elif code == ErrorCode.STALE_BROKER_EPOCH:
            # It does not know of its registration yet, or has another one that is not known here, or is another
            # process than the one that registered.
            if self._stale_answers % STALE_ANSWERS == 0:
                self._voice.on_dead(self.broker_id, self.broker_epoch, "was started again")
            self._speak_later()
        elif said.parts:
            self._draw_whole()
            self._speak_later()
        else:
            self.start_anew()

    def _acknowledged(self, ordinal: int) -> None:
        self._told = max(self._told, ordinal)
        ready = [then for target, then in self._waiting if target <= self._told]
        self._waiting = [(target, then) for target, then in self._waiting if target > self._told]
        for then in ready:
            then()

    def _speak_later(self) -> None:
        self._is_sending = True

        def speak() -> None:
            self._is_sending = False
            self._speak()

        self._voice.later(speak)


class Voice:
    """`image_changed` hears of everything that goes into the image of the controller; `Driver` tells it."""

    def __init__(self, cluster: ClusterView, requester: Requester, host: Host) -> None:
        self._cluster = cluster
        self._requester = requester
        self._host = host
        self.broker_id = cluster.id
        self.timeout_ms: int = cluster.config.values.controller_socket_timeout_ms
        self._audience: dict[int, ToldBroker] = {}
        self._picture: list[Sequence[NodeChange]] | None = None
        #: the controller epoch that is spoken for, -1 while another broker is the controller
        self._epoch = -1
        #: told of a broker (its id and epoch) whose process is dead, and by what that is seen
        self.on_dead: Callable[[int, int, str], None] = lambda broker_id, epoch, why: None

    def image_changed(self, changes: Sequence[NodeChange] | None) -> None:
        """`changes` None: anything may have changed."""
        self._picture = None
        if not self._cluster.driver.rules:
            self.close()
            return
        epoch = self._cluster.image.controller_epoch
        if epoch != self._epoch:
            self.close()
            self._epoch = epoch
        known = list(self._audience.values())
        self._follow_registrations()
        for told in known:
            if self._audience.get(told.broker_id) is told:
                if changes is None:
                    told.start_anew()
                else:
                    told.tell(changes)
        self._picture = None

    def _follow_registrations(self) -> None:
        brokers = self._cluster.image.brokers
        for told in list(self._audience.values()):
            broker = brokers.get(told.broker_id)
            address = self._cluster.peer(told.broker_id)
            if broker is None or broker.epoch != told.broker_epoch or address is None:
                del self._audience[told.broker_id]
                told.close()
            elif address != told.address:
                told.move_to(address, self._requester.link(address, PURPOSE))
        for broker in brokers.values():
            address = self._cluster.peer(broker.broker_id)
            if broker.broker_id not in self._audience and broker.broker_id != self.broker_id and address is not None:
                link = self._requester.link(address, PURPOSE)
                self._audience[broker.broker_id] = ToldBroker(self, broker, address, link, self._epoch)

    def beat(self) -> None:
        for told in self._audience.values():
            told.beat()

    def picture(self) -> list[Sequence[NodeChange]]:
        """The whole image; drawn once for all who are told it before it changes."""
        if self._picture is None:
            self._picture = in_pieces(changes_of_image(self._cluster.image), PART_BYTES)
        return self._picture

    def when_heard(self, then: Callable[[], None]) -> None:
        """Calls `then` once, when the brokers that can be reached know everything, or after a short while."""
        reachable = [told for told in self._audience.values() if told.is_reachable]
        left = len(reachable)
        if not left:
            then()
            return
        is_over = False

        def end() -> None:
            nonlocal is_over
            if not is_over:
                is_over = True
                timer.cancel()
                then()

        def heard() -> None:
            nonlocal left
            left -= 1
            if not left:
                end()

        timer = self._host.timer.add(self._host.clock.monotonic_ms() + PATIENCE_MS, end)
        for told in reachable:
            told.when_told(heard)

    def deposed(self) -> None:
        """A broker knows of a later controller."""
        self.close()
        self._cluster.driver.look_again()

    def later(self, callback: Callable[[], None]) -> None:
        self._host.timer.add(self._host.clock.monotonic_ms() + RETRY_MS, callback)

    def close(self) -> None:
        self._epoch = -1
        audience, self._audience = self._audience, {}
        for told in audience.values():
            told.close()
