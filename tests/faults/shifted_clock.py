"""`tidelog serve` on a machine whose wall clock is wrong: by as many seconds as a file says, whenever it changes.

    python -m tests.faults.shifted_clock FILE serve …

Only the wall clock is shifted. That the rest goes by the monotonic one is what is to be shown.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from pathlib import Path

from tidelog.cli.main import main
from tidelog.clock import SystemClock

_shift_ms = 0


def _follow(file: Path) -> None:
    global _shift_ms
    while True:
        with contextlib.suppress(OSError, ValueError):
            _shift_ms = int(float(file.read_text()) * 1000)
        time.sleep(0.1)


def _shifted_wall_ms(clock: SystemClock) -> int:
    return time.time_ns() // 1_000_000 + _shift_ms


if __name__ == "__main__":
    threading.Thread(target=_follow, args=(Path(sys.argv.pop(1)),), daemon=True).start()
    SystemClock.wall_ms = _shifted_wall_ms  # type: ignore[method-assign]
    main()
