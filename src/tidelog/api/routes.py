"""Which APIs this broker serves, in which versions, and the module that answers each.

What stands here is advertised by ApiVersions, so it is served in full; the ranges are those of Apache Kafka 4.3. Keys
above 10000 are Tidelog's own: clients that do not know them leave them alone.
A handler's module is imported when its first request comes, which keeps the start of a broker short.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Route(NamedTuple):
    module: str
    min_version: int
    max_version: int
    #: answered by the controller: a broker that is not the controller passes the request on
    relayed: bool = False


#: API key -> route; the key's name is `tidelog.wire.apis.ApiKey(key).name`
ROUTES: Final[dict[int, Route]] = {
    0: Route("produce", 0, 13),
    1: Route("fetch", 4, 18),
    2: Route("list_offsets", 1, 11),
    3: Route("metadata", 0, 13),
    8: Route("offset_commit", 2, 10),
    9: Route("offset_fetch", 1, 10),
    10: Route("find_coordinator", 0, 6),
    11: Route("join_group", 0, 9),
    12: Route("heartbeat", 0, 4),
    13: Route("leave_group", 0, 5),
    14: Route("sync_group", 0, 5),
    15: Route("describe_groups", 0, 6),
    16: Route("list_groups", 0, 5),
    18: Route("api_versions", 0, 4),
    19: Route("create_topics", 2, 7, relayed=True),
    20: Route("delete_topics", 1, 6, relayed=True),
    21: Route("delete_records", 0, 2),
    22: Route("init_producer_id", 0, 5),
    23: Route("offset_for_leader_epoch", 2, 4),
    24: Route("add_partitions_to_txn", 0, 5),
    25: Route("add_offsets_to_txn", 0, 4),
    26: Route("end_txn", 0, 5),
    27: Route("write_txn_markers", 1, 2),
    28: Route("txn_offset_commit", 0, 5),
    29: Route("acls", 1, 3),
    30: Route("acls", 1, 3),
    31: Route("acls", 1, 3),
    32: Route("describe_configs", 1, 4),
    33: Route("alter_configs", 0, 2, relayed=True),
    34: Route("alter_replica_log_dirs", 1, 2),
    35: Route("describe_log_dirs", 1, 5),
    37: Route("create_partitions", 0, 3, relayed=True),
    42: Route("delete_groups", 0, 2),
    43: Route("elect_leaders", 0, 2, relayed=True),
    44: Route("incremental_alter_configs", 0, 1),
    45: Route("alter_partition_reassignments", 0, 1, relayed=True),
    46: Route("list_partition_reassignments", 0, 0),
    47: Route("offset_delete", 0, 0),
    50: Route("describe_user_scram_credentials", 0, 0),
    57: Route("update_features", 0, 2, relayed=True),
    60: Route("describe_cluster", 0, 2),
    61: Route("describe_producers", 0, 0),
    65: Route("describe_transactions", 0, 0),
    66: Route("list_transactions", 0, 2),
    68: Route("consumer_group_heartbeat", 0, 1),
    69: Route("consumer_group_describe", 0, 1),
    74: Route("list_config_resources", 0, 1),
    75: Route("describe_topic_partitions", 0, 0),
    10002: Route("describe_delays", 0, 0),
    10003: Route("cancel_delays", 0, 0),
}

#: what brokers ask of each other, and clients are not told of
PEER_ROUTES: Final[dict[int, Route]] = {
    7: Route("controlled_shutdown", 0, 3),
    56: Route("alter_partition", 2, 3),
    67: Route("allocate_producer_ids", 0, 0),
    10001: Route("publish_metadata", 0, 0),
}
