"""The judge of faults can tell: records that are lost, doubled, out of order or missing, and replicas that differ."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path

import pytest
from bench import raw
from tests.faults.cluster_judge import (
    Outcomes,
    Place,
    Told,
    Verdict,
    judge_agreement,
    judge_plain,
    judge_transacted,
    unlike_replicas,
)

#: two partitions, one writer, whose records go to them in turn
GOOD = {(0, 0): "w:0", (1, 0): "w:1", (0, 1): "w:2", (1, 1): "w:3"}


def told(seen: dict[Place, str], acknowledged: dict[str, Told] | None = None) -> set[str]:
    """Which claims the judge finds broken."""
    verdict = Verdict()
    known: Mapping[str, Told] = {value: place for place, value in GOOD.items()}
    if acknowledged is not None:
        known = acknowledged
    ends = {partition: max(at for p, at in seen if p == partition) + 1 for partition in (0, 1)}
    judge_plain([known], seen, ends, verdict)
    return {violation.split(":")[0] for violation in verdict.violations}


def test_what_is_as_it_should_be_breaks_no_claim() -> None:
    assert told(GOOD) == set()
    assert told({**GOOD, (0, 2): "w:4"}) == set(), "a record that was never acknowledged may be there"


def test_a_record_that_was_acknowledged_without_an_offset_may_be_anywhere_in_its_partition() -> None:
    assert told(GOOD, {"w:3": (1, None)}) == set()
    assert told(GOOD, {"w:3": (0, None)}) == {"acknowledged"}
    assert told(GOOD, {"w:5": (1, None)}) == {"acknowledged"}


def test_a_lost_record_is_told() -> None:
    assert told({place: value for place, value in GOOD.items() if value != "w:3"}) == {"acknowledged"}


def test_a_record_that_another_took_the_place_of_is_told() -> None:
    assert told({**GOOD, (1, 1): "other:9"}) == {"acknowledged"}


def test_a_record_at_another_offset_than_was_acknowledged_is_told() -> None:
    assert told(GOOD, {"w:3": (1, 7)}) == {"acknowledged"}


def test_a_doubled_record_is_told() -> None:
    assert told({**GOOD, (1, 2): "w:3"}) == {"once"}
    assert told({**GOOD, (1, 2): "w:2"}) == {"once", "order"}


def test_records_out_of_order_are_told() -> None:
    assert told({**GOOD, (0, 0): "w:2", (0, 1): "w:0"}, {}) == {"order"}


def test_a_gap_in_the_offsets_is_told() -> None:
    moved = {**GOOD, (1, 2): "w:3"}
    del moved[1, 1]
    assert told(moved, {}) == {"dense"}


@pytest.mark.parametrize(
    ("outcomes", "seen", "is_broken"),
    [
        (Outcomes(committed={"t:1"}), {(0, 0): "t:1:0", (1, 0): "t:1:1"}, False),
        (Outcomes(committed={"t:1"}), {(0, 0): "t:1:0"}, True),
        (Outcomes(committed={"t:1"}), {}, True),
        (Outcomes(committed={"t:1"}), {(0, 0): "t:1:0", (1, 0): "t:1:1", (1, 1): "t:1:1"}, True),
        (Outcomes(aborted={"t:1"}), {}, False),
        (Outcomes(aborted={"t:1"}), {(0, 0): "t:1:0", (1, 0): "t:1:1"}, True),
        (Outcomes(unknown={"t:1"}), {}, False),
        (Outcomes(unknown={"t:1"}), {(0, 0): "t:1:0", (1, 0): "t:1:1"}, False),
        (Outcomes(unknown={"t:1"}), {(1, 0): "t:1:1"}, True),
    ],
    ids=["whole", "torn", "lost", "doubled", "aborted", "shown", "nothing", "everything", "half"],
)
def test_a_torn_transaction_is_told(outcomes: Outcomes, seen: dict[Place, str], is_broken: bool) -> None:
    verdict = Verdict()
    judge_transacted(outcomes, seen, 2, verdict)
    assert bool(verdict.violations) == is_broken
    assert all(violation.startswith("atomic") for violation in verdict.violations)


def test_a_reader_that_saw_something_else_or_skipped_is_told() -> None:
    verdict = Verdict()
    judge_agreement("reader", GOOD, GOOD, verdict)
    assert not verdict.violations
    judge_agreement("reader", {**GOOD, (0, 0): "w:9"}, GOOD, verdict)
    assert [violation.split(":")[0] for violation in verdict.violations] == ["agreement"]
    judge_agreement("reader", {(0, 0): "w:0"}, {(0, 0): "w:0", (0, 1): "w:2"}, verdict)
    assert verdict.violations[-1].startswith("forward")


def write_replica(data_dir: Path, *batches: tuple[int, bytes]) -> None:
    directory = data_dir / "t-0"
    directory.mkdir(parents=True)
    log = b""
    for offset, value in batches:
        encoded = raw.record_batch([value], 1)
        log += struct.pack(">q", offset) + encoded[8:]
    (directory / f"{0:020}.log").write_bytes(log)


@pytest.mark.parametrize(
    ("other", "is_alike"),
    [
        ([(0, b"a"), (1, b"b")], True),
        ([(0, b"a"), (1, b"b"), (2, b"not committed")], True),
        ([(0, b"a"), (1, b"c")], False),
        ([(0, b"a")], False),
        ([(1, b"b")], False),
        ([], False),
    ],
    ids=["the same", "more", "another record", "too short", "without its start", "empty"],
)
def test_replicas_that_differ_below_the_committed_end_are_told(
    tmp_path: Path, other: list[tuple[int, bytes]], is_alike: bool
) -> None:
    write_replica(tmp_path / "1", (0, b"a"), (1, b"b"))
    write_replica(tmp_path / "2", *other)
    assert (unlike_replicas([tmp_path / "1", tmp_path / "2"], "t", {0: 2}) == []) == is_alike


def test_replicas_that_all_lack_a_record_are_told(tmp_path: Path) -> None:
    for broker in ("1", "2"):
        write_replica(tmp_path / broker, (0, b"a"), (2, b"c"))
    assert unlike_replicas([tmp_path / "1", tmp_path / "2"], "t", {0: 3})


def test_a_partition_that_is_on_no_disk_is_told(tmp_path: Path) -> None:
    assert unlike_replicas([tmp_path], "t", {0: 1})
