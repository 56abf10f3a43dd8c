"""How a broker joins others: it registers, and waits until the controller has told it the whole picture.

A broker that was killed and starts again may find its former registration, which lives until the store has given up its
former session. A process that starts replaces it (`control.succession`). Where it cannot tell that the registration is
its own it asks at the address that is registered. If a broker with this id answers there, it lives, and this one does
not start. If not, it waits until that session must be over. A registration that is still there then belongs to another
process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tidelog.control.controller import Registration
from tidelog.control.errors import ApiError
from tidelog.control.model import ResourceType
from tidelog.node.cluster_view import ClusterView
from tidelog.peers.requester import Answered, Failure, Requester
from tidelog.timer.host import Host
from tidelog.wire import messages
from tidelog.wire.apis import ApiKey
from tidelog.wire.errors import ErrorCode

#: between two attempts to register
RETRY_MS: Final = 250
#: after which a broker that is told nothing says so
PATIENCE_MS: Final = 10_000
#: of the link to whoever is registered under this broker's id, and how long it has to answer
PURPOSE: Final = "probe"
PROBE_TIMEOUT_MS: Final = 1_000
#: the store takes a little longer than the time-out of a session to give it up
GRACE: Final = 1.5


class JoiningCluster:
    def __init__(self, cluster: ClusterView, requester: Requester, host: Host) -> None:
        self._cluster = cluster
        self._requester = requester
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
                self._if_taken(registration, lambda taken: done(taken) if taken else try_later())
            elif error.is_failure:
                done(error)
            else:
                wondering = self._host.timer.add(self._now_ms() + PATIENCE_MS, wonder)

                def told() -> None:
                    wondering.cancel()
                    done(error)

                self._cluster.driver.when_pictured(told)

        def try_later() -> None:
            self._host.timer.add(self._now_ms() + RETRY_MS, attempt)

        def wonder() -> None:
            self._host.notice(
                f"broker {self._cluster.id} is registered and waits for the controller, broker "
                f"{self._cluster.controller_id}, to tell it what to serve. Can that broker connect to this one?"
            )

        attempt()

    def _if_taken(self, registration: Registration, then: Callable[[ApiError | None], None]) -> None:
        """`then` gets an error if a broker with this id lives at the address that is registered."""
        broker_id = self._cluster.id
        peer, known = self._cluster.peer(broker_id), self._cluster.image.brokers.get(broker_id)
        if peer is None or known is None or set(known.endpoints) & set(registration.endpoints):
            # At an address of its own it is this process that listens.
            then(None)
            return
        link = self._requester.link(peer, PURPOSE)
        resource = messages.DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=ResourceType.BROKER, resource_name=str(broker_id), configuration_keys=["broker.id"]
        )

        def answered(outcome: Answered[messages.DescribeConfigsResponse] | Failure) -> None:
            link.close()
            is_there = isinstance(outcome, Answered) and not any(each.error_code for each in outcome.message.results)
            message = (
                f"Broker id {broker_id} belongs to the broker at {peer.host}:{peer.port}, which is running. Give this "
                "broker another broker.id, or stop that one."
            )
            then(ApiError(ErrorCode.DUPLICATE_BROKER_REGISTRATION, message) if is_there else None)

        # A broker describes nobody but itself.
        link.send(
            ApiKey.DESCRIBE_CONFIGS, messages.DescribeConfigsRequest(resources=[resource]), answered, PROBE_TIMEOUT_MS
        )

    def _now_ms(self) -> int:
        return self._host.clock.monotonic_ms()
