"""How a broker joins others: it registers, and waits until the controller has told it the whole picture.

A broker that was killed and starts again may find its former registration, which lives until the store has given up its
former session. A process that starts replaces it (`control.succession`). Where it cannot tell that the registration is
its own it waits until that session must be over. A registration that is still there then belongs to another process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tidelog.control.controller import Registration
from tidelog.control.errors import ApiError
from tidelog.node.cluster_view import ClusterView
from tidelog.timer.host import Host
from tidelog.wire.errors import ErrorCode

#: between two attempts to register
RETRY_MS: Final = 250
#: after which a broker that is told nothing says so
PATIENCE_MS: Final = 10_000
#: the store takes a little longer than the time-out of a session to give it up
GRACE: Final = 1.5


class JoiningCluster:
    def __init__(self, cluster: ClusterView, host: Host) -> None:
        self._cluster = cluster
        self._host = host

    def join(self, registration: Registration, done: Callable[[ApiError], None], replaces_former: bool = False) -> None:
        """`done` when this broker is registered and has taken up what it is assigned."""
        timeout_ms = self._cluster.config.values.zookeeper_session_timeout_ms
        deadline_ms = self._now_ms() + int(timeout_ms * GRACE)
        is_waiting = False

        def attempt() -> None:
            self._cluster.driver.start(registration, started, replaces_former)

        def started(error: ApiError) -> None:
            nonlocal is_waiting
            if error.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION and self._now_ms() < deadline_ms:
                if not is_waiting:
                    is_waiting = True
                    self._host.notice(
                        f"broker {self._cluster.id} is still registered, by its former session or by another process: "
                        f"waiting up to {deadline_ms - self._now_ms()} ms for that registration to end"
                    )
                self._host.timer.add(self._now_ms() + RETRY_MS, attempt)
            elif error.is_failure:
                done(error)
            else:
                wondering = self._host.timer.add(self._now_ms() + PATIENCE_MS, wonder)

                def told() -> None:
                    wondering.cancel()
                    done(error)

                self._cluster.driver.when_pictured(told)

        def wonder() -> None:
            self._host.notice(
                f"broker {self._cluster.id} is registered and waits for the controller, broker "
                f"{self._cluster.controller_id}, to tell it what to serve. Can that broker connect to this one?"
            )

        attempt()

    def _now_ms(self) -> int:
        return self._host.clock.monotonic_ms()
