"""`python -m tests.pipeline.exactly_once_soak --kills 50`: each record once, through many violent ends of a real Spark.

The runner is killed so often, its Python workers in between, and the broker is restarted, while records are produced.
At the end every record that was acknowledged must be in the table or among the dead letters, once.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2]), str(Path(__file__).parents[2] / "src")]

from bench.systems.kafka import ApacheKafka
from bench.systems.process import BrokerProcess
from bench.systems.tidelog import Tidelog
from pipeline_site import Site
from spark_lives import Feeder, Lives


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50, help="how often the runner is killed")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="repeats the choices of an earlier run")
    parser.add_argument("--rate", type=int, default=1000, help="records produced per second")
    parser.add_argument("--broker", choices=("tidelog", "kafka"), default="tidelog")
    options = parser.parse_args()
    system = {"tidelog": Tidelog, "kafka": ApacheKafka}[options.broker]
    began = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="tidelog-soak-") as scratch,
        system(Path(scratch) / "broker", {}) as broker,
    ):
        site = Site(broker.bootstrap, Path(scratch), "soak", partitions=4, growing=True)
        lives = rage(site, broker, options.kills, options.seed, options.rate)
        site.check_exactly_once()
        rows, dead = len(site.rows()), len(site.dead())
        orphans = len(list(Path(site.pipeline().table.path).glob("*.parquet"))) - len(site.table.file_uris())
    print(f"seed {options.seed}, {time.monotonic() - began:.0f} s: {dict(lives.faults)}")
    print(f"{len(site.acknowledged)} acknowledged = {rows} rows + {dead} dead letters, each once; {orphans} orphans")
    return 0


def rage(site: Site, broker: BrokerProcess, kills: int, seed: int, rate: int) -> Lives:
    def restart() -> None:
        broker.stop()
        broker.start()

    lives = Lives(site, restart, seed)
    with Feeder(site, rate):
        for number in range(1, kills + 1):
            lives.live()
            if number % 10 == 0:
                restart()
                lives.faults["broker restarted between"] += 1
                print(f"{number} kills, {len(site.acknowledged)} records acknowledged", flush=True)
    lives.finish()
    return lives


if __name__ == "__main__":
    sys.exit(main())
