"""`make faults`: the table of faults on a cluster of real processes, each row under load and judged by the oracle.

    python -m tests.faults.cluster_faults [--only leader-kills,pause]

Prints a line per row as it goes, and a table of verdicts at the end. Exit code 1 if a claim was broken.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
import traceback
from importlib import import_module

from tests.faults.cluster_judge import Verdict
from tests.faults.cluster_rows import ROWS

for _part in ("life", "stopping", "storage", "transactions", "clock"):
    import_module(f"tests.faults.cluster_rows_{_part}")  # they enter their rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="rows, separated by commas")
    parser.add_argument("--list", action="store_true", help="show the rows, and run none")
    options = parser.parse_args()
    if options.list:
        for name, row in ROWS.items():
            print(f"{name:22} {row.__doc__}")
        return 0
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)
    wanted = [name for name in options.only.split(",") if name] or list(ROWS)
    if unknown := [name for name in wanted if name not in ROWS]:
        parser.error(f"no such rows: {', '.join(unknown)}. There are {', '.join(ROWS)}")
    verdicts: dict[str, Verdict] = {}
    for number, name in enumerate(wanted, 1):
        print(f"[{number}/{len(wanted)}] {name}: {ROWS[name].__doc__}", flush=True)
        start = time.monotonic()
        try:
            verdicts[name] = ROWS[name]()
        except Exception as error:
            verdicts[name] = Verdict([f"{type(error).__name__}: {error}"])
            if not isinstance(error, AssertionError):
                traceback.print_exc()
        verdicts[name].figures["took s"] = round(time.monotonic() - start)
        print(f"    {verdicts[name]}", flush=True)
    print(f"\n{'row':22} {'verdict':12} figures")
    for name, verdict in verdicts.items():
        told = f"{len(verdict.violations)} broken" if verdict.violations else "holds"
        print(f"{name:22} {told:12} {', '.join(f'{what} {value:g}' for what, value in verdict.figures.items())}")
    return 1 if any(verdict.violations for verdict in verdicts.values()) else 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # threads of clients that could not finish are left behind
