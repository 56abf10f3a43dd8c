"""Orders in a topic, and what windows over them must come to."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime, timedelta

from tidelog.client import Client

START = datetime(2026, 1, 31, 12, tzinfo=UTC)
CUSTOMERS = ("ada", "bob", "cyd")
WINDOW_S = 10
#: Long after all others: with it every window before is complete.
LAST = START + timedelta(days=1)


def fill(bootstrap: str, topic: str, count: int, partitions: int = 2) -> None:
    """An order a second, in turn to the partitions, and one at the end that closes all windows."""
    with Client(bootstrap) as client:
        client.admin.create_topic(topic, partitions=partitions, configs={"retention.ms": "-1"})
        for partition in range(partitions):
            mine = [order(number) for number in range(partition, count, partitions)]
            client.produce(topic, [*mine, closing()], partition=partition)


def moment(number: int) -> datetime:
    # Some come earlier than the one before them, by less than what counts as late.
    return START + timedelta(seconds=number - number % 4 * 3)


def order(number: int) -> bytes:
    fields = {"at": moment(number).isoformat(), "customer": CUSTOMERS[number % 3], "amount": number % 7 + 0.5}
    return json.dumps(fields).encode()


def closing() -> bytes:
    return json.dumps({"at": LAST.isoformat(), "customer": "nobody", "amount": 0}).encode()


def fold(count: int) -> dict[tuple[datetime, str], tuple[int, float]]:
    """Orders and amount by window and customer."""
    orders: Counter[tuple[datetime, str]] = Counter()
    amounts: Counter[tuple[datetime, str]] = Counter()
    for number in range(count):
        at = moment(number)
        start = datetime.fromtimestamp(at.timestamp() // WINDOW_S * WINDOW_S, UTC)
        place = (start, CUSTOMERS[number % 3])
        orders[place] += 1
        amounts[place] += number % 7 + 0.5  # type: ignore[assignment]
    return {place: (orders[place], amounts[place]) for place in orders}
