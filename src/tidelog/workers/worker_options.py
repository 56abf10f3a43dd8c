"""What workers can be told, and what is wrong with it."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, get_args

from tidelog.workers.backlog import Order
from tidelog.workers.intake import HoldLimits
from tidelog.workers.retrying import Backoff

Protocol = Literal["classic", "consumer"]
#: with the topic in place of {topic}
DEAD_LETTERS: Final = "{topic}.dead-letters"
DEFAULT_BOOTSTRAP: Final = "localhost:9092"
#: what a record waits behind each worker, so that there is always somebody whose key is free
_PENDING_PER_WORKER: Final = 16
_LEAST_PENDING: Final = 1000
_PENDING_BYTES: Final = 64 << 20
#: settings of the clients that the workers depend on
_OURS: Final = {"group.id", "enable.auto.commit", "enable.auto.offset.store", "transactional.id"}


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    topics: tuple[str, ...]
    group: str
    concurrency: int = 64
    order: Order = "key"
    bootstrap: str = DEFAULT_BOOTSTRAP
    protocol: Protocol = "classic"
    #: run the handler in processes of their own, for work that keeps a CPU busy
    processes: bool = False
    handler_timeout_s: float | None = None
    backoff: Backoff = field(default_factory=Backoff)
    #: where a message goes whose attempts are used up; None: the workers stop instead
    dead_letters: str | None = DEAD_LETTERS
    transactional_id: str | None = None
    commit_interval_s: float = 1.0
    drain_timeout_s: float = 30.0
    max_pending: int | None = None
    config: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.topics or not all(self.topics):
            raise ValueError("give at least one topic")
        if not self.group:
            raise ValueError("give the group that the workers belong to")
        if self.order not in get_args(Order):
            raise ValueError(f"order is {self.order!r}: use 'key', 'partition' or 'none'")
        if self.protocol not in get_args(Protocol):
            raise ValueError(f"protocol is {self.protocol!r}: use 'classic' or 'consumer'")
        if self.concurrency < 1 or self.backoff.attempts < 1:
            raise ValueError("concurrency and attempts must be at least 1")
        if self.max_pending is not None and self.max_pending < self.concurrency:
            raise ValueError(
                f"max_pending is {self.max_pending}: it must be at least the concurrency, {self.concurrency}"
            )
        for name in ("commit_interval_s", "drain_timeout_s", "handler_timeout_s"):
            if (getattr(self, name) or 0) < 0:
                raise ValueError(f"{name} must not be negative")
        if taken := sorted(_OURS & self.config.keys()):
            raise ValueError(f"{', '.join(taken)}: the workers set this themselves, it cannot be in config")

    @property
    def limits(self) -> HoldLimits:
        pending = self.max_pending or max(_LEAST_PENDING, _PENDING_PER_WORKER * self.concurrency)
        return HoldLimits(pending, _PENDING_BYTES, min(self.concurrency, pending))

    @property
    def is_incremental(self) -> bool:
        """Whether partitions come and go one by one, instead of all at each rebalance."""
        return self.protocol == "consumer" or "cooperative" in str(self.config.get("partition.assignment.strategy", ""))

    def dead_letter_topic(self, topic: str) -> str | None:
        return None if self.dead_letters is None else self.dead_letters.replace("{topic}", topic)

    def consumer_config(self) -> dict[str, Any]:
        return {
            "client.id": f"tidelog-workers-{os.getpid()}",
            "logger": logging.getLogger("tidelog.workers"),
            "auto.offset.reset": "earliest",
            "bootstrap.servers": self.bootstrap,
            "group.protocol": self.protocol,
            "enable.partition.eof": True,
            **_of_consumers(self.config),
            "group.id": self.group,
            "enable.auto.commit": False,
        }

    def producer_config(self) -> dict[str, Any]:
        found = {
            "client.id": f"tidelog-workers-{os.getpid()}",
            "logger": logging.getLogger("tidelog.workers"),
            "bootstrap.servers": self.bootstrap,
            "enable.idempotence": True,
            "linger.ms": 5,
            # How large a record may be is up to the topic; a dead letter must not fail for less.
            "message.max.bytes": _LARGEST_RECORD,
            # Kafka's own choice of a partition, so that keys stay together with those of other clients.
            "partitioner": "murmur2_random",
            **_of_producers(self.config),
        }
        if self.transactional_id is not None:
            found.setdefault("transaction.timeout.ms", _TRANSACTION_TIMEOUT_MS)
            found["transactional.id"] = self.transactional_id
        return found


_LARGEST_RECORD: Final = 1_000_000_000
#: Whoever takes over from a dead process waits this long for its transaction to end.
_TRANSACTION_TIMEOUT_MS: Final = 15_000
#: settings that only one of the two clients knows; librdkafka complains where it is given the other's
_ONLY_CONSUMERS: Final = (
    "auto.offset", "check.crcs", "fetch.", "group.", "heartbeat.", "isolation.", "max.partition.fetch", "max.poll",
    "partition.assignment", "queued.", "session.",
)  # fmt: skip
_ONLY_PRODUCERS: Final = (
    "acks", "batch.", "compression", "delivery.", "enable.idempotence", "linger.", "message.timeout", "partitioner",
    "queue.buffering", "request.required", "retries", "transaction", "sticky.",
)  # fmt: skip


def _of_consumers(config: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in config.items() if not name.startswith(_ONLY_PRODUCERS)}


def _of_producers(config: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in config.items() if not name.startswith(_ONLY_CONSUMERS)}
