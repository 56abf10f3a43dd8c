"""Ctrl-C as something to ask for, so that a program ends between two rounds of its work and not within one."""

from __future__ import annotations

import signal


class Interrupt:
    """True once Ctrl-C was pressed; a second one ends the program at once."""

    def __init__(self) -> None:
        self._heard = False
        signal.signal(signal.SIGINT, self._hear)

    def __bool__(self) -> bool:
        return self._heard

    def _hear(self, number: int, frame: object) -> None:
        self._heard = True
        signal.signal(number, signal.SIG_DFL)
