"""The table that is printed, and the JSON file that is kept."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import confluent_kafka

from bench.measure import Series
from bench.systems.java import KAFKA_VERSION


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    models = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    java = subprocess.run(["java", "-version"], capture_output=True, text=True).stderr.splitlines()
    return {
        "cpu": models[0].split(":", 1)[1].strip() if models else platform.machine(),
        "cores": os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "java": java[0] if java else "",
        "kafka": KAFKA_VERSION,
        "librdkafka": confluent_kafka.libversion()[0],
    }


def number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 1000 else f"{value:,.1f}" if value >= 10 else f"{value:.2f}"


def row(series: Series) -> str:
    cells = [f"{series.benchmark:4} {series.variant:46}"]
    for system in (series.beside, "tidelog"):
        spread = series.spread(system)
        band = f"[{number(spread[0])}–{number(spread[1])}]" if spread else ""
        cells.append(f"{number(series.median(system)):>9} {band:19}")
    cells.append(f"{series.unit:10}")
    cells.append(f"{series.ratio:6.2f}  " if series.ratio is not None else " " * 8)
    if series.reached is not None:
        sign = "≥" if series.better == "higher" else "≤"
        own = " itself" if series.goal_of == "value" else ""
        cells.append(f"{sign} {series.goal}{own}: {'yes' if series.reached else 'NO'}")
    return "".join(cells).rstrip()


def summary(all_series: list[Series], median_goals: dict[str, float]) -> list[str]:
    """Per benchmark: the median ratio and how many goals were reached."""
    lines = []
    for benchmark in dict.fromkeys(series.benchmark for series in all_series):
        of_one = [series for series in all_series if series.benchmark == benchmark]
        ratios = [series.ratio for series in of_one if series.ratio is not None]
        judged = [series.reached for series in of_one if series.reached is not None]
        if not ratios:
            continue
        middle = statistics.median(ratios)
        line = f"{benchmark:4} median ratio {middle:.2f}"
        if benchmark in median_goals:
            goal = median_goals[benchmark]
            line += f" (≥ {goal}: {'yes' if middle >= goal else 'NO'})"
        lines.append(f"{line}, {sum(judged)} of {len(judged)} goals reached")
    return lines


def table(results: Iterable[Series], limits: dict[str, float], median_goals: dict[str, float]) -> str:
    all_series = list(results)
    beside = all_series[0].beside if all_series else "kafka"
    lines = [f"{'':51}{beside:>9} {'[min–max]':19}{'tidelog':>9} {'[min–max]':19}{'unit':10} ratio  goal"]
    lines += [row(series) for series in all_series]
    lines += ["", *summary(all_series, median_goals), ""]
    lines.append("limits of the machine: " + ", ".join(f"{name} {value:,.0f} MB/s" for name, value in limits.items()))
    return "\n".join(lines)


def save(path: Path, results: Iterable[Series], limits: dict[str, float], how: dict[str, Any]) -> None:
    described = [
        {
            "benchmark": series.benchmark,
            "variant": series.variant,
            "unit": series.unit,
            "better": series.better,
            "values": series.values,
            "median": {system: series.median(system) for system in series.values},
            "ratio": series.ratio,
            "goal": series.goal,
            "goal_of": series.goal_of,
            "reached": series.reached,
        }
        for series in results
    ]
    document = {"machine": machine(), "limits_mb_per_s": limits, **how, "results": described}
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
