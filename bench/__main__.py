"""`python -m bench`: measures, prints a table, writes JSON and draws a picture into bench/out."""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from bench import limits, picture, report, runner
from bench.cases import (
    b1_produce,
    b2_fetch,
    b3_latency,
    b4_small_requests,
    b5_start,
    b6_memory,
    b7_many_partitions,
    b8_replication,
    b9_failover,
    b10_groups,
    b11_transactions,
    b12_spark_read,
    b13_spark_table,
    b14_growth,
    b15_shared_layout,
    b16_shared_flush,
    b17_shared_start,
    b18_delays,
    b19_workers,
)
from bench.measure import Benchmark, Scale
from bench.systems.java import classpath
from bench.systems.tidelog import EarlierTidelog

ALL: tuple[Benchmark, ...] = tuple(
    case.BENCHMARK
    for case in (
        b1_produce,
        b2_fetch,
        b3_latency,
        b4_small_requests,
        b5_start,
        b6_memory,
        b7_many_partitions,
        b8_replication,
        b9_failover,
        b10_groups,
        b11_transactions,
        b12_spark_read,
        b13_spark_table,
        b14_growth,
        b15_shared_layout,
        b16_shared_flush,
        b17_shared_start,
        b18_delays,
        b19_workers,
    )
)
QUICK_WORK = 0.3


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure Tidelog beside Apache Kafka.")
    known = ", ".join(f"{one.id} {one.title}" for one in ALL)
    parser.add_argument("--only", help=f"benchmarks, separated by commas: {known}")
    parser.add_argument("--rounds", type=int, help="rounds per benchmark (default 3; 1 with --quick)")
    parser.add_argument(
        "--quick", action="store_true", help="less of everything: checks that it works, not for quoting"
    )
    parser.add_argument("--systems", default="kafka,tidelog", help="which systems to measure (default both)")
    parser.add_argument(
        "--before",
        type=Path,
        help="another checkout of Tidelog, after `make setup`, in place of Kafka",
    )
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "out", help="where the results go")
    parser.add_argument("--dir", type=Path, help="where the brokers keep their data (default: the temporary directory)")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    wanted = options.only.split(",") if options.only else [one.id for one in ALL]
    benchmarks = [one for one in ALL if one.id in wanted]
    systems = [name for name in options.systems.split(",") if name]
    if options.before is not None:
        EarlierTidelog.checkout = options.before.resolve()
        systems = ["before", "tidelog"]
    unknown = [*set(wanted) - {one.id for one in ALL}, *set(systems) - set(runner.SYSTEMS)]
    if unknown:
        raise SystemExit(f"unknown: {', '.join(unknown)}")
    rounds = options.rounds or (1 if options.quick else 3)
    scale = Scale(QUICK_WORK if options.quick else 1.0)
    classpath()
    began = time.time()
    with tempfile.TemporaryDirectory(prefix="tidelog-bench-", dir=options.dir) as parent:
        runner.say("limits of the machine")
        measured = limits.measure(Path(parent), (128 if options.quick else 512) << 20)
        results = runner.run(benchmarks, systems, rounds, scale, Path(parent))
    median_goals = {one.id: one.median_goal for one in benchmarks if one.median_goal is not None}
    print(report.table(results, measured, median_goals))
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / time.strftime("bench-%Y%m%d-%H%M%S.json", time.localtime(began))
    how = {"rounds": rounds, "quick": options.quick, "systems": systems, "seconds": round(time.time() - began)}
    report.save(path, results, measured, how)
    print(f"\nwritten: {path}")
    if picture.draw(results, path, f"Tidelog beside Apache Kafka, {rounds} rounds, medians"):
        print(f"drawn:   {path.with_suffix('.svg')}, {path.with_suffix('.png')}")


if __name__ == "__main__":
    main()
