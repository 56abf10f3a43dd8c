"""A promise that was broken."""

from __future__ import annotations


class Violation(Exception):
    """`promise` names what was broken, the same for every seed; the message has the particulars."""

    def __init__(self, promise: str, particulars: str) -> None:
        super().__init__(f"{promise}: {particulars}")
        self.promise = promise
        self.particulars = particulars
