"""What damage to a disk costs, and what is said of it: `python -m tests.faults.damage_soak`.

Each damage is done to the files of a real broker, after a clean stop and after a kill; then it starts again, and a
stock client reads everything. Besides, a directory that is gone, and a volume that is full: both while the broker runs.
For each: what was lost, what was said, what was served. It ends with 1 where more was lost than the damage explains,
where a loss was not told, or where aborted records or another topic were touched.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.faults.damagekit import (
    CONFIG,
    DAMAGES,
    RECORDS,
    Damage,
    SmallVolume,
    Volume,
    await_notice,
    committed,
    damaged,
    notices,
    produce,
    produce_many,
    served,
)

from tidelog.testing.broker import BrokerFailed, RunningBroker

KAFKA_STORAGE_ERROR = 56


class Row(NamedTuple):
    damage: str
    lost: str
    said: str
    served: str
    faults: list[str]


def try_damage(name: str, damage: Damage, clean: bool) -> Row:
    title = f"{name}, after a {'clean stop' if clean else 'kill'}"
    try:
        with damaged(damage, clean) as broker:
            return judge(title, damage, broker)
    except BrokerFailed as error:
        return Row(title, "everything", str(error).splitlines()[0], "nothing", ["the broker did not start"])


def judge(title: str, damage: Damage, broker: RunningBroker) -> Row:
    told = [line for line in notices(broker) if "lost" in line or "torn" in line or "metadata" in line]
    found = served(broker, "t")
    lost = RECORDS - len(found.offsets)
    faults = []
    if lost > damage.may_lose:
        faults.append(f"{lost} records lost, {damage.may_lose} explained")
    if damage.is_told and not told:
        faults.append("nothing was said")
    if found.aborted:
        faults.append(f"{found.aborted} aborted records served")
    if found.error and damage.is_told:
        faults.append(found.error)
    if len(served(broker, "other").offsets) != 100:
        faults.append("another topic was touched")
    if (offset := committed(broker, "t")) != 42:
        faults.append(f"the committed offset is {offset}")
    if (code := produce(broker, "t", b"next").error_code) != 0:
        faults.append(f"an append is refused with {code}")
    end = f", then {found.error}" if found.error else ""
    return Row(title, f"{lost} of {RECORDS}", told[0] if told else "nothing", f"{len(found.offsets)}{end}", faults)


def lose_directory() -> Row:
    """The whole data directory goes while the broker runs."""
    title = "data directory removed under the broker"
    scratch = Path(tempfile.mkdtemp(prefix="tidelog-soak-"))
    broker = RunningBroker(CONFIG, data_dir=scratch / "data")
    try:
        broker.start()
        produce_many(broker, "t", 100)
        shutil.rmtree(scratch / "data")
        deadline = time.monotonic() + 30
        while broker.running and time.monotonic() < deadline:
            time.sleep(0.2)
        said = notices(broker)
        named = any(str(scratch / "data") in line for line in said)
        running = "the broker goes on" if broker.running else "the broker has stopped"
        return Row(title, "all", said[-1] if said else "nothing", running, [] if named else ["it was not named"])
    finally:
        broker.kill()
        broker.close()
        shutil.rmtree(scratch, ignore_errors=True)


def fill_volume() -> Row:
    """A small volume is filled; retention frees it while it is full, and then the filling goes."""
    config = {
        **CONFIG,
        "log.retention.check.interval.ms": "1000",
        "log.segment.delete.delay.ms": "500",
        "log.retention.ms": "25000",
    }
    try:
        with SmallVolume(24 << 20) as volume, RunningBroker(config, data_dir=volume.path / "data") as broker:
            return Row("full volume", *full(broker, volume))
    except Volume as error:
        return Row("full volume", "-", f"not tried: {error}", "-", [])


def full(broker: RunningBroker, volume: SmallVolume) -> tuple[str, str, str, list[str]]:
    faults = []
    produce_many(broker, "t", RECORDS)
    volume.fill()
    acknowledged = RECORDS
    while (answer := produce(broker, "t", b"y" * 9000)).error_code == 0:
        acknowledged += 1
    if answer.error_code != KAFKA_STORAGE_ERROR:
        faults.append(f"a write on a full volume is answered with {answer.error_code}")
    read = len(served(broker, "t").offsets)
    if read != acknowledged:
        faults.append(f"{read} of {acknowledged} records served while full")
    said = await_notice(broker, "is full")
    # Retention first looks after half a minute; everything has expired by then, and goes although the volume is full.
    deadline = time.monotonic() + 90
    while (refused := produce(broker, "t", b"z" * 9000).error_code) and time.monotonic() < deadline:
        time.sleep(0.5)
    if refused:
        faults.append("retention has not freed the volume")
    volume.make_room()
    if produce(broker, "t", b"z" * 9000).error_code:
        faults.append("writes are refused although there is room")
    said += "; " + await_notice(broker, "space again")
    return "nothing", said, f"{read} while full, writes again after retention", faults


def rows(names: list[str]) -> Iterator[Row]:
    for name, damage in DAMAGES.items():
        if not names or any(part in name for part in names):
            for clean in (True, False):
                yield try_damage(name, damage, clean)
    if not names or any(part in "data directory" for part in names):
        yield lose_directory()
    if not names or any(part in "full volume" for part in names):
        yield fill_volume()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="parts of the names of damages; all where none is given")
    options = parser.parse_args()
    wrong = 0
    for row in rows(options.names):
        print(f"{row.damage}\n    lost    {row.lost}\n    said    {row.said}\n    served  {row.served}", flush=True)
        for fault in row.faults:
            wrong += 1
            print(f"    WRONG   {fault}", flush=True)
    print(f"{wrong} things are wrong" if wrong else "every loss is explained and told")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
