"""Opening a log: what a crash may leave, what is cut, what is written anew, and what is not read at all."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from logkit import KEY, NOW_MS, append, fetched, new_log, produced, reopened, system_log, values

from tidelog.log.config import LogConfig
from tidelog.log.directories.claim import Claim
from tidelog.log.directories.recovery import open_log
from tidelog.log.log import Log
from tidelog.log.log_dir import LogDir
from tidelog.log.memory_disk import MemoryDisk
from tidelog.wire.batch import iter_headers, read_header

pytestmark = pytest.mark.files


def filled(path: Path, batches: int = 6, config: LogConfig | None = None) -> Log:
    log = system_log(path, config)
    for number in range(batches):
        append(log, 2, timestamp=number, value=b"%d" % number * 20, leader_epoch=number // 2)
    return log


def test_a_tail_cut_anywhere_recovers_to_the_last_whole_batch(tmp_path: Path) -> None:
    log = filled(tmp_path)
    path = Path(log.segments.active.log_path)
    content = path.read_bytes()
    ends = [position + header.size_bytes for position, header in iter_headers(content)]
    everything = values(log)
    for size in range(len(content), -1, -7):
        path.write_bytes(content[:size])
        again = reopened(log)
        whole = sum(end <= size for end in ends)
        assert again.log_end_offset == 2 * whole
        assert values(again) == everything[: 2 * whole]
        assert path.stat().st_size == ([0, *ends])[whole]
        assert [epoch for epoch, _ in again.leader_epochs.entries()] == list(range((whole + 1) // 2))


def plausible(spans: list[tuple[int, int]], position: int, content: bytearray) -> bool:
    """The epoch stands in no CRC: one that lies between those of its neighbours cannot be told from the right one."""
    epochs = [read_header(bytes(content), start).leader_epoch for start, _ in spans]
    return min(epochs) >= 0 and epochs == sorted(epochs)


def test_a_flipped_bit_anywhere_is_never_served_as_good(tmp_path: Path) -> None:
    log = filled(tmp_path)
    path = Path(log.segments.active.log_path)
    content = path.read_bytes()
    spans = [(position, position + header.size_bytes) for position, header in iter_headers(content)]
    everything = values(log)
    random = Random(1)
    for position, end in spans:
        for at in range(position, end):
            damaged = bytearray(content)
            damaged[at] ^= 1 << random.randrange(8)
            if position + 12 <= at < position + 16 and plausible(spans, position, damaged):
                continue
            path.write_bytes(damaged)
            again = reopened(log)
            good = sum(start < position for start, _ in spans)
            # Where offset or epoch of a batch are damaged, the one before may be given up with it.
            assert 2 * (good - 1) <= again.log_end_offset <= 2 * good, (position, at)
            assert values(again) == everything[: again.log_end_offset]
            assert again.leader_epochs.entries() == [(n, 4 * n) for n in range((again.log_end_offset + 3) // 4)]


@pytest.mark.parametrize("garbage", [b"\0" * 500, b"\xff" * 500, b"x", Random(3).randbytes(5000)])
def test_trailing_garbage_is_cut(tmp_path: Path, garbage: bytes) -> None:
    log = filled(tmp_path)
    path = Path(log.segments.active.log_path)
    size = path.stat().st_size
    path.write_bytes(path.read_bytes() + garbage)
    again = reopened(log)
    assert again.log_end_offset == 12 and path.stat().st_size == size
    append(again, 1)
    assert values(again)[-1] == (12, b"value")


def test_damage_in_the_middle_drops_all_that_follows(tmp_path: Path) -> None:
    log = filled(tmp_path, 20, LogConfig(segment_bytes=500))
    assert len(log.segments) > 3
    second = log.segments[1]
    path = Path(second.log_path)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    end_offset = second.base_offset + 2 * (len(list(iter_headers(bytes(content)))) - 1)
    again = reopened(log)
    assert again.log_end_offset == end_offset and len(again.segments) == 2
    names = {path.name[:20] for path in Path(log.path).glob("*.log")}
    assert names == {f"{segment.base_offset:020d}" for segment in again.segments}


def test_of_what_lies_below_the_recovery_point_only_the_ends_are_read(tmp_path: Path) -> None:
    disk = MemoryDisk()
    log = new_log(disk, "/data", LogConfig(segment_bytes=16_000))
    for _ in range(100):
        append(log, 1, value=bytes(300))
    log.flush()
    last = log.segments.active.base_offset
    disk.counts.clear()
    again = reopened(log, recovery_point=last)
    assert again.log_end_offset == 100 and len(again.segments) == 3
    assert disk.counts["pread"] < 20


def test_a_clean_start_scans_nothing(tmp_path: Path) -> None:
    disk = MemoryDisk()
    log = new_log(disk, "/data", LogConfig(segment_bytes=1 << 20))
    for _ in range(1000):
        append(log, 1, value=bytes(300))
    log.close()
    disk.counts.clear()
    again = reopened(log, clean=True)
    assert again.log_end_offset == 1000 and again.recovery_point == 1000
    assert disk.counts["pread"] < 10 and disk.counts.get("map", 0) == 0


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("fate", ["missing", "zeros", "odd", "of another segment"])
def test_an_index_that_is_no_good_is_written_anew(tmp_path: Path, clean: bool, suffix: str, fate: str) -> None:
    log = filled(tmp_path, 30, LogConfig(segment_bytes=1500, index_interval_bytes=100))
    everything = values(log)
    log.close()
    paths = sorted(Path(log.path).glob("*" + suffix))
    before = [path.read_bytes() for path in paths]
    for path in paths:
        if fate == "missing":
            path.unlink()
        elif fate == "zeros":
            path.write_bytes(path.read_bytes() + bytes(1200))
        elif fate == "odd":
            path.write_bytes(path.read_bytes() + b"odd")
        else:
            path.write_bytes(b"\x7f" * len(path.read_bytes()))
    again = reopened(log, clean=clean)
    assert values(again) == everything
    for target in range(31):
        found = again.offset_for_timestamp(target)
        assert (None if found is None else found.offset) == (2 * target if target < 30 else None)
    again.close()
    assert [path.read_bytes() for path in paths] == before


def test_an_index_without_its_log_is_removed(tmp_path: Path) -> None:
    log = filled(tmp_path)
    orphan = Path(log.path) / f"{77:020d}.index"
    orphan.write_bytes(bytes(8))
    assert reopened(log).log_end_offset == 12
    assert not orphan.exists()


def test_leftovers_of_interrupted_work_are_cleared(tmp_path: Path) -> None:
    log = filled(tmp_path)
    directory = Path(log.path)
    for name in (f"{0:020d}.log.deleted", f"{5:020d}.log.cleaned", f"{5:020d}.index.cleaned", "leader-epoch.tmp"):
        (directory / name).write_bytes(b"left over")
    assert reopened(log).log_end_offset == 12
    assert not [path for path in directory.iterdir() if path.suffix in (".deleted", ".cleaned", ".tmp")]


def test_a_finished_compaction_takes_the_place_of_what_it_compacted(tmp_path: Path) -> None:
    log = filled(tmp_path, 6)
    log.roll(NOW_MS)
    append(log, 1, value=b"active")
    log.close()
    directory = Path(log.path)
    # The compacted segment kept offsets 8 and 9 only, and was about to be renamed when the broker died.
    kept = fetched(8, 2, produced(2, value=b"kept"))
    (directory / f"{0:020d}.log.swap").write_bytes(kept)
    (directory / f"{0:020d}.index.swap").write_bytes(b"")
    (directory / f"{0:020d}.timeindex.swap").write_bytes(b"")
    again = reopened(log, clean=True)
    assert values(again) == [(8, b"kept"), (9, b"kept"), (12, b"active")]
    assert not list(directory.glob("*.swap"))


def test_a_compaction_that_was_not_finished_is_undone(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.close()
    directory = Path(log.path)
    (directory / f"{0:020d}.log.swap").write_bytes(fetched(8, 2, produced(2)))
    (directory / f"{0:020d}.log.cleaned").write_bytes(b"half")
    assert len(values(reopened(log, clean=True))) == 12


def test_a_compacted_log_keeps_its_gaps(tmp_path: Path) -> None:
    log = system_log(tmp_path, LogConfig(cleanup_policy=("compact",)))
    for offset in (0, 7, 20):
        log.append_as_follower(fetched(offset, 0, produced(1, key=b"k", value=b"%d" % offset)), NOW_MS)
    log.roll(NOW_MS, 30)
    log.append_as_follower(fetched(31, 0, produced(1, key=b"k", value=b"31")), NOW_MS)
    again = reopened(log)
    assert values(again) == [(0, b"0"), (7, b"7"), (20, b"20"), (31, b"31")]
    piece = again.read(3, 1 << 20, 32)
    assert piece is not None and next(iter_headers(piece.read()))[1].base_offset == 7


def test_segments_that_lost_their_footing_are_dropped(tmp_path: Path) -> None:
    """Power loss took the end of an unflushed segment, but not the segment after it: a hole must not stay."""
    log = filled(tmp_path, 20, LogConfig(segment_bytes=500))
    first = Path(log.segments[0].log_path)
    content = first.read_bytes()
    ends = [position + header.size_bytes for position, header in iter_headers(content)]
    first.write_bytes(content[: ends[-2]])
    again = reopened(log)
    assert again.log_end_offset == 2 * (len(ends) - 1)
    assert [offset for offset, _ in values(again)] == list(range(again.log_end_offset))


def test_a_log_whose_files_end_before_it_begins_starts_there(tmp_path: Path) -> None:
    log = filled(tmp_path)
    again = reopened(log, log_start_offset=50)
    assert again.log_start_offset == again.log_end_offset == 50
    assert again.leader_epochs.entries() == []
    append(again, 1)
    assert values(again) == [(50, b"value")]


def test_offsets_that_were_given_away_are_not_given_away_again(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.close()
    for path in Path(log.path).iterdir():
        path.unlink()
    assert reopened(log, recovery_point=12).log_end_offset == 12


def test_the_log_start_survives_a_restart(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.advance_log_start_offset(5)
    log.close()
    again = reopened(log, clean=True, log_start_offset=5)
    assert again.log_start_offset == 5
    assert again.leader_epochs.entries() == [(1, 5), (2, 8)]


def test_a_torn_epoch_file_is_rebuilt_from_what_is_recovered(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.close()
    (Path(log.path) / "leader-epoch-checkpoint").write_bytes(b"0\n3\n0 0\n1")
    assert reopened(log).leader_epochs.entries() == [(0, 0), (1, 4), (2, 8)]


def told(log: Log) -> list[str]:
    return log.directory.notices


def test_a_flipped_bit_tells_what_it_costs(tmp_path: Path) -> None:
    log = filled(tmp_path, 20)
    path = Path(log.segments.active.log_path)
    content = bytearray(path.read_bytes())
    spans = [(position, header) for position, header in iter_headers(bytes(content))]
    content[spans[3][0] + 70] ^= 1
    path.write_bytes(content)
    again = reopened(log)
    assert again.log_end_offset == 6
    (line,) = told(again)
    assert "partition 0 of topic t has lost offsets 6 to 39:" in line
    assert str(path) in line and f"at byte {spans[3][0]}" in line


def test_segments_that_are_dropped_are_told(tmp_path: Path) -> None:
    log = filled(tmp_path, 20, LogConfig(segment_bytes=500))
    second = log.segments[1]
    path = Path(second.log_path)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    again = reopened(log)
    (line,) = told(again)
    assert f"has lost offsets {again.log_end_offset} to 39:" in line
    assert str(path) in line and log.segments[2].log_path in line


@pytest.mark.parametrize("fate", ["missing", "log file missing", "empty"])
def test_a_hole_in_what_was_flushed_is_told_and_kept(tmp_path: Path, fate: str) -> None:
    log = filled(tmp_path, 20, LogConfig(segment_bytes=500))
    log.flush()
    second, third = log.segments[1], log.segments[2]
    for path in Path(log.path).glob(f"{second.base_offset:020d}.*"):
        if fate == "empty" and path.suffix == ".log":
            path.write_bytes(b"")
        elif (fate == "missing" and path.suffix != ".snapshot") or (fate != "empty" and path.suffix == ".log"):
            path.unlink()
    again = reopened(log, recovery_point=log.segments.active.base_offset)
    (line,) = told(again)
    assert f"has lost offsets {second.base_offset} to {third.base_offset - 1}:" in line and second.log_path in line
    left = [offset for offset, _ in values(again)]
    assert left == [*range(second.base_offset), *range(third.base_offset, 40)]


@pytest.mark.parametrize("cut_bytes", [3, 150])
def test_a_flushed_segment_that_was_cut_is_told_and_what_lies_behind_it_is_read(tmp_path: Path, cut_bytes: int) -> None:
    log = filled(tmp_path, 20, LogConfig(segment_bytes=500))
    log.flush()
    second, third = log.segments[1], log.segments[2]
    path = Path(second.log_path)
    path.write_bytes(path.read_bytes()[:-cut_bytes])
    again = reopened(log, recovery_point=log.segments.active.base_offset)
    (line,) = told(again)
    left = [offset for offset, _ in values(again)]
    lost = sorted(set(range(40)) - set(left))
    assert f"has lost offsets {lost[0]} to {third.base_offset - 1}:" in line and second.log_path in line
    assert lost == list(range(lost[0], third.base_offset))


def test_junk_behind_a_flushed_segment_is_cut_off(tmp_path: Path) -> None:
    log = filled(tmp_path, 20, LogConfig(segment_bytes=500))
    log.flush()
    path = Path(log.segments[1].log_path)
    whole = path.read_bytes()
    path.write_bytes(whole + b"junk" * 75)
    again = reopened(log, recovery_point=log.segments.active.base_offset)
    assert path.read_bytes() == whole and len(values(again)) == 40
    assert told(again)


def test_what_the_recovery_point_vouched_for_is_told(tmp_path: Path) -> None:
    log = filled(tmp_path, 6)
    path = Path(log.segments.active.log_path)
    path.write_bytes(b"")
    (line,) = told(reopened(log, recovery_point=12))
    assert "has lost offsets 0 to 11:" in line and str(path) in line


def test_a_crash_that_cost_nothing_tells_nothing(tmp_path: Path) -> None:
    assert told(reopened(filled(tmp_path, 20, LogConfig(segment_bytes=500)), recovery_point=10)) == []
    assert told(reopened(filled(tmp_path / "x", 6, LogConfig(preallocate=True, segment_bytes=4000)))) == []


def test_what_the_high_watermark_vouched_for_is_told(tmp_path: Path) -> None:
    log = filled(tmp_path, 20, LogConfig(segment_bytes=500))
    last = log.segments.active
    Path(last.log_path).write_bytes(b"")
    directory = LogDir(log.directory.disk, log.directory.path)
    open_log(directory, log.path, KEY, log.config, Claim(False, last.base_offset, high_watermark=40), NOW_MS)
    (line,) = directory.notices
    assert f"has lost offsets {last.base_offset} to 39:" in line and last.log_path in line
