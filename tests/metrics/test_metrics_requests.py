"""Times of requests: counted in buckets, told as quantiles of the recent past."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tidelog.metrics.exposition import Page
from tidelog.metrics.request_metrics import WINDOW_MS, RequestMetrics, quantile_ns
from tidelog.net.meter import BUCKETS, TIMED_OF, TIMED_SINGLY, RequestMeter

PRODUCE, VERSION = 0, 9
MS = 1_000_000


def asked(meter: RequestMeter, times: int, each_ns: int) -> None:
    """As a dispatcher and an exchange do it."""
    for _ in range(times):
        meter.count += 1
        if not meter.count & meter.mask:
            meter.took(each_ns)


def told(metrics: RequestMetrics, now_ms: int, line: str) -> float | None:
    page = Page()
    metrics.tell(page, now_ms)
    for text in b"".join(page.chunks()).decode().splitlines():
        if text.startswith(line):
            return float(text.rpartition(" ")[2])
    return None


def metrics_of(meter: RequestMeter) -> RequestMetrics:
    dispatcher: Any = SimpleNamespace(meters={(PRODUCE, VERSION): meter})
    return RequestMetrics(dispatcher, 0)


MEDIAN = 'kafka_network_requestmetrics_totaltimems{request="Produce",quantile="0.50"}'


@pytest.mark.parametrize("took_ns", [1, 900, 50_000, 3 * MS, 60_000 * MS])
def test_a_quantile_is_within_a_factor_of_two_of_the_truth(took_ns: int) -> None:
    meter = RequestMeter()
    asked(meter, 100, took_ns)
    for quantile in (0.01, 0.5, 0.99, 1.0):
        assert took_ns / 2 <= quantile_ns(meter.buckets, quantile) <= took_ns * 2


def test_quantiles_rank_what_was_fast_below_what_was_slow() -> None:
    meter = RequestMeter()
    asked(meter, 90, 1 * MS)
    asked(meter, 10, 500 * MS)
    assert quantile_ns(meter.buckets, 0.5) < 3 * MS
    assert quantile_ns(meter.buckets, 0.95) > 200 * MS


def test_one_request_of_many_stands_for_all_once_there_are_many() -> None:
    meter = RequestMeter()
    asked(meter, TIMED_SINGLY, MS)
    assert sum(meter.buckets) == TIMED_SINGLY
    asked(meter, 100 * TIMED_OF, 1000 * MS)
    assert meter.count == TIMED_SINGLY + 100 * TIMED_OF
    assert abs(sum(meter.buckets) - meter.count) <= TIMED_OF
    assert quantile_ns(meter.buckets, 0.9) > 400 * MS


def test_quantiles_are_those_of_the_last_minutes() -> None:
    meter = RequestMeter()
    metrics = metrics_of(meter)
    asked(meter, 500, 1000 * MS)
    assert (told(metrics, 10_000, MEDIAN) or 0) > 400
    later = 10_000 + WINDOW_MS
    asked(meter, 5, 1 * MS)
    assert told(metrics, later, MEDIAN) == pytest.approx(1, rel=1)
    assert told(metrics, later, 'kafka_network_requestmetrics_totaltimems_count{request="Produce"}') == 505
    assert told(metrics, later + WINDOW_MS - 1, MEDIAN) is not None
    assert told(metrics, later + WINDOW_MS, MEDIAN) is None, "nothing was asked for so long"


def test_the_histogram_grows_and_ends_with_all_requests() -> None:
    meter = RequestMeter()
    for bits in range(0, 40, 3):
        asked(meter, 2, 1 << bits)
    page = Page()
    metrics_of(meter).tell(page, 0)
    lines = [line for line in b"".join(page.chunks()).decode().splitlines() if "_seconds_bucket" in line]
    counts = [int(line.rpartition(" ")[2]) for line in lines]
    assert counts == sorted(counts) and counts[-1] == meter.count and 'le="+Inf"' in lines[-1]
    assert len(meter.buckets) == BUCKETS
