"""The map of the house agrees with the house."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ROOMS = {path.parent.name for path in (ROOT / "src" / "tidelog").glob("*/__init__.py")}


def test_every_room_is_on_the_map_and_every_entry_is_a_room() -> None:
    table = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs" / "architecture.md").read_text(), re.MULTILINE)
    assert sorted(table) == sorted(ROOMS)


def test_every_room_says_what_it_is_takes_gives_and_never_does() -> None:
    for room in ROOMS:
        text = (ROOT / "src" / "tidelog" / room / "__init__.py").read_text()
        assert all(f"{word}:" in text for word in ("Is", "Takes", "Gives", "Never")), room


def test_decision_records_fit_on_a_page() -> None:
    for record in (ROOT / "docs" / "adr").glob("*.md"):
        assert len(record.read_text().splitlines()) <= 60, record.name
