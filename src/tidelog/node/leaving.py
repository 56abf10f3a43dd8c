"""How a broker leaves others: the controller moves its leaders away first."""

from __future__ import annotations

from collections.abc import Callable

from tidelog.control.controller import ShutdownReply
from tidelog.log.directories.directory_set import listed
from tidelog.node.cluster_view import ClusterView
from tidelog.node.controller_door import ControllerDoor
from tidelog.timer.host import Host
from tidelog.wire.partitions import TopicPartition


class LeavingCluster:
    def __init__(self, cluster: ClusterView, controller: ControllerDoor, host: Host) -> None:
        self._cluster = cluster
        self._controller = controller
        self._host = host

    def leave(self, done: Callable[[], None]) -> None:
        """`done` when this broker leads nothing that another could lead, or after the attempts that are allowed."""
        values = self._cluster.config.values
        if not values.controlled_shutdown_enable:
            done()
            return
        left = values.controlled_shutdown_max_retries

        def attempt() -> None:
            self._controller.controlled_shutdown(answered)

        def answered(reply: ShutdownReply) -> None:
            nonlocal left
            left -= 1
            if not reply.error.is_failure and (not reply.remaining or self._cluster.is_last):
                done()
            elif left > 0:
                now_ms = self._host.clock.monotonic_ms()
                self._host.timer.add(now_ms + values.controlled_shutdown_retry_backoff_ms, attempt)
            else:
                self._host.notice(f"the broker stops without having handed over its leaders: {_why(reply)}")
                done()

        attempt()


def _why(reply: ShutdownReply) -> str:
    if reply.error.is_failure:
        return reply.error.message or reply.error.code.message
    names = listed([TopicPartition(*key) for key in reply.remaining])
    return f"no other replica is in sync for {names}"
