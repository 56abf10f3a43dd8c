"""The tests of the log room run in either layout: `pytest tests/log --layout=shared`."""

from __future__ import annotations

import logkit
import pytest


def pytest_configure(config: pytest.Config) -> None:
    logkit.in_shared_layout = config.getoption("--layout") == "shared"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if logkit.in_shared_layout:
        for item in items:
            if item.get_closest_marker("files") is not None:
                item.add_marker(pytest.mark.skip(reason="speaks of files of its own"))
