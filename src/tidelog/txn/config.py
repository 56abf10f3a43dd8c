"""The coordinator's settings, under Kafka's names and with Kafka's defaults.

`TxnConfig.from_properties` takes any mapping of Kafka's names to typed values and keeps what concerns transactions.
`transaction.abort.timed.out.transaction.cleanup.interval.ms` has no part here: an overdue transaction is aborted by
its own timer, not by a scan.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

T = TypeVar("T")

# A decision that a timer asked for and that could not be carried out is tried again after this time.
RETRY_BACKOFF_MS = 500
# Markers that a partition could not take are sent again after this time: long enough for a leader to change.
MARKER_RETRY_BACKOFF_MS = 100
# Tombstones of one batch stay below this size, whatever max.message.bytes says (its default is twice as much).
MAX_TOMBSTONE_BYTES = 512 * 1024
# What a record takes beside its key and value, at most.
RECORD_OVERHEAD_BYTES = 21


def _named(name: str, default: T) -> T:
    return field(default=default, metadata={"name": name})


@dataclass(slots=True, frozen=True)
class TxnConfig:
    num_partitions: int = _named("transaction.state.log.num.partitions", 50)
    max_timeout_ms: int = _named("transaction.max.timeout.ms", 15 * 60 * 1000)
    id_expiration_ms: int = _named("transactional.id.expiration.ms", 7 * 24 * 60 * 60 * 1000)
    id_cleanup_interval_ms: int = _named("transaction.remove.expired.transaction.cleanup.interval.ms", 60 * 60 * 1000)
    # The finalized level of the feature: 1 stores values in version 1, 2 bumps the epoch at every end (KIP-890).
    transaction_version: int = _named("transaction.version", 2)

    @classmethod
    def from_properties(cls, properties: Mapping[str, Any]) -> TxnConfig:
        given = {setting.name: properties.get(setting.metadata["name"]) for setting in fields(cls)}
        return cls(**{name: value for name, value in given.items() if value is not None})
