"""A promise that was broken."""

from __future__ import annotations


class Violation(Exception):
    """`promise` names what was broken, the same for every seed; the message has the particulars."""

    def __init__(self, promise: str, particulars: str) -> None:
        super().__init__(f"{promise}: {particulars}")
        self.promise = promise
        self.particulars = particulars

    def __reduce__(self) -> tuple[type[Violation], tuple[str, str]]:
        """It travels from one process to another."""
        return Violation, (self.promise, self.particulars)
