"""How a broker leaves others: the controller moves its leaders away first, unless it is silent for too long."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tidelog.control.controller import ShutdownReply
from tidelog.log.directories.directory_set import listed
from tidelog.node.cluster_view import ClusterView
from tidelog.node.controller_door import ControllerDoor
from tidelog.timer.host import Host
from tidelog.timer.wheel import TimerTask
from tidelog.wire.partitions import TopicPartition

#: a broker that is told to stop does so, even if nobody answers: no controller, or no ZooKeeper
SILENCE_MS: Final = 8_000


class LeavingCluster:
    def __init__(self, cluster: ClusterView, controller: ControllerDoor, host: Host) -> None:
        self._cluster = cluster
        self._controller = controller
        self._host = host
        self._is_over = False

    def leave(self, done: Callable[[], None]) -> None:
        """`done` when this broker leads nothing that another could lead, or after the attempts that are allowed, or
        when one of them gets no answer."""
        values = self._cluster.config.values
        if not values.controlled_shutdown_enable:
            done()
            return
        left = values.controlled_shutdown_max_retries

        def attempt() -> None:
            silence = self._after(SILENCE_MS, lambda: self._end(done, self._who_is_silent()))

            def answered(reply: ShutdownReply) -> None:
                nonlocal left
                silence.cancel()
                left -= 1
                if not reply.error.is_failure and (not reply.remaining or self._cluster.is_last):
                    self._end(done)
                elif left > 0 and not self._is_over:
                    self._after(values.controlled_shutdown_retry_backoff_ms, attempt)
                else:
                    self._end(done, _why(reply))

            self._controller.controlled_shutdown(answered)

        attempt()

    def _after(self, wait_ms: int, callback: Callable[[], None]) -> TimerTask:
        return self._host.timer.add(self._host.clock.monotonic_ms() + wait_ms, callback)

    def _end(self, done: Callable[[], None], why: str | None = None) -> None:
        if self._is_over:
            return
        self._is_over = True
        if why is not None:
            self._host.notice(f"the broker stops without having handed over its leaders: {why}")
        done()

    def _who_is_silent(self) -> str:
        cluster = self._cluster
        if cluster.controller.is_active:
            who = "this broker is the controller, and ZooKeeper does"
        elif cluster.controller_id < 0:
            who = "no controller is known, and none is elected: ZooKeeper may"
        else:
            who = f"the controller, broker {cluster.controller_id}, does"
        return f"{who} not answer for {SILENCE_MS // 1000} s"


def _why(reply: ShutdownReply) -> str:
    if reply.error.is_failure:
        return reply.error.message or reply.error.code.message
    names = listed([TopicPartition(*key) for key in reply.remaining])
    return f"no other replica is in sync for {names}"
