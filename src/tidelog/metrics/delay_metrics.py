"""What delay and half topics have to tell, of the partitions that this broker delivers from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.deliver.halves import HalfSchedule
from tidelog.metrics.exposition import labelled

if TYPE_CHECKING:
    from tidelog.clock import Clock
    from tidelog.coordinator.delays import Delays
    from tidelog.metrics.exposition import Page
    from tidelog.timer.slices import Job

SLICE_PARTITIONS: Final = 200
_PREFIX: Final = "tidelog_delay_"


class DelayMetrics:
    def __init__(self, delays: Delays, clock: Clock) -> None:
        self._delays = delays
        self._clock = clock

    def tell(self, page: Page) -> Job:
        wall_ms = self._clock.wall_ms()
        for at, (key, known) in enumerate(list(self._delays.partitions.items())):
            schedule = known.schedule
            labels = labelled(topic=key.topic, partition=key.partition)
            next_ms = schedule.waiting.next_ms()
            overdue_ms = 0 if next_ms is None else max(0, wall_ms - next_ms)
            if isinstance(schedule, HalfSchedule):
                overdue_ms = 0
                undecided = sum(each.is_undecided for each in schedule.prepared.values())
                page.add("tidelog_half_prepared_records", len(schedule.prepared), labels)
                page.add("tidelog_half_undecided_records", undecided, labels)
            page.add(f"{_PREFIX}waiting_records", len(schedule), labels)
            page.add(f"{_PREFIX}stopped_records", len(schedule.picture.stopped), labels)
            page.add(f"{_PREFIX}malformed_records", len(schedule.malformed), labels)
            page.add(f"{_PREFIX}delivered_records_total", schedule.delivered_count, labels)
            page.add(f"{_PREFIX}stalled", int(known.stalled is not None), labels)
            page.add(f"{_PREFIX}overdue_seconds", overdue_ms / 1000, labels)
            if at % SLICE_PARTITIONS == SLICE_PARTITIONS - 1:
                page.end_slice()
                yield None
