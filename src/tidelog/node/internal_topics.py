"""The topics that coordinators live on: their names, and how they are created."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tidelog.config.broker_config import BrokerConfig
from tidelog.control.topics import NewTopic

OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTIONS_TOPIC: Final = "__transaction_state"
#: more brokers than any replication factor asks for
MANY: Final = 1 << 15
COORDINATOR_TOPICS: Final = frozenset((OFFSETS_TOPIC, TRANSACTIONS_TOPIC))


def internal_topic(name: str, config: BrokerConfig, brokers: int | None) -> NewTopic:
    """How an internal topic is created where there are so many brokers at most; None: as many as may be needed."""
    values = config.values
    alive = MANY if brokers is None else max(brokers, 1)
    if name == TRANSACTIONS_TOPIC:
        factor = config.internal_topic("transaction.state.log.replication.factor", alive)
        return NewTopic(
            name,
            values.transaction_state_log_num_partitions,
            factor,
            configs={
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "segment.bytes": str(values.transaction_state_log_segment_bytes),
                "min.insync.replicas": str(config.internal_topic("transaction.state.log.min.isr", factor)),
                "unclean.leader.election.enable": "false",
            },
        )
    return NewTopic(
        name,
        values.offsets_topic_num_partitions,
        config.internal_topic("offsets.topic.replication.factor", alive),
        configs={
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(values.offsets_topic_segment_bytes),
        },
    )


def overrides_of(name: str, config: BrokerConfig, brokers: int) -> Mapping[str, str]:
    """The configuration that an internal topic is created with; none for any other topic."""
    if name not in COORDINATOR_TOPICS:
        return {}
    configs = internal_topic(name, config, brokers).configs
    return {key: value for key, value in configs.items() if value is not None}
