"""What must be true of workers that were killed at random, judged by what they wrote down.

A journal is a file of lines, each written with one call, so that a kill leaves whole lines: the time (of a clock that
all processes share), the process, and what happened.

    start PARTITION OFFSET KEY NUMBER       a handler begins; NUMBER counts the records of a key
    done PARTITION OFFSET KEY NUMBER        it is over
    commit PARTITION OFFSET METADATA        a commit was acknowledged
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from tidelog.workers.offset_map import decode

Place = tuple[int, int]


class Event(NamedTuple):
    at: int
    process: str
    kind: str
    place: Place
    key: str
    number: int
    metadata: str


def read_journals(paths: Iterable[Path]) -> list[Event]:
    events = []
    for path in paths:
        for line in path.read_text().splitlines():
            at, process, kind, partition, offset, *rest = line.split(" ")
            key, number = (rest[0], int(rest[1])) if kind != "commit" else ("", 0)
            metadata = rest[0] if kind == "commit" and rest else ""
            events.append(Event(int(at), process, kind, (int(partition), int(offset)), key, number, metadata))
    return sorted(events)


def violations(events: list[Event], written: Mapping[str, int], killed: Mapping[str, int]) -> list[str]:
    """`written`: key -> how many records it has. `killed`: process -> when it was killed."""
    starts = [event for event in events if event.kind == "start"]
    dones = [event for event in events if event.kind == "done"]
    return [
        *_lost(dones, written),
        *_out_of_order(starts, dones),
        *_repeated_though_committed(starts, [event for event in events if event.kind == "commit"]),
        *_repeated_for_no_reason(starts, killed),
    ]


def repeats(events: list[Event]) -> int:
    starts = [event.place for event in events if event.kind == "start"]
    return len(starts) - len(set(starts))


def _lost(dones: list[Event], written: Mapping[str, int]) -> Iterable[str]:
    handled = {(event.key, event.number) for event in dones}
    for key, count in written.items():
        missing = [number for number in range(count) if (key, number) not in handled]
        if missing:
            yield f"{key}: never handled: {missing[:10]}"


def _out_of_order(starts: list[Event], dones: list[Event]) -> Iterable[str]:
    """No record begins before the one before it is done, and whoever repeats one repeats what came after it."""
    first_done: dict[tuple[str, int], int] = {}
    for event in dones:
        first_done.setdefault((event.key, event.number), event.at)
    last_start: dict[tuple[str, int], int] = {}
    begun: set[tuple[str, int]] = set()
    for event in starts:
        this, before = (event.key, event.number), (event.key, event.number - 1)
        if this not in begun and event.number > 0 and first_done.get(before, event.at) >= event.at:
            yield f"{event.key}: {event.number} began before {event.number - 1} was done"
        begun.add(this)
        last_start[this] = event.at
    for (key, number), at in last_start.items():
        after = last_start.get((key, number + 1))
        if after is not None and after < at:
            yield f"{key}: {number} was repeated after {number + 1}"


def _repeated_though_committed(starts: list[Event], commits: list[Event]) -> Iterable[str]:
    """What an acknowledged commit tells to be finished does not begin again."""
    times: dict[int, list[tuple[int, Event]]] = defaultdict(list)
    for commit in commits:
        times[commit.place[0]].append((commit.at, commit))
    for start in starts:
        partition, offset = start.place
        for at, commit in times[partition]:
            if at < start.at and _covers(commit, offset):
                yield f"{start.place} began though {commit.process} had committed it ({commit.place[1]})"
                break


def _covers(commit: Event, offset: int) -> bool:
    base = commit.place[1]
    if offset < base:
        return True
    known = decode(base, commit.metadata)
    return known is not None and offset < known.end and offset not in known.unfinished


def _repeated_for_no_reason(starts: list[Event], killed: Mapping[str, int]) -> Iterable[str]:
    """Only what a killed process had in hand begins again."""
    before: dict[Place, Event] = {}
    for start in starts:
        earlier = before.get(start.place)
        if earlier is not None and killed.get(earlier.process, start.at) >= start.at:
            yield f"{start.place} began again in {start.process}, though {earlier.process} was not killed"
        before[start.place] = start
