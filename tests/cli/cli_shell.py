"""The command line, called in this process."""

from __future__ import annotations

import json
from typing import Any

from click.testing import CliRunner, Result

from tidelog.cli.main import tidelog


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

    def json(self, *arguments: str, code: int = 0) -> Any:
        return json.loads(self(*arguments, "-o", "json", code=code).stdout)

    def lines(self, *arguments: str, **options: Any) -> list[Any]:
        """What a command prints as JSON lines."""
        return [json.loads(line) for line in self(*arguments, "-o", "json", **options).stdout.splitlines()]
