"""Questions to other brokers, in batches: one request at a time to each, and what comes meanwhile goes with the next.

Each kind of question has a link of its own to each broker, so that nothing else holds it up. A request is not repeated
here: whoever put the question hears that it failed, and knows by then who is to be asked next.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Generic, TypeVar

from tidelog.node.cluster_view import ClusterView
from tidelog.peers.requester import Answered, Failure, Link, Requester
from tidelog.wire.apis import ApiKey
from tidelog.wire.classes import RequestMessage

Item = TypeVar("Item")
R = TypeVar("R")


class _Queue(Generic[Item]):
    __slots__ = ("is_busy", "link", "waiting")

    def __init__(self) -> None:
        self.waiting: list[Item] = []
        self.link: Link | None = None
        #: a request is on its way
        self.is_busy = False


class PeerQueues(ABC, Generic[Item, R]):
    """`requester` None: this broker works alone, and every question fails."""

    api_key: ApiKey
    purpose: str

    def __init__(self, cluster: ClusterView, requester: Requester | None, timeout_ms: Callable[[], int]) -> None:
        self._cluster = cluster
        self._requester = requester
        self._timeout_ms = timeout_ms
        self._queues: dict[int, _Queue[Item]] = {}
        self._closed = False

    @abstractmethod
    def _take(self, waiting: list[Item]) -> tuple[list[Item], list[Item]]:
        """What the next request asks, and what is left for those after it."""

    @abstractmethod
    def _request(self, batch: list[Item]) -> RequestMessage[R]: ...

    @abstractmethod
    def _answered(self, batch: list[Item], answer: R | None) -> None:
        """None: there is no answer, and nobody knows whether what was asked was done."""

    def put(self, broker_id: int, item: Item) -> None:
        queue = self._queues.setdefault(broker_id, _Queue())
        queue.waiting.append(item)
        if not queue.is_busy:
            self._send(broker_id, queue)

    def close(self) -> None:
        """Nobody hears of what is on its way any more."""
        self._closed = True
        for queue in self._queues.values():
            if queue.link is not None:
                queue.link.close()

    def _send(self, broker_id: int, queue: _Queue[Item]) -> None:
        link = self._link(broker_id, queue)
        if link is None or self._closed:
            failed, queue.waiting = queue.waiting, []
            self._answered(failed, None)
            return
        batch, queue.waiting = self._take(queue.waiting)
        queue.is_busy = True

        def answered(outcome: Answered[R] | Failure) -> None:
            queue.is_busy = False
            if self._closed:
                return
            try:
                self._answered(batch, None if isinstance(outcome, Failure) else outcome.message)
            finally:
                if queue.waiting and not queue.is_busy:
                    self._send(broker_id, queue)

        link.send(self.api_key, self._request(batch), answered, self._timeout_ms())

    def _link(self, broker_id: int, queue: _Queue[Item]) -> Link | None:
        address = None if self._requester is None else self._cluster.peer(broker_id)
        if queue.link is not None and queue.link.peer != address:
            queue.link.close()
            queue.link = None
        if queue.link is None and address is not None and self._requester is not None:
            queue.link = self._requester.link(address, self.purpose)
        return queue.link
