"""The benchmarks run: every one of them, at a fraction of its size, so that they do not rot between measurements."""

from __future__ import annotations

import json
from pathlib import Path

import kafka.record.memory_records
import pytest
from bench import __main__ as bench_main
from bench import limits, picture, raw, report
from bench.measure import Benchmark, Sample, Scale
from bench.runner import Results
from bench.systems.cluster import TidelogCluster
from bench.systems.process import BrokerProcess

TINY = Scale(0.01)
#: Spark starts several times in each of them
SLOW = ("B12", "B13")
BENCHMARKS = [pytest.param(one, id=one.id, marks=pytest.mark.long if one.id in SLOW else ()) for one in bench_main.ALL]


@pytest.mark.java
@pytest.mark.parametrize("benchmark", BENCHMARKS)
def test_a_benchmark_gives_its_samples(benchmark: Benchmark, system: type[BrokerProcess], tmp_path: Path) -> None:
    if system is TidelogCluster:
        pytest.skip("these benchmarks measure one broker")
    broker = system(tmp_path / "broker", benchmark.config)
    try:
        if benchmark.started:
            broker.start()
        samples = list(benchmark.run(broker, TINY, tmp_path))
    finally:
        broker.kill()
    assert len({sample.variant for sample in samples}) == len(samples) > 0
    assert all(sample.value > 0 for sample in samples)


def test_a_batch_made_by_hand_is_read_by_a_stock_client() -> None:
    values = [b"a" * n for n in range(200)]
    batch = raw.restamped(raw.record_batch(values, 1_000, step_ms=10), 5_000)
    parsed = kafka.record.memory_records.MemoryRecords(batch).next_batch()
    assert parsed.validate_crc()
    assert [(r.offset, r.timestamp, r.value) for r in parsed] == [(n, 5_000 + 10 * n, v) for n, v in enumerate(values)]


def test_results_become_ratios_a_table_a_file_and_a_picture(tmp_path: Path) -> None:
    results = Results()
    for system, values in {"kafka": (90.0, 100.0, 400.0), "tidelog": (140.0, 150.0, 160.0)}.items():
        for value in values:
            results.add("B1", system, Sample("fast", value, "MB/s", "higher", goal=1.3))
            results.add("B5", system, Sample("slow", value, "s", "lower", goal=0.1))
    fast, slow = results
    assert (fast.ratio, fast.reached) == (1.5, True)
    assert (slow.ratio, slow.reached) == (1.5, False)
    shown = report.table(results, {"loopback": 1_000.0}, {"B1": 2.0})
    assert "1.50  ≥ 1.3: yes" in shown
    assert "1.50  ≤ 0.1: NO" in shown
    assert "B1   median ratio 1.50 (≥ 2.0: NO), 1 of 1 goals reached" in shown
    path = tmp_path / "results.json"
    report.save(path, results, {"loopback": 1_000.0}, {"rounds": 3})
    kept = json.loads(path.read_text())
    assert kept["results"][0]["values"] == {"kafka": [90.0, 100.0, 400.0], "tidelog": [140.0, 150.0, 160.0]}
    assert picture.draw(results, path, "a picture")
    assert path.with_suffix(".svg").stat().st_size > 1_000
    assert path.with_suffix(".png").stat().st_size > 1_000


def test_a_goal_about_tidelogs_own_value_does_not_ask_for_kafkas() -> None:
    results = Results()
    results.add("B14", "tidelog", Sample("flat", 1.1, "", "lower", goal=1.5, goal_of="value"))
    results.add("B14", "tidelog", Sample("steep", 1.9, "", "lower", goal=1.5, goal_of="value"))
    results.add("B14", "kafka", Sample("steep", 9.9, "", "lower", goal=1.5, goal_of="value"))
    results.add("B14", "tidelog", Sample("no goal", 5.0, "µs", "lower", goal=None))
    flat, steep, without = results
    assert (flat.ratio, flat.reached) == (None, True)
    assert (steep.ratio, steep.reached) == (None, False)
    assert without.reached is None


def test_the_limits_of_the_machine_are_measured(tmp_path: Path) -> None:
    measured = limits.measure(tmp_path, 4 << 20)
    assert set(measured) == {"page-cache write", "sendfile", "loopback", "CRC-32C"}
    assert all(value > 0 for value in measured.values())
