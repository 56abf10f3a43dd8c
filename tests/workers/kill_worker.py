"""One process of workers that write down what they do: `python kill_worker.py PLAN`, a JSON object."""

from __future__ import annotations

import json
import logging
import os
import random
import signal
import sys
import time
from typing import Any

from tidelog.workers import Message, Send, Workers


class Journal(logging.Handler):
    def __init__(self, path: str, name: str) -> None:
        super().__init__(logging.DEBUG)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._name = name

    def write(self, *words: object) -> None:
        os.write(self._file, " ".join(map(str, (time.monotonic_ns(), self._name, *words))).encode() + b"\n")

    def emit(self, record: logging.LogRecord) -> None:
        if record.msg.startswith("committed "):
            _, partition, offset, metadata = record.args  # type: ignore[misc]
            self.write("commit", partition, offset, metadata)
        elif record.levelno >= logging.WARNING:
            print(record.getMessage(), file=sys.stderr, flush=True)


def main() -> None:
    plan: dict[str, Any] = json.loads(sys.argv[1])
    journal = Journal(plan["journal"], plan["name"])
    logger = logging.getLogger("tidelog.workers")
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    logger.addHandler(journal)

    def handle(message: Message) -> Send | None:
        assert message.key is not None and message.value is not None
        words = (message.partition, message.offset, message.key.decode(), int(message.value))
        journal.write("start", *words)
        time.sleep(random.random() * plan["most_s"])
        journal.write("done", *words)
        return Send(plan["out"], message.value, message.key) if plan["out"] else None

    workers = Workers(plan["topic"], plan["group"], handle, **plan["options"])
    signal.signal(signal.SIGTERM, lambda *_: workers.stop())
    workers.run()


if __name__ == "__main__":
    main()
