"""What requests have to tell: how many, with which errors, and how long they took.

Times are counted since the broker started. Dashboards want quantiles of the recent past: they are those of what was
counted since the last scrape that is older than five minutes, interpolated within a bucket of times that lie within a
factor of two.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from tidelog.metrics.exposition import labelled
from tidelog.net.meter import BUCKETS, RequestMeter
from tidelog.wire.apis import APIS, ApiKey
from tidelog.wire.errors import ErrorCode

if TYPE_CHECKING:
    from tidelog.api.dispatch import Dispatcher
    from tidelog.metrics.exposition import Page

WINDOW_MS: Final = 300_000
#: scrapes that follow one another more quickly do not each need a place in the window
STEP_MS: Final = 5_000
QUANTILES: Final = ("0.50", "0.75", "0.95", "0.98", "0.99", "0.999")
#: of the histogram: 8 µs to 69 s
FIRST_BUCKET: Final = 13
LAST_BUCKET: Final = 36

_PREFIX: Final = "kafka_network_requestmetrics_"
_DURATION: Final = "tidelog_request_duration_seconds"

Buckets = list[int]


class RequestMetrics:
    def __init__(self, dispatcher: Dispatcher, now_ms: int) -> None:
        self._dispatcher = dispatcher
        self._history: deque[tuple[int, dict[str, Buckets]]] = deque(((now_ms, {}),))

    def tell(self, page: Page, now_ms: int) -> None:
        times: dict[str, Buckets] = {}
        total_ns: dict[str, int] = {}
        counts: dict[tuple[str, int], int] = {}
        errors: dict[tuple[str, int], int] = {}
        for request, version, meter in self._counted():
            counts[request, version] = counts.get((request, version), 0) + meter.count
            known = times.setdefault(request, [0] * BUCKETS)
            times[request] = [a + b for a, b in zip(known, meter.buckets, strict=True)]
            total_ns[request] = total_ns.get(request, 0) + meter.total_ns
            for code, number in list(meter.errors.items()):
                errors[request, code] = errors.get((request, code), 0) + number
        for (request, version), number in counts.items():
            page.add(f"{_PREFIX}requests_total", number, labelled(request=request, version=version))
        for (request, code), number in errors.items():
            page.add(f"{_PREFIX}errors_total", number, labelled(request=request, error=ErrorCode.of(code).name))
        before = self._remembered(now_ms, times)
        for request, buckets in times.items():
            if not any(buckets):
                continue
            labels = labelled(request=request)
            page.add(f"{_PREFIX}totaltimems_count", sum(buckets), labels)
            recent = [now - then for now, then in zip(buckets, before.get(request, [0] * BUCKETS), strict=True)]
            for quantile in QUANTILES if any(recent) else ():
                took_ms = quantile_ns(recent, float(quantile)) / 1e6
                page.add(f"{_PREFIX}totaltimems", round(took_ms, 6), labelled(request=request, quantile=quantile))
            if request != "Fetch":  # told as FetchConsumer and FetchFollower, so that sums are right
                _tell_histogram(page, request, buckets, total_ns[request])

    def _counted(self) -> Iterator[tuple[str, int, RequestMeter]]:
        for (key, version), meter in list(self._dispatcher.meters.items()):
            name = APIS[key].name
            yield name, version, meter
            if key == ApiKey.FETCH and meter.of_followers is not None:
                yield name, version, meter.of_followers
                yield "FetchConsumer", version, meter
                yield "FetchFollower", version, meter.of_followers

    def _remembered(self, now_ms: int, times: dict[str, Buckets]) -> dict[str, Buckets]:
        """What was counted when the window began."""
        history = self._history
        while len(history) > 1 and history[1][0] <= now_ms - WINDOW_MS:
            history.popleft()
        if now_ms - history[-1][0] >= STEP_MS:
            history.append((now_ms, times))
        return history[0][1]


def quantile_ns(buckets: Buckets, quantile: float) -> float:
    """The time within which that share of the requests, of which there is at least one, was answered."""
    rank = quantile * sum(buckets)
    below = 0
    for bits, count in enumerate(buckets):
        if count and below + count >= rank:
            low = 1 << bits >> 1
            return low + (1 << bits) * (rank - below) / count / (2 if bits else 1)
        below += count
    raise AssertionError


def _tell_histogram(page: Page, request: str, buckets: Buckets, total_ns: int) -> None:
    below = sum(buckets[:FIRST_BUCKET])
    for bits in range(FIRST_BUCKET, LAST_BUCKET + 1):
        below += buckets[bits]
        # Nearly a power of two nanoseconds, told without the digits that nobody reads.
        page.add(_DURATION, below, labelled(request=request, le=f"{(1 << bits) / 1e9:.6g}"), "_bucket")
    labels = labelled(request=request)
    page.add(_DURATION, sum(buckets), labelled(request=request, le="+Inf"), "_bucket")
    page.add(_DURATION, total_ns / 1e9, labels, "_sum")
    page.add(_DURATION, sum(buckets), labels, "_count")
