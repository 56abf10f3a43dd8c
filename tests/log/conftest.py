"""The tests of the log room run in either layout: `pytest tests/log --layout=shared`."""

from __future__ import annotations

import logkit
import pytest


def pytest_configure(config: pytest.Config) -> None:
    logkit.in_shared_layout = config.getoption("--layout") == "shared"
