"""What is told at which path: /metrics, /livez, /readyz, /version.

Several that ask for metrics at once share one page. /livez answers as long as the broker's loop turns; /readyz says
whether clients can be served.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Callable
from typing import TYPE_CHECKING

from tidelog import __version__
from tidelog.metrics.exposition import CONTENT_TYPE
from tidelog.metrics.http_server import TEXT
from tidelog.timer.slices import Slices

if TYPE_CHECKING:
    from tidelog.broker import Broker
    from tidelog.metrics.collector import Collector
    from tidelog.metrics.http_server import HttpConnection
    from tidelog.timer.slices import Job


class Endpoints:
    """`why_not_ready()` is None for a broker that serves."""

    def __init__(self, broker: Broker, collector: Collector, why_not_ready: Callable[[], str | None]) -> None:
        self._broker = broker
        self._collector = collector
        self._why_not_ready = why_not_ready
        self._lane = Slices(broker.host, 0)
        self._waiting: list[HttpConnection] = []
        self._paths = {
            "/metrics": self._metrics,
            "/livez": lambda asked: _tell(asked, 200, {"alive": True}),
            "/readyz": self._ready,
            "/version": self._version,
        }

    def answer(self, asked: HttpConnection) -> None:
        known = self._paths.get(asked.path)
        if known is None:
            asked.respond(404, TEXT, [f"there is {', '.join(self._paths)}\n".encode()])
        else:
            known(asked)

    def _ready(self, asked: HttpConnection) -> None:
        why = self._why_not_ready()
        _tell(asked, 200, {"ready": True}) if why is None else _tell(asked, 503, {"ready": False, "why": why})

    def _version(self, asked: HttpConnection) -> None:
        cluster = self._broker.cluster
        about = {"tidelog": __version__, "python": platform.python_version()}
        _tell(asked, 200, {**about, "broker": cluster.id, "cluster": cluster.cluster_id})

    def _metrics(self, asked: HttpConnection) -> None:
        self._waiting.append(asked)
        if len(self._waiting) == 1:
            self._lane.add(self._collect())

    def _collect(self) -> Job:
        try:
            yield from self._collector.collect(self._told)
        except Exception:
            waiting, self._waiting = self._waiting, []
            for asked in waiting:
                asked.respond(500, TEXT, [b"the metrics could not be collected: the broker's log says why\n"])
            raise

    def _told(self, chunks: list[bytes]) -> None:
        waiting, self._waiting = self._waiting, []
        for asked in waiting:
            asked.respond(200, CONTENT_TYPE, chunks)


def _tell(asked: HttpConnection, status: int, told: dict[str, object]) -> None:
    asked.respond(status, "application/json", [json.dumps(told).encode() + b"\n"])
