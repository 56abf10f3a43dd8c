"""Many seeds of the transactions' model, one after the other: `python tests/faults/transactions_soak.py --seeds 200`.

A seed that fails is printed with what went wrong; `--first SEED --seeds 1` runs it again.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback

from transactions_model import CONFIG, World

from tidelog.testing.broker import RunningBroker


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=1000, help="the first seed")
    parser.add_argument("--seeds", type=int, default=20, help="how many")
    parser.add_argument("--steps", type=int, default=200, help="of each seed")
    parser.add_argument("--crashes", type=int, default=3, help="of each seed")
    parser.add_argument("--rests", type=int, default=3, help="clean stops and kills while idle, of each seed")
    options = parser.parse_args()
    failed = []
    for seed in range(options.first, options.first + options.seeds):
        started = time.perf_counter()
        try:
            with RunningBroker(CONFIG) as broker:
                World(broker, seed).run(options.steps, options.crashes, options.rests)
            print(f"seed {seed}: ok in {time.perf_counter() - started:.1f} s", flush=True)
        except Exception:
            failed.append(seed)
            print(f"seed {seed}: failed", flush=True)
            traceback.print_exc()
    print(f"{options.seeds - len(failed)} of {options.seeds} seeds are ok" + (f"; failed: {failed}" if failed else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
