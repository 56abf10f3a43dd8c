"""What the broker has to say while it runs: one line a statement on stderr, for a person or for a collector.

On a terminal a line is readable; elsewhere it is one JSON object. Python's logging is not used: importing it costs a
tenth of the broker's start, and nothing on a hot path speaks.
"""

from __future__ import annotations

import sys
import time
from typing import Final, TextIO

LEVELS: Final = ("debug", "info", "warning", "error")
#: the levels of Apache Kafka's loggers, by which the least level can be set
KAFKA_LEVELS: Final = {
    "TRACE": "debug",
    "DEBUG": "debug",
    "INFO": "info",
    "WARN": "warning",
    "ERROR": "error",
    "FATAL": "error",
}


class Journal:
    __slots__ = ("_as_json", "_least", "_stream")

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self.set_level("INFO")
        self._as_json = not self._stream.isatty()

    def set_level(self, level: str) -> None:
        """Messages below this level are dropped; it is one of `KAFKA_LEVELS`."""
        self._least = LEVELS.index(KAFKA_LEVELS[level])

    def info(self, message: str) -> None:
        self.say("info", message)

    def warning(self, message: str) -> None:
        self.say("warning", message)

    def error(self, message: str, error: BaseException | None = None) -> None:
        """With its traceback, where there is one: what reaches this place was not foreseen."""
        trace = ""
        if error is not None:
            import traceback

            message = f"{message}: {error!r}"
            trace = "".join(traceback.format_exception(error))
        self.say("error", message, trace)

    def say(self, level: str, message: str, trace: str = "") -> None:
        if LEVELS.index(level) < self._least:
            return
        now = time.time()
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now * 1000) % 1000:03d}Z"
        if self._as_json:
            import json

            entry = {"time": at, "level": level, "message": message}
            if trace:
                entry["trace"] = trace
            line = json.dumps(entry)
        else:
            line = f"{at} {level:7} {message}" + (f"\n{trace}" if trace else "")
        try:
            self._stream.write(line + "\n")
            self._stream.flush()
        except (OSError, ValueError):
            # Nobody listens any more; the broker goes on.
            return
