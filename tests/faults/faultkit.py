"""What the tests of faults measure with, and send."""

from __future__ import annotations

import os
import time

from bench import raw


def resident_bytes(pid: int) -> int:
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def most_resident_bytes(pid: int) -> int:
    """The most that the process has had in memory so far."""
    with open(f"/proc/{pid}/status") as file:
        (kilobytes,) = (line.split()[1] for line in file if line.startswith("VmHWM:"))
    return int(kilobytes) * 1024


def batch(*values: bytes) -> bytes:
    return raw.record_batch(list(values), int(time.time() * 1000))
