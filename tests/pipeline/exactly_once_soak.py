"""`python -m tests.pipeline.exactly_once_soak --kills 50`: each record once, through many violent ends of a real Spark.

The runner is killed so often, its Python workers in between, and the broker is restarted, while records are produced
and another Delta writer works on the table (`meddler`). At the end every record that was acknowledged must be in the
table or among the dead letters, once, but for those that the other one deletes.

`--queries 3` is about the other way: so many streaming queries of one driver write a topic to others, and driver, tasks
and committing processes are killed at steps of their commits (`writer_chaos`). At the end every target has each record
once.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2]), str(Path(__file__).parents[2] / "src")]

from bench.systems.kafka import ApacheKafka
from bench.systems.process import BrokerProcess
from bench.systems.spark import prepare_environment
from bench.systems.tidelog import Tidelog
from meddler import Meddler, delete_known, is_deleted
from pipeline_site import Site
from spark_lives import Feeder, Lives
from stable_topics import await_stable

from tidelog.client import Client, Message

DEATHS = (
    *("kill-0", "raise-1", "before-decision", "after-decision", "among-commits", "before-done", "after-done"),
    *("driver-after-decision", "driver-among-commits", "driver-before-done"),
)

#: how often the last life, which has no planned death, is tried
LAST_LIVES = 5


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50, help="how often the runner is killed")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="repeats the choices of an earlier run")
    parser.add_argument("--rate", type=int, default=1000, help="records produced per second")
    parser.add_argument("--broker", choices=("tidelog", "kafka"), default="tidelog")
    parser.add_argument("--queries", type=int, default=0, help="instead of a pipeline: so many queries into topics")
    options = parser.parse_args()
    system = {"tidelog": Tidelog, "kafka": ApacheKafka}[options.broker]
    began = time.monotonic()
    if options.queries:
        with (
            tempfile.TemporaryDirectory(prefix="tidelog-soak-") as scratch,
            system(Path(scratch) / "broker", {}) as broker,
        ):
            deaths = write(broker, Path(scratch), options.queries, options.kills, options.seed)
        print(
            f"seed {options.seed}, {time.monotonic() - began:.0f} s: {dict(deaths)}; each record once in every target"
        )
        return 0
    with (
        tempfile.TemporaryDirectory(prefix="tidelog-soak-") as scratch,
        system(Path(scratch) / "broker", {}) as broker,
    ):
        site = Site(broker.bootstrap, Path(scratch), "soak", partitions=4, growing=True)
        with Meddler(site.pipeline().table.path, options.seed) as other:
            lives = rage(site, broker, options.kills, options.seed, options.rate)
        delete_known(site.table)
        site.check_exactly_once(is_deleted)
        rows, dead = len(site.rows("_offset")), len(site.dead("offset"))
        orphans = len(list(Path(site.pipeline().table.path).glob("*.parquet"))) - len(site.table.file_uris())
    print(f"seed {options.seed}, {time.monotonic() - began:.0f} s: {dict(lives.faults)}; beside it {dict(other.done)}")
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


def write(broker: BrokerProcess, directory: Path, queries: int, kills: int, seed: int) -> Counter[str]:
    """Lives of a driver with so many queries, each with a death planned; then one without, and the oracle."""
    dice, deaths, sent = random.Random(seed), Counter[str](), 0
    targets = [f"target-{number}" for number in range(queries)]
    plan = directory / "plan"
    plan.mkdir()
    prepare_environment()
    with Client(broker.bootstrap) as client:
        for topic in ("source", *targets):
            client.admin.create_topic(topic, 3)

        def live() -> subprocess.CompletedProcess[str]:
            command = [sys.executable, str(Path(__file__).parent / "writer_query.py"), broker.bootstrap, "source"]
            command += [",".join(targets), str(directory), str(dice.randrange(20, 200))]
            return subprocess.run(command, capture_output=True, text=True, timeout=600)

        for _ in range(kills):
            for partition in range(3):
                values = [b"%d" % number for number in range(sent, sent + 200)]
                client.produce("source", [Message(value, key=value) for value in values], partition=partition)
                sent += 200
            death = dice.choice(DEATHS)
            (plan / death).write_text("")
            ended = live()
            for left in plan.iterdir():
                left.unlink()
            deaths[death if ended.returncode else "ended before its death"] += 1
        # On a machine that is short of time Spark gives up on a Python worker after ten seconds.
        ended = next((end for end in (live() for _ in range(LAST_LIVES)) if end.returncode == 0), None)
        assert ended is not None, "the last life, without a planned death, never came to its end"
        for target in targets:
            await_stable(client, target)
            found = [
                int(record.value or b"")
                for partition in range(3)
                for record in client.read(target, partition, isolation="read_committed")
            ]
            assert sorted(found) == list(range(sent)), f"{target}: {len(found)} records, {len(set(found))} different"
    return deaths


if __name__ == "__main__":
    sys.exit(main())
