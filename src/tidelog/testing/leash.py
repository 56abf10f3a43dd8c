"""Processes that end with the one that started them, however that ends.

What `leash` gives is put before a command line: it asks the kernel to kill the process when its parent dies
(PR_SET_PDEATHSIG), and becomes the command, which keeps that wish. It ends at once if the parent died meanwhile. What
counts is the thread that starts the process: use this only where that thread lives as long as the program.
"""

from __future__ import annotations

import os
import sys

_PROGRAM = """\
import ctypes, os, signal, sys
PR_SET_PDEATHSIG = 1
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
if os.getppid() != int(sys.argv[1]):
    sys.exit(1)
os.execvp(sys.argv[2], sys.argv[2:])
"""


def leash() -> tuple[str, ...]:
    """What is put before the command line of a process that must not outlive this one."""
    return (sys.executable, "-I", "-S", "-c", _PROGRAM, str(os.getpid()))
