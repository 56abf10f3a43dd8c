from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from api_site import Site


@pytest.fixture
def new_site(tmp_path: Path) -> Iterator[Callable[..., Site]]:
    """`new_site(dirs=2, **{"message.max.bytes": "100"})`: a broker with settings of its own."""
    made: list[Site] = []

    def make(dirs: int = 1, **settings: str) -> Site:
        site = Site(tmp_path / f"site-{len(made)}", settings, dirs)
        made.append(site)
        return site

    yield make
    for site in made:
        site.stop()
        assert not site.reports, site.reports


@pytest.fixture
def site(new_site: Callable[..., Site]) -> Site:
    return new_site()
