"""What a measurement leaves for the next one."""

from __future__ import annotations

import os
from pathlib import Path

from bench.runner import give_room_back


def test_files_are_emptied_and_stay_and_nothing_outside_is_touched(tmp_path: Path) -> None:
    used, outside = tmp_path / "used", tmp_path / "outside"
    (used / "t-0").mkdir(parents=True)
    (used / "t-0" / "0.log").write_bytes(b"records")
    for name in ("linked", "named twice"):
        (tmp_path / name).write_bytes(b"stays")
    outside.mkdir()
    (outside / "file").write_bytes(b"stays")
    (used / "to a file").symlink_to(tmp_path / "linked")
    (used / "to a directory").symlink_to(outside)
    os.link(tmp_path / "named twice", used / "other name")
    give_room_back(used)
    assert (used / "t-0" / "0.log").read_bytes() == b""
    left = [tmp_path / "linked", tmp_path / "named twice", outside / "file"]
    assert [path.read_bytes() for path in left] == [b"stays"] * 3
