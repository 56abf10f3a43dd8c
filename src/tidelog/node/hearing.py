"""Hearing the controller: what it publishes goes into this broker's image, in order, once.

Messages are taken by their numbers. Those of one controller (its epoch) to one registration (the broker's epoch) count
up without gaps, and begin with a whole picture in parts. One that was taken before is acknowledged again; one that does
not follow is refused with OUT_OF_ORDER_SEQUENCE_NUMBER, and the controller starts with the whole picture again. A
message is acknowledged when everything that follows from it has been carried out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from tidelog.control.image import NodeChange
from tidelog.node.cluster_view import ClusterView
from tidelog.timer.host import Host
from tidelog.wire import messages
from tidelog.wire.errors import ErrorCode

NOTHING: Final = -1


class Taken(NamedTuple):
    """What to do with a message: refuse it, or apply `changes`. None: nothing is to be applied (yet)."""

    error: ErrorCode = ErrorCode.NONE
    changes: Sequence[NodeChange] | None = None
    is_whole: bool = False


class Ear:
    """Which messages are taken, and when a whole picture is complete."""

    __slots__ = ("_broker_epoch", "_controller_epoch", "_parts", "_sequence", "_was_whole")

    def __init__(self) -> None:
        self._broker_epoch = NOTHING
        self._controller_epoch = NOTHING
        #: the last one that was taken
        self._sequence = NOTHING
        #: of a whole picture that is not complete
        self._parts: list[NodeChange] | None = None
        self._was_whole = False

    def take(self, said: messages.PublishMetadataRequest, broker_epoch: int, controller_epoch: int) -> Taken:
        """The epochs are those that this broker knows of: its registration's, and the controller's."""
        if broker_epoch == NOTHING or said.broker_epoch != broker_epoch:
            return Taken(ErrorCode.STALE_BROKER_EPOCH)
        # Whoever spoke to a former registration is fenced by that; a store that is restored from an old copy begins
        # with lower epochs again.
        heard = self._controller_epoch if said.broker_epoch == self._broker_epoch else NOTHING
        if said.controller_epoch < max(controller_epoch, heard):
            return Taken(ErrorCode.STALE_CONTROLLER_EPOCH)
        if (said.broker_epoch, said.controller_epoch) != (self._broker_epoch, self._controller_epoch):
            self._broker_epoch, self._controller_epoch = said.broker_epoch, said.controller_epoch
            self._sequence, self._parts, self._was_whole = NOTHING, None, False
        if said.sequence <= self._sequence:
            return Taken()
        follows = said.sequence == self._sequence + 1
        if said.parts and said.part == 0:
            self._parts = []
        elif not follows or (self._parts is None if said.parts else not self._was_whole or self._parts is not None):
            return Taken(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        self._sequence = said.sequence
        changes = [NodeChange(c.path, c.data, c.version, c.czxid, c.mzxid) for c in said.changes]
        if self._parts is None:
            return Taken(changes=changes)
        self._parts += changes
        if said.part < said.parts - 1:
            return Taken()
        whole, self._parts, self._was_whole = self._parts, None, True
        return Taken(changes=whole, is_whole=True)


class Hearing:
    def __init__(self, cluster: ClusterView, host: Host) -> None:
        self._cluster = cluster
        self._host = host
        self._ear = Ear()
        #: when the controller was last heard, by the monotonic clock
        self.last_heard_ms = 0

    def hear(self, said: messages.PublishMetadataRequest, done: Callable[[ErrorCode], None]) -> None:
        """`done` gets what to answer, once what was said has been carried out."""
        cluster = self._cluster
        taken = self._ear.take(said, cluster.broker_epoch, cluster.image.controller_epoch)
        if taken.error is not ErrorCode.NONE:
            done(taken.error)
            return
        self.last_heard_ms = self._host.clock.monotonic_ms()
        # What was taken before may still be on its way: its turn comes first.
        cluster.driver.hear(said.controller_epoch, taken.changes or (), taken.is_whole, lambda: done(ErrorCode.NONE))
