"""Tidelog as `tidelog serve` runs it, with its default settings."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from bench.systems.java import REPOSITORY
from bench.systems.process import BrokerProcess
from tidelog.testing.broker import DEFAULTS


class Tidelog(BrokerProcess):
    name = "tidelog"
    checkout = REPOSITORY
    python = sys.executable

    def command(self) -> list[str]:
        settings = [part for name, value in {**DEFAULTS, **self.config}.items() for part in ("-X", f"{name}={value}")]
        where = ["--data-dir", str(self.data_dir), "--host", self.host, "--port", str(self.port)]
        return [self.python, "-m", "tidelog.cli.main", "serve", *where, *settings]

    def launch(self) -> None:
        # A checkout is measured as it stands, installed or not.
        before = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = str(self.checkout / "src")
        try:
            super().launch()
        finally:
            if before is None:
                del os.environ["PYTHONPATH"]
            else:
                os.environ["PYTHONPATH"] = before


class EarlierTidelog(Tidelog):
    """Another checkout, to see what a change costs."""

    name = "before"
    checkout = Path()

    @staticmethod
    def python_of(checkout: Path) -> str:
        return str(checkout / ".venv" / "bin" / "python")

    def command(self) -> list[str]:
        return [self.python_of(self.checkout), *super().command()[1:]]
