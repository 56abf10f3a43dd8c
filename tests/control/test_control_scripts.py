"""Scripts of what happens to a cluster, with the outcome of each event below it; they lie in `scripts`.

After each line the invariants of `control_cluster` are checked. To write down the outcomes of a new script, run the
tests with REWRITE_SCRIPTS=1 and read what it wrote.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from control_cluster import run_script

SCRIPTS = sorted((Path(__file__).parent / "scripts").glob("*.txt"))


@pytest.mark.parametrize("path", SCRIPTS, ids=[path.stem for path in SCRIPTS])
def test_the_cluster_does_what_the_script_says(path: Path) -> None:
    script = path.read_text()
    seen = run_script(script)
    if os.environ.get("REWRITE_SCRIPTS"):
        path.write_text(seen)
    assert seen == script


def test_there_are_scripts() -> None:
    assert SCRIPTS
