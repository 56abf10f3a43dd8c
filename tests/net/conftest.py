from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from net_site import Site

from tidelog.clock import SystemClock
from tidelog.net import Limits, Loop
from tidelog.timer import Timer


@pytest.fixture
def make_site() -> Iterator[Callable[..., Site]]:
    sites: list[Site] = []

    def make(**limits: int) -> Site:
        sites.append(Site(Limits(**limits)))
        return sites[-1]

    yield make
    for site in sites:
        site.close()


@pytest.fixture
def site(make_site: Callable[..., Site]) -> Site:
    return make_site()


@pytest.fixture
def system_loop() -> Iterator[Loop]:
    """A loop on the real clock, for what needs `run`."""
    clock = SystemClock()
    loop = Loop(clock, Timer(clock.monotonic_ms()))
    yield loop
    loop.close()
