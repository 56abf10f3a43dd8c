"""What is counted of one kind of request: how many were answered, how long that took, and with which errors.

It costs a request a look at the clock and two additions; whatever is made of the numbers is made when somebody asks. A
time falls into the bucket of its length in bits, so that bucket `n` holds what took at least 2^(n-1) and less than 2^n
nanoseconds.
"""

from __future__ import annotations

from typing import Final

#: 2^63 ns are 292 years
BUCKETS: Final = 64


class Meter:
    __slots__ = ("buckets", "errors", "of_followers", "total_ns")

    def __init__(self) -> None:
        self.buckets = [0] * BUCKETS
        self.total_ns = 0
        #: error code -> how often it was answered
        self.errors: dict[int, int] = {}
        #: counts instead, where the request comes from a follower and that makes a difference
        self.of_followers: Meter | None = None

    @property
    def count(self) -> int:
        return sum(self.buckets)

    def failed(self, code: int) -> None:
        self.errors[code] = self.errors.get(code, 0) + 1
