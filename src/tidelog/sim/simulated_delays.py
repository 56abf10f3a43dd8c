"""A simulated producer to a delay topic, which takes some of its records back before they are delivered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tidelog.peers.requester import Answered, Failure
from tidelog.sim.log_place import LogPlace
from tidelog.sim.oracle import Oracle
from tidelog.sim.simulated_client import RETRIABLE
from tidelog.sim.simulated_producer import IdempotentProducer, SentBatch
from tidelog.sim.violation import Violation
from tidelog.sim.waiting_oracle import DELAY, DELIVER_AT, DelayedTruth
from tidelog.sim.world import World
from tidelog.wire import messages
from tidelog.wire.errors import ErrorCode
from tidelog.wire.records import Headers

#: of records that say nothing of it
DEFAULT_DELAY_MS: Final = 300
DELAYS_MS: Final = (0, 20, 300, 1_000, 4_000)
DAY_MS: Final = 24 * 60 * 60 * 1000
CANCEL_MS: Final = 400
CANCEL_TIMEOUT_MS: Final = 4_000
MOST_CANCELLED: Final = 3
#: what a broker says of a record that cannot be taken back any more
TOO_LATE: Final = "it was delivered, or is being delivered"


class DelayProducer(IdempotentProducer):
    """`truths` are of the partitions that it writes to."""

    def __init__(
        self, world: World, oracle: Oracle, name: str, truths: Sequence[DelayedTruth], pause_ms: int, in_flight: int
    ) -> None:
        super().__init__(world, oracle, name, [truth.source for truth in truths], pause_ms, in_flight)
        self._truths = {truth.source: truth for truth in truths}
        #: what was acknowledged, and not taken back
        self._written: dict[LogPlace, list[int]] = {truth.source: [] for truth in truths}
        self.soon(1, 2 * CANCEL_MS, self._cancel)

    def _next_records(self, place: LogPlace) -> list[Headers]:
        return [self._delay() for _ in range(self.random.randint(1, 4))]

    def _delay(self) -> Headers:
        """Delays of all lengths, times that are over, and one record in eight that is not due in this run."""
        chance, delay_ms = self.random.randrange(8), self.random.choice(DELAYS_MS)
        if chance == 0:
            return [(DELAY, b"%d" % DAY_MS)]
        if chance == 1:
            return []
        if chance < 5:
            return [(DELAY, b"%d" % delay_ms)]
        at_ms = self.host.clock.wall_ms() + delay_ms - self.random.choice((0, 0, 500))
        return [("kept", b"as it is"), (DELIVER_AT, b"%d" % at_ms)]

    def _made(self, place: LogPlace, values: list[bytes], headers: list[Headers]) -> None:
        truth = self._truths[place]
        truth.made(values, self.world.time.now_ms)
        self.oracle[truth.target].sent.update(values)

    def _is_acknowledged(self, place: LogPlace, batch: SentBatch, first_offset: int) -> None:
        super()._is_acknowledged(place, batch, first_offset)
        self._truths[place].acknowledged(batch.values, self.world.time.now_ms)
        if first_offset >= 0:
            self._written[place] += range(first_offset, first_offset + len(batch.values))

    # --- taking back --------------------------------------------------------------------------------------

    def _cancel(self) -> None:
        if self.is_stopped:
            return
        place = self.random.choice(list(self._truths))
        truth, leader = self._truths[place], self.leader(place)
        waiting = [offset for offset in self._written[place] if offset not in truth.delivered_at]
        if leader is None or not waiting:
            self.soon(1, 2 * CANCEL_MS, self._cancel)
            return
        offsets = self.random.sample(waiting, min(len(waiting), self.random.randint(1, MOST_CANCELLED)))
        truth.cancelling(offsets)
        request = messages.CancelDelaysRequest(topic=place.topic, partition_index=place.partition, offsets=offsets)

        def answered(outcome: Answered[messages.CancelDelaysResponse] | Failure) -> None:
            self.soon(1, 2 * CANCEL_MS, self._cancel)
            if isinstance(outcome, Failure):
                self.count("cancel", outcome.kind.value)
                return
            code = ErrorCode.of(outcome.message.error_code)
            self.count("cancel", code.name)
            if code and code not in RETRIABLE:
                raise Violation("administration", f"{self.name} is answered {code.name} to: cancel")
            for each in outcome.message.results:
                if each.refusal is None or each.refusal == TOO_LATE:
                    truth.answered(each.offset, each.refusal is None)

        self.ask(leader, request, answered, CANCEL_TIMEOUT_MS)
