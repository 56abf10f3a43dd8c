"""What the tests of faults measure with, and send."""

from __future__ import annotations

import os
import time

from bench import raw


def resident_bytes(pid: int) -> int:
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def batch(*values: bytes) -> bytes:
    return raw.record_batch(list(values), int(time.time() * 1000))
