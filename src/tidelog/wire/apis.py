"""Every API that has a schema here: key, name, versions.

The versions are those that Apache Kafka 4.3.0 announces (Produce 0-2 only to be refused), and for the messages
between brokers that it no longer has, those of its last release with ZooKeeper. Keys above 10000 are Tidelog's own.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

#: First flexible version of an API that has none.
NEVER: Final = 1 << 15


class ApiKey(IntEnum):
    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    LEADER_AND_ISR = 4
    STOP_REPLICA = 5
    UPDATE_METADATA = 6
    CONTROLLED_SHUTDOWN = 7
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92
    PUBLISH_METADATA = 10001
    DESCRIBE_DELAYS = 10002
    CANCEL_DELAYS = 10003


#: key, oldest and newest version, first flexible version
_VERSIONS: Final = (
    (ApiKey.PRODUCE, 0, 13, 9),
    (ApiKey.FETCH, 4, 18, 12),
    (ApiKey.LIST_OFFSETS, 1, 11, 6),
    (ApiKey.METADATA, 0, 13, 9),
    (ApiKey.LEADER_AND_ISR, 0, 7, 4),
    (ApiKey.STOP_REPLICA, 0, 4, 2),
    (ApiKey.UPDATE_METADATA, 0, 8, 6),
    (ApiKey.CONTROLLED_SHUTDOWN, 0, 3, 3),
    (ApiKey.OFFSET_COMMIT, 2, 10, 8),
    (ApiKey.OFFSET_FETCH, 1, 10, 6),
    (ApiKey.FIND_COORDINATOR, 0, 6, 3),
    (ApiKey.JOIN_GROUP, 0, 9, 6),
    (ApiKey.HEARTBEAT, 0, 4, 4),
    (ApiKey.LEAVE_GROUP, 0, 5, 4),
    (ApiKey.SYNC_GROUP, 0, 5, 4),
    (ApiKey.DESCRIBE_GROUPS, 0, 6, 5),
    (ApiKey.LIST_GROUPS, 0, 5, 3),
    (ApiKey.SASL_HANDSHAKE, 0, 1, NEVER),
    (ApiKey.API_VERSIONS, 0, 4, 3),
    (ApiKey.CREATE_TOPICS, 2, 7, 5),
    (ApiKey.DELETE_TOPICS, 1, 6, 4),
    (ApiKey.DELETE_RECORDS, 0, 2, 2),
    (ApiKey.INIT_PRODUCER_ID, 0, 5, 2),
    (ApiKey.OFFSET_FOR_LEADER_EPOCH, 2, 4, 4),
    (ApiKey.ADD_PARTITIONS_TO_TXN, 0, 5, 3),
    (ApiKey.ADD_OFFSETS_TO_TXN, 0, 4, 3),
    (ApiKey.END_TXN, 0, 5, 3),
    (ApiKey.WRITE_TXN_MARKERS, 1, 2, 1),
    (ApiKey.TXN_OFFSET_COMMIT, 0, 5, 3),
    (ApiKey.DESCRIBE_ACLS, 1, 3, 2),
    (ApiKey.CREATE_ACLS, 1, 3, 2),
    (ApiKey.DELETE_ACLS, 1, 3, 2),
    (ApiKey.DESCRIBE_CONFIGS, 1, 4, 4),
    (ApiKey.ALTER_CONFIGS, 0, 2, 2),
    (ApiKey.ALTER_REPLICA_LOG_DIRS, 1, 2, 2),
    (ApiKey.DESCRIBE_LOG_DIRS, 1, 5, 2),
    (ApiKey.SASL_AUTHENTICATE, 0, 2, 2),
    (ApiKey.CREATE_PARTITIONS, 0, 3, 2),
    (ApiKey.CREATE_DELEGATION_TOKEN, 1, 3, 2),
    (ApiKey.RENEW_DELEGATION_TOKEN, 1, 2, 2),
    (ApiKey.EXPIRE_DELEGATION_TOKEN, 1, 2, 2),
    (ApiKey.DESCRIBE_DELEGATION_TOKEN, 1, 3, 2),
    (ApiKey.DELETE_GROUPS, 0, 2, 2),
    (ApiKey.ELECT_LEADERS, 0, 2, 2),
    (ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 1, 1),
    (ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, 1, 0),
    (ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, 0, 0),
    (ApiKey.OFFSET_DELETE, 0, 0, NEVER),
    (ApiKey.DESCRIBE_CLIENT_QUOTAS, 0, 1, 1),
    (ApiKey.ALTER_CLIENT_QUOTAS, 0, 1, 1),
    (ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, 0, 0),
    (ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, 0, 0),
    (ApiKey.DESCRIBE_QUORUM, 0, 2, 0),
    (ApiKey.ALTER_PARTITION, 2, 3, 0),
    (ApiKey.UPDATE_FEATURES, 0, 2, 0),
    (ApiKey.DESCRIBE_CLUSTER, 0, 2, 0),
    (ApiKey.DESCRIBE_PRODUCERS, 0, 0, 0),
    (ApiKey.UNREGISTER_BROKER, 0, 0, 0),
    (ApiKey.DESCRIBE_TRANSACTIONS, 0, 0, 0),
    (ApiKey.LIST_TRANSACTIONS, 0, 2, 0),
    (ApiKey.ALLOCATE_PRODUCER_IDS, 0, 0, 0),
    (ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, 1, 0),
    (ApiKey.CONSUMER_GROUP_DESCRIBE, 0, 1, 0),
    (ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, 0, 0, 0),
    (ApiKey.PUSH_TELEMETRY, 0, 0, 0),
    (ApiKey.LIST_CONFIG_RESOURCES, 0, 1, 0),
    (ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, 0, 0),
    (ApiKey.SHARE_GROUP_HEARTBEAT, 1, 1, 0),
    (ApiKey.SHARE_GROUP_DESCRIBE, 1, 1, 0),
    (ApiKey.SHARE_FETCH, 1, 2, 0),
    (ApiKey.SHARE_ACKNOWLEDGE, 1, 2, 0),
    (ApiKey.INITIALIZE_SHARE_GROUP_STATE, 0, 0, 0),
    (ApiKey.READ_SHARE_GROUP_STATE, 0, 0, 0),
    (ApiKey.WRITE_SHARE_GROUP_STATE, 0, 1, 0),
    (ApiKey.DELETE_SHARE_GROUP_STATE, 0, 0, 0),
    (ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, 0, 1, 0),
    (ApiKey.STREAMS_GROUP_HEARTBEAT, 0, 0, 0),
    (ApiKey.STREAMS_GROUP_DESCRIBE, 0, 0, 0),
    (ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 0, 1, 0),
    (ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, 0, 0),
    (ApiKey.DELETE_SHARE_GROUP_OFFSETS, 0, 0, 0),
    (ApiKey.PUBLISH_METADATA, 0, 0, 0),
    (ApiKey.DESCRIBE_DELAYS, 0, 0, 0),
    (ApiKey.CANCEL_DELAYS, 0, 0, 0),
)

#: Spoken between brokers only, never announced to clients.
_INTER_BROKER: Final = frozenset(
    {
        ApiKey.LEADER_AND_ISR,
        ApiKey.STOP_REPLICA,
        ApiKey.UPDATE_METADATA,
        ApiKey.CONTROLLED_SHUTDOWN,
        ApiKey.ALTER_PARTITION,
        ApiKey.ALLOCATE_PRODUCER_IDS,
        ApiKey.PUBLISH_METADATA,
    }
)


class Api:
    """`flexible_from` is the first version with compact lengths and tagged fields, in request and response alike."""

    __slots__ = ("flexible_from", "inter_broker", "key", "max_version", "min_version", "name")

    def __init__(self, key: ApiKey, min_version: int, max_version: int, flexible_from: int) -> None:
        self.key = key
        self.name = "".join(word.title() for word in key.name.split("_"))
        self.min_version = min_version
        self.max_version = max_version
        self.flexible_from = flexible_from
        self.inter_broker = key in _INTER_BROKER

    def __repr__(self) -> str:
        return f"Api({self.name}, {self.min_version}-{self.max_version})"


APIS: Final[dict[int, Api]] = {row[0]: Api(*row) for row in _VERSIONS}

#: By API key, for reading headers.
FIRST_FLEXIBLE: Final[dict[int, int]] = {api.key: api.flexible_from for api in APIS.values()}
