"""Who is dead, sooner than the store knows: its sessions end only after they have been silent for their time-out.

A process that was killed leaves a machine that refuses its connections at once. So the controller says something to
every broker a few times a second, and a broker that hears nothing asks whether the controller is still there. Who is
refused twice takes the other for dead, and removes its node from the store: the controller that of a broker, any broker
that of the controller. What follows is what follows when a session ends.

    kill -9 of a broker       its connection breaks; refused; refused again after 100 ms ──▶ /brokers/ids/N is deleted
    kill -9 of the controller  silence; refused; refused again                            ──▶ /controller is deleted

A process that was started again at once refuses nobody. It does not know the registration that it is told about, and
says so (STALE_BROKER_EPOCH): the process that had made it is dead as well.

A time-out is no proof: a process that is paused, or beyond a broken network, may live, and there the session decides.
Should a refusal ever mean something else, epochs fence the one that was buried alive, and it registers again.
"""

from __future__ import annotations

from typing import Final

from tidelog.node.cluster_view import ClusterView
from tidelog.node.hearing import Hearing
from tidelog.node.voice import REFUSALS, Voice
from tidelog.peers.requester import Answered, Failure, FailureKind, Link, PeerAddress, Requester
from tidelog.timer.host import Host
from tidelog.timer.wheel import TimerTask
from tidelog.wire import messages
from tidelog.wire.apis import ApiKey

BEAT_MS: Final = 200
#: so long without a word from the controller, and a broker asks
SILENCE_MS: Final = 700
PURPOSE: Final = "watch"


class Liveness:
    def __init__(self, cluster: ClusterView, voice: Voice, hearing: Hearing, requester: Requester, host: Host) -> None:
        self._cluster = cluster
        self._voice = voice
        self._hearing = hearing
        self._requester = requester
        self._host = host
        self._timer: TimerTask | None = None
        self._link: Link | None = None
        #: the controller epoch that is asked after, and how often its machine has refused
        self._suspect_epoch = -1
        self._refusals = 0
        voice.on_dead = self._broker_died

    def start(self) -> None:
        self._timer = self._host.timer.add(self._host.clock.monotonic_ms() + BEAT_MS, self._beat)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._hang_up()

    def _beat(self) -> None:
        try:
            if self._cluster.driver.rules:
                self._voice.beat()
                self._hang_up()
            else:
                self._look_after_controller()
        finally:
            self.start()

    # --- the controller, of the brokers -------------------------------------------------------------

    def _broker_died(self, broker_id: int, broker_epoch: int, why: str) -> None:
        # One that stops in order closes its port before it ends its session, and nobody need know.
        if self._cluster.controller.is_broker_active(broker_id):
            self._host.notice(f"broker {broker_id} {why}: its process is taken for dead")
        self._cluster.driver.bury_broker(broker_id, broker_epoch)

    # --- a broker, of the controller ----------------------------------------------------------------

    def _look_after_controller(self) -> None:
        image = self._cluster.image
        address = self._cluster.peer(image.controller_id)
        silence_ms = self._host.clock.monotonic_ms() - self._hearing.last_heard_ms
        if address is None or image.controller_id == self._cluster.id or silence_ms < SILENCE_MS:
            self._hang_up()
            return
        if self._suspect_epoch != image.controller_epoch:
            self._hang_up()
            self._suspect_epoch = image.controller_epoch
        self._ask(address)

    def _ask(self, address: PeerAddress) -> None:
        if self._link is None:
            self._link = self._requester.link(address, PURPOSE)
        if self._link.unanswered:
            return
        link, epoch = self._link, self._suspect_epoch

        def answered(outcome: Answered[messages.ApiVersionsResponse] | Failure) -> None:
            if link is not self._link:
                return
            if not isinstance(outcome, Failure):
                self._refusals = 0
            elif outcome.kind is FailureKind.REFUSED:
                self._refusals += 1
                if self._refusals == REFUSALS:
                    self._controller_died(address.node_id, epoch)

        request = messages.ApiVersionsRequest(client_software_name="tidelog", client_software_version="1")
        link.send(ApiKey.API_VERSIONS, request, answered, SILENCE_MS * 4, at_most=3)

    def _controller_died(self, controller_id: int, controller_epoch: int) -> None:
        self._host.notice(f"the controller, broker {controller_id}, refuses connections: it is taken for dead")
        self._cluster.driver.bury_controller(controller_id, controller_epoch)

    def _hang_up(self) -> None:
        self._refusals = 0
        self._suspect_epoch = -1
        if self._link is not None:
            link, self._link = self._link, None
            link.close()
