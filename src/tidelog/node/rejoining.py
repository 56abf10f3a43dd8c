"""What happens when a broker's session with the shared store is over: it goes on in place, in a new one.

    session over ──▶ leads nothing, coordinates nothing ──▶ new session ──▶ registers ──▶ the whole picture ──▶ serves

Another broker may lead by now what this one led, so nothing is done by what was known before: clients are told that
this broker does not lead, and look elsewhere or try again. Logs stay open, and what is fetched from other leaders goes
on being fetched: they fence whoever fetches under an epoch that has passed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tidelog.control.controller import Registration
from tidelog.control.errors import ApiError
from tidelog.metadata.store import MetadataStore
from tidelog.node.assignments import Assignments
from tidelog.node.cluster_view import ClusterView
from tidelog.node.joining import JoiningCluster
from tidelog.node.voice import Voice
from tidelog.peers.requester import Requester
from tidelog.timer.host import Host

#: between two attempts to register in a new session
RETRY_MS: Final = 1_000


class Rejoining:
    """`open_store` begins a new session; `on_fatal` is told, with the reason, where this broker cannot go on."""

    def __init__(
        self,
        cluster: ClusterView,
        voice: Voice,
        assignments: Assignments,
        open_store: Callable[[], MetadataStore],
        requester: Requester,
        host: Host,
        on_fatal: Callable[[str], None],
    ) -> None:
        self._cluster = cluster
        self._voice = voice
        self._assignments = assignments
        self._open_store = open_store
        self._requester = requester
        self._host = host
        self._on_fatal = on_fatal
        #: None before this broker has joined for the first time: it cannot start then
        self.registration: Registration | None = None
        self.is_stopped = False

    def session_lost(self) -> None:
        if self.is_stopped:
            return
        if self.registration is None:
            self._on_fatal("the session with the metadata store ended while this broker was starting. Start it again")
            return
        self._host.notice("the session with ZooKeeper is over: this broker leads nothing until it has joined again")
        self._voice.close()
        self._assignments.stop_leading()
        # Not from within the callbacks of the store that is over.
        self._host.workers.call_soon(self._begin)

    def _begin(self) -> None:
        if not self.is_stopped:
            self._cluster.go_on_with(self._open_store())
            self._join()

    def _join(self) -> None:
        driver = self._cluster.driver

        def joined(error: ApiError) -> None:
            if self.is_stopped or driver is not self._cluster.driver:
                return
            if error.is_failure:
                self._host.notice(f"this broker cannot join the cluster again yet: {error.message or error.code.name}")
                self._host.timer.add(self._host.clock.monotonic_ms() + RETRY_MS, self._join)
            else:
                self._host.notice("this broker has joined the cluster again")

        assert self.registration is not None
        JoiningCluster(self._cluster, self._requester, self._host).join(self.registration, joined)
