"""The command line against one real broker, called in this process."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tidelog.cli.main import tidelog
from tidelog.client import Client
from tidelog.testing.broker import RunningBroker

_numbers = itertools.count()


class Shell:
    """Runs `tidelog` with arguments; the exit code must be the expected one."""

    def __init__(self, bootstrap: str | None) -> None:
        self._environment = {"TIDELOG_BOOTSTRAP": bootstrap, "COLUMNS": "120"}

    def __call__(self, *arguments: str, input: str | bytes | None = None, code: int = 0) -> Result:
        result = CliRunner().invoke(tidelog, arguments, input=input, env=self._environment, prog_name="tidelog")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == code, f"exit code {result.exit_code}\n{result.stdout}\n{result.stderr}"
        return result

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "-o", "json").stdout)

    def lines(self, *arguments: str, **options: Any) -> list[Any]:
        """What a command prints as JSON lines."""
        return [json.loads(line) for line in self(*arguments, "-o", "json", **options).stdout.splitlines()]


@pytest.fixture
def run(tidelog_broker_session: RunningBroker) -> Shell:
    return Shell(tidelog_broker_session.bootstrap)


@pytest.fixture
def alone() -> Shell:
    """No broker listens where this one looks."""
    return Shell("127.0.0.1:1")


@pytest.fixture
def client(tidelog_broker_session: RunningBroker) -> Iterator[Client]:
    with Client(tidelog_broker_session.bootstrap) as client:
        yield client


@pytest.fixture
def unique() -> Callable[[str], str]:
    return lambda kind: f"{kind}-{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def topic(client: Client, unique: Callable[[str], str]) -> str:
    name = unique("topic")
    client.admin.create_topic(name, 3, 1)
    return name
