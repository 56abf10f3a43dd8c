"""What is counted of one kind of request: how many there were, how long they took, and which errors they got.

Counting costs a request one addition. Looking at the clock costs more, so from the thousandth request on one of sixteen
is timed and stands for all of them. Whatever is made of the numbers is made when somebody asks. A time falls into the
bucket of its length in bits: bucket `n` holds what took at least 2^(n-1) and less than 2^n nanoseconds.
"""

from __future__ import annotations

from typing import Final

#: 2^63 ns are 292 years
BUCKETS: Final = 64
#: requests that are timed one by one, and of how many one is timed after them
TIMED_SINGLY: Final = 1000
TIMED_OF: Final = 16


class RequestMeter:
    __slots__ = ("buckets", "count", "errors", "mask", "of_followers", "total_ns")

    def __init__(self) -> None:
        self.count = 0
        #: a request is timed where these bits of its number are zero
        self.mask = 0
        self.buckets = [0] * BUCKETS
        self.total_ns = 0
        #: error code -> how often it was answered
        self.errors: dict[int, int] = {}
        #: counts instead, where the request comes from a follower and that makes a difference
        self.of_followers: RequestMeter | None = None

    def took(self, time_ns: int) -> None:
        stands_for = self.mask + 1
        self.buckets[time_ns.bit_length()] += stands_for
        self.total_ns += time_ns * stands_for
        if self.count >= TIMED_SINGLY:
            self.mask = TIMED_OF - 1

    def failed(self, code: int) -> None:
        self.errors[code] = self.errors.get(code, 0) + 1
