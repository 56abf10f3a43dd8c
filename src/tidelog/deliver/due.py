"""When a record of a delay topic is due: what its headers say, or else the topic's default.

    tidelog-deliver-at   milliseconds since 1970, as decimal text; a time that is over means now
    tidelog-delay        milliseconds after the record's timestamp, as decimal text

`tidelog-deliver-at` wins where a record has both, and the last one where it has several. All of it is in the log, so
whoever reads the record again comes to the same due time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

DELIVER_AT: Final = b"tidelog-deliver-at"
DELAY: Final = b"tidelog-delay"
#: a leap year
MAX_DELAY_MS: Final = 366 * 24 * 60 * 60 * 1000
#: of a number in a header: no time that may be named is longer
_MOST_DIGITS: Final = 18
_TOO_LATE_MS: Final = 1 << 63

RecordHeaders: TypeAlias = Iterable[tuple[bytes, bytes | None]]


def due_ms(timestamp: int, headers: RecordHeaders, default_delay_ms: int) -> int | str:
    """The due time, or what is wrong with the record."""
    named = b""
    text: bytes | None = None
    for name, value in headers:
        if name == DELIVER_AT or (name == DELAY and named != DELIVER_AT):
            named, text = name, value
    if not named:
        return _after(timestamp, default_delay_ms, "the topic's delay")
    what = named.decode()
    if text is None or not text.isdigit():
        return f"{what} is not a number of milliseconds"
    number = int(text) if len(text) <= _MOST_DIGITS else _TOO_LATE_MS
    if named == DELAY:
        return _after(timestamp, number, what)
    if number > max(timestamp, 0) + MAX_DELAY_MS:
        return f"{what} is more than a year after the record's timestamp"
    return number


def _after(timestamp: int, delay_ms: int, what: str) -> int | str:
    if delay_ms > MAX_DELAY_MS:
        return f"{what} is more than a year"
    if timestamp < 0:
        return f"{what} counts from the record's timestamp, and it has none"
    return timestamp + delay_ms
