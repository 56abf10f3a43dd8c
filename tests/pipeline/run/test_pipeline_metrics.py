"""What a runner does, counted for Prometheus."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from urllib.request import urlopen

from bench.systems.process import BrokerProcess
from pipeline_site import Site

from tidelog.pipeline.land.progress_events import Meter, Notice
from tidelog.pipeline.run.metrics import Metrics


def test_metrics_over_http_agree_with_the_table(
    broker: BrokerProcess, tmp_path: Path, unique: Callable[[str], str]
) -> None:
    site = Site(broker.bootstrap, tmp_path, unique("p"))
    site.produce(120)
    metrics = Metrics(site.name)
    port = metrics.serve(0, "127.0.0.1")
    try:
        site.run(listeners=[metrics])
        metrics(Notice("something"))
        with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            lines = answer.read().decode().splitlines()
    finally:
        metrics.close()
    found = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))

    def value(name: str, labels: str = "") -> float:
        return float(found[f'tidelog_pipeline_{name}{{pipeline="{site.name}"{labels}}}'])

    assert value("rows_total") == len(site.rows()) and value("dead_letters_total") == len(site.dead())
    assert value("batches_total") == 3 and value("files_total") == len(site.table.file_uris())
    assert value("batch_seconds_count") == 3 and value("notices_total") == 1
    assert value("table_version") == site.table.version()
    for partition in range(2):
        where = f',topic="{site.topic}",partition="{partition}"'.split(",")
        # Prometheus sorts nothing: labels come in the order of their definition.
        labels = f'{{pipeline="{site.name}",{where[1]},{where[2]}}}'
        line = next(k for k in found if k.startswith("tidelog_pipeline_lag{") and f'partition="{partition}"' in k)
        assert set(line.partition("{")[2].rstrip("}").split(",")) == set(labels.strip("{}").split(","))
        assert float(found[line]) == 0


def test_rates_are_of_the_last_half_minute() -> None:
    meter = Meter()
    meter.begin(0.0)
    meter.add(1.0, rows=100, offsets=200)
    assert meter.rates(2.0) == (50.0, 100.0)
    meter.add(40.0, rows=300, offsets=300)
    assert meter.rates(40.0) == (10.0, 10.0)
    assert meter.rates(100.0) == (0.0, 0.0)
