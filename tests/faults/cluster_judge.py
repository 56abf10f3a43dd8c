"""What the oracle claims, over plain values: what was acknowledged, what was read, and what lies on the disks."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

#: partition and offset
Place = tuple[int, int]
#: where a writer knows a record to be. librdkafka takes one for written without an offset when its acknowledgement was
#: lost and a later record of the same partition was acknowledged
Told = tuple[int, int | None]
#: what a reader saw where; a record is "<writer>:<number>", of a transaction "<transaction>:<partition>"
Seen = Mapping[Place, str]


@dataclass
class Verdict:
    violations: list[str] = field(default_factory=list)
    figures: dict[str, float] = field(default_factory=dict)

    def broken(self, claim: str, detail: str) -> None:
        self.violations.append(f"{claim}: {detail}")

    def __str__(self) -> str:
        figures = ", ".join(f"{name} {value:g}" for name, value in self.figures.items())
        if not self.violations:
            return f"all claims hold ({figures})"
        shown = "\n  ".join(self.violations[:20])
        return f"{len(self.violations)} violations ({figures})\n  {shown}"


@dataclass
class Outcomes:
    """What a writer knows of its transactions, by their names."""

    committed: set[str] = field(default_factory=set)
    aborted: set[str] = field(default_factory=set)
    #: neither was acknowledged
    unknown: set[str] = field(default_factory=set)


def judge_plain(
    acknowledged: Iterable[Mapping[str, Told]], seen: Seen, ends: Mapping[int, int], verdict: Verdict
) -> None:
    """`acknowledged`, of each writer: its records, and where they are said to be. `ends`: of the partitions."""
    places: dict[str, list[Place]] = defaultdict(list)
    for place, value in sorted(seen.items()):
        places[value].append(place)
    for of_writer in acknowledged:
        for key, (partition, offset) in of_writer.items():
            if not any(at == partition and offset in (found, None) for at, found in places.get(key, [])):
                verdict.broken("acknowledged", f"{key} at {partition}@{offset}: found at {places.get(key)}")
    for key, found in places.items():
        if len(found) > 1:
            verdict.broken("once", f"{key} is at {found}")
    for partition, end in ends.items():
        offsets = [offset for at, offset in seen if at == partition]
        if sorted(offsets) != list(range(end)):
            verdict.broken("dense", f"partition {partition} has {len(offsets)} records below its end {end}")
    last: dict[tuple[str, int], int] = {}
    for (partition, offset), value in sorted(seen.items()):
        name, number = value.rsplit(":", 1)
        if int(number) < last.get((name, partition), -1):
            verdict.broken("order", f"{value} at {partition}@{offset} comes after {last[name, partition]}")
        last[name, partition] = int(number)


def judge_transacted(outcomes: Outcomes, seen: Seen, partitions: int, verdict: Verdict) -> None:
    """`seen` by a reader of what is committed. A transaction writes one record to each partition."""
    found: dict[str, list[str]] = defaultdict(list)
    for value in seen.values():
        key, _, partition = value.rpartition(":")
        found[key].append(partition)
    whole = sorted(map(str, range(partitions)))
    for key in outcomes.committed:
        if sorted(found.get(key, [])) != whole:
            verdict.broken("atomic", f"{key} was committed, and shows {sorted(found.get(key, []))}")
    for key in outcomes.aborted:
        if key in found:
            verdict.broken("atomic", f"{key} was aborted, and shows {sorted(found[key])}")
    for key in outcomes.unknown & found.keys():
        if sorted(found[key]) != whole:
            verdict.broken("atomic", f"{key} shows in part: {sorted(found[key])}")


def judge_agreement(name: str, along: Seen, after: Seen, verdict: Verdict) -> None:
    """Who read along saw what is there afterwards, and all of it."""
    for place, value in along.items():
        if after.get(place) != value:
            verdict.broken("agreement", f"{name} saw {value} at {place}, where {after.get(place)} is now")
    for place in after.keys() - along.keys():
        verdict.broken("forward", f"{name} skipped {place}")


# --- replicas, byte by byte ---------------------------------------------------------------------------

_BATCH_START = struct.Struct(">qi")
_LAST_DELTA_AT = 23


def batches_of(directory: Path) -> Iterable[tuple[int, int, bytes]]:
    """(first offset, last offset, bytes) of each whole batch of a partition's log."""
    for path in sorted(directory.glob("*.log")):
        data, at = path.read_bytes(), 0
        while at + 61 <= len(data):
            base, size = _BATCH_START.unpack_from(data, at)
            end = at + 12 + size
            if size < 49 or end > len(data):
                break
            (delta,) = struct.unpack_from(">i", data, at + _LAST_DELTA_AT)
            yield base, base + delta, data[at:end]
            at = end


def unlike_replicas(data_dirs: Sequence[str | Path], topic: str, ends: dict[int, int]) -> list[str]:
    """What differs between the copies of a topic's partitions below their committed ends."""
    problems = []
    for partition, end in ends.items():
        copies: dict[str, dict[int, bytes]] = {}
        for data_dir in data_dirs:
            directory = Path(data_dir) / f"{topic}-{partition}"
            if directory.is_dir():
                copies[str(data_dir)] = {first: batch for first, last, batch in batches_of(directory) if last < end}
        if not copies:
            problems.append(f"{topic}-{partition} is on no disk")
            continue
        reference_name, reference = max(copies.items(), key=lambda item: len(item[1]))
        covered = sum(struct.unpack_from(">i", batch, _LAST_DELTA_AT)[0] + 1 for batch in reference.values())
        if covered != end:
            problems.append(f"{topic}-{partition} of {reference_name} holds {covered} offsets below {end}")
        for name, copy in copies.items():
            unlike = [first for first in reference if copy.get(first) != reference[first]]
            if unlike or copy.keys() - reference.keys():
                problems.append(f"{topic}-{partition} of {name} differs from {reference_name} at {unlike[:5]}")
    return problems
