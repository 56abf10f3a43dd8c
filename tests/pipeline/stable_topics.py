"""Waiting until readers of committed records see whatever was committed."""

from __future__ import annotations

import time

from tidelog.client import Client


def await_stable(client: Client, topic: str) -> None:
    """Returns when no transaction is undecided: then what is read as committed ends where the topic ends.

    The end of a transaction is answered before its markers are written, and a marker counts when all replicas that are
    in sync have it.
    """
    deadline = time.monotonic() + 30
    while True:
        ends, stable = client.offsets(topic), client.offsets(topic, isolation="read_committed")
        if {partition: at.offset for partition, at in ends.items()} == {p: at.offset for p, at in stable.items()}:
            return
        assert time.monotonic() < deadline, f"a transaction is still open: {topic} ends at {ends}, stable is {stable}"
        time.sleep(0.02)
