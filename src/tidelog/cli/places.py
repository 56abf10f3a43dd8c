"""Places in a log as people write them: `earliest`, `latest`, an offset, the last N, or a time.

earliest, beginning, latest, end
1200                 the offset 1200
-100                 the last hundred, counted back from the end
-1h, -90s, -2d       so long ago; units ms, s, m, h, d, w
2026-01-31, 2026-01-31T12:00, 2026-01-31T12:00:00.5Z, 12:30     a time; local unless it names its zone
@1767225600000       milliseconds since 1970
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from tidelog.config.units import duration_ms

if TYPE_CHECKING:
    from tidelog.client import Client
    from tidelog.client.reader import Isolation

_AGO: Final = re.compile(r"-((?:\d+(?:\.\d+)?(?:ms|s|m|h|d|w))+)")
_CLOCK: Final = re.compile(r"\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?")
_WORDS: Final = {"earliest": "earliest", "beginning": "earliest", "latest": "latest", "end": "latest"}


class Place(NamedTuple):
    """One of the four is set: a word, an offset, a count back from the end, a time."""

    word: str | None = None
    offset: int | None = None
    last: int | None = None
    time_ms: int | None = None


EARLIEST: Final = Place(word="earliest")
LATEST: Final = Place(word="latest")


def parse_place(text: str, now: datetime) -> Place:
    """ValueError, with examples of valid input, if the text is not a position."""
    text = text.strip()
    if text.lower() in _WORDS:
        return Place(word=_WORDS[text.lower()])
    if text.isascii() and text.isdigit():
        return Place(offset=int(text))
    if text.startswith("-") and text[1:].isascii() and text[1:].isdigit():
        return Place(last=int(text[1:]))
    return Place(time_ms=parse_time(text, now))


def parse_time(text: str, now: datetime) -> int:
    """Milliseconds since 1970."""
    if ago := _AGO.fullmatch(text):
        return max(0, _ms(now - timedelta(milliseconds=duration_ms(ago[1]))))
    if text.startswith("@") and text[1:].isascii() and text[1:].isdigit():
        return int(text[1:])
    if text.lower() == "now":
        return _ms(now)
    try:
        if _CLOCK.fullmatch(text):
            clock = datetime.strptime(text.zfill(5), "%H:%M" if text.count(":") == 1 else "%H:%M:%S")
            return _ms(
                now.astimezone().replace(hour=clock.hour, minute=clock.minute, second=clock.second, microsecond=0)
            )
        return max(0, _ms(datetime.fromisoformat(text)))
    except (ValueError, OverflowError):
        raise ValueError(
            f"{text!r} is neither an offset nor a time; for example earliest, latest, 1200, -100 (the last hundred), "
            "-1h (an hour ago), 2026-01-31T12:00 or @1767225600000"
        ) from None


def _ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


def iso(timestamp_ms: int) -> str | None:
    """Local time with its zone, to the millisecond; None where there is no such time."""
    if timestamp_ms < 0:
        return None
    seconds, ms = divmod(timestamp_ms, 1000)
    around = _second(seconds)
    return None if around is None else f"{around[0]}.{ms:03d}{around[1]}"


@lru_cache(maxsize=256)
def _second(seconds: int) -> tuple[str, str] | None:
    """What stands before and behind the milliseconds; records of one second share it."""
    try:
        text = datetime.fromtimestamp(seconds).astimezone().isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):
        return None
    return text[:19], text[19:]


def where(text: str) -> Place:
    """An argument of the command line as a place."""
    try:
        return parse_place(text, datetime.now().astimezone())
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def when(text: str) -> int:
    """An argument of the command line as a time in milliseconds."""
    try:
        return parse_time(text, datetime.now().astimezone())
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


class PartitionEnds(NamedTuple):
    """What a partition holds: first <= offset < end."""

    first: int
    end: int


def ends_of(
    client: Client, topic: str, partitions: Iterable[int] | None = None, isolation: Isolation = "read_uncommitted"
) -> dict[int, PartitionEnds]:
    wanted = None if partitions is None else list(partitions)
    first = client.offsets(topic, wanted, "earliest")
    end = client.offsets(topic, wanted, "latest", isolation)
    return {partition: PartitionEnds(first[partition].offset, end[partition].offset) for partition in first}


def resolve(client: Client, topic: str, place: Place, ends: dict[int, PartitionEnds]) -> dict[int, int]:
    """The offset that a place means in each partition; past the end where no record is that late."""
    if place.time_ms is not None:
        found = client.offsets(topic, list(ends), place.time_ms)
        return {p: at.offset if at.offset >= 0 else ends[p].end for p, at in found.items()}
    if place.offset is not None:
        return dict.fromkeys(ends, place.offset)
    if place.last is not None:
        return {p: max(e.first, e.end - place.last) for p, e in ends.items()}
    return {p: e.first if place.word == "earliest" else e.end for p, e in ends.items()}
