"""Tidelog as `tidelog serve` runs it, with its default settings."""

from __future__ import annotations

import os
import sys

from bench.systems.java import REPOSITORY
from bench.systems.process import BrokerProcess


class Tidelog(BrokerProcess):
    name = "tidelog"

    def command(self) -> list[str]:
        settings = [part for name, value in self.config.items() for part in ("-X", f"{name}={value}")]
        where = ["--data-dir", str(self.data_dir), "--host", self.host, "--port", str(self.port)]
        return [sys.executable, "-m", "tidelog.cli.main", "serve", *where, *settings]

    def launch(self) -> None:
        # A checkout is measured as it stands, installed or not.
        paths = [str(REPOSITORY / "src"), os.environ.get("PYTHONPATH", "")]
        os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(filter(None, paths)))
        super().launch()
