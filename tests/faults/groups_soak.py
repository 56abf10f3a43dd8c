"""`python -m tests.faults.groups_soak --seconds 60`: groups whose members are mistreated for as long as one likes.

Runs the variants of `test_faults_groups.py`, each for the given time, against Tidelog or, with `--broker kafka`, an
Apache Kafka: what the real one does not pass is a mistake of the check.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2])]

from bench.systems.kafka import ApacheKafka
from bench.systems.tidelog import Tidelog
from groups_chaos import BROKER_CONFIG, Arena
from groups_oracle import GroupHistory, errors_of, lost_without_a_reason, refused_commits, violations
from groups_variants import VARIANTS


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="how long each variant is mistreated")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="repeats the choices of an earlier run")
    parser.add_argument("--only", choices=VARIANTS, help="one variant instead of all")
    parser.add_argument("--broker", choices=("tidelog", "kafka"), default="tidelog")
    parser.add_argument("--keep", type=Path, help="where the journals stay (default: nowhere)")
    options = parser.parse_args()
    system = {"tidelog": Tidelog, "kafka": ApacheKafka}[options.broker]
    failed = False
    for name in [options.only] if options.only else list(VARIANTS):
        with tempfile.TemporaryDirectory(prefix="tidelog-soak-") as scratch:
            journals = (options.keep or Path(scratch)) / name
            journals.mkdir(parents=True, exist_ok=True)
            with (
                system(Path(scratch) / "broker", BROKER_CONFIG) as broker,
                Arena(broker, VARIANTS[name], journals, options.seed) as arena,
            ):
                arena.rage(options.seconds)
                arena.settle()
            print(f"{name}, seed {options.seed}: {dict(arena.faults)}, {sum(arena.ends.values())} records")
            for group, plan in zip(arena.histories().items(), arena.plans, strict=True):
                failed |= tell(*group, plan.commit)
    return int(failed)


def tell(group: str, history: GroupHistory, commit: str) -> bool:
    found = violations(history, commit)
    processed = sum(1 for member in history.members for _ in member.processed())
    print(
        f"  {group}: commits {commit} processing, {len(history.members)} members, {processed} processed, "
        f"{len(history.commits)} commits, refused: {sorted(refused_commits(history.members), key=str)}, "
        f"errors: {sorted(errors_of(history.members))}, lost for no reason: {len(lost_without_a_reason(history))}"
    )
    for violation in found[:20]:
        print(f"    VIOLATED: {violation}")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
