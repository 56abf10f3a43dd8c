"""The nodes of a Kafka cluster that keeps its metadata in ZooKeeper: their paths, and what is in them.

    /cluster/id                             {"version":"1","id":"…22 characters of base64url…"}
    /controller                             ephemeral: {"version":2,"brokerid":0,"timestamp":"…",
                                             "kraftControllerEpoch":-1}
    /controller_epoch                       a number in digits
    /brokers/ids/N                          ephemeral: a registration, version 5; its czxid is the broker's epoch
    /brokers/seqid                          empty; its version gives out broker ids
    /brokers/directories/N                  {"version":1,"generations":{"…id of a log directory…":12}}; not Kafka's:
                                             a directory whose own generation is smaller is an old copy
    /brokers/topics/T                       {"version":3,"topic_id":…,"partitions":{"0":[1,2],…},
                                             "adding_replicas":{},"removing_replicas":{}}
    /brokers/topics/T/partitions/P          empty
    /brokers/topics/T/partitions/P/state    {"controller_epoch":1,"leader":0,"version":1,"leader_epoch":0,"isr":[0]};
                                            its version is the partition epoch
    /config/{topics,brokers,groups,client-metrics}/NAME    {"version":1,"config":{…}}; brokers/<default> for all brokers
    /config/{users,clients,ips}/…           the same, for quotas; user/clients/client for a pair
    /admin/delete_topics/T                  empty: the topic is to be deleted
    /latest_producer_id_block               empty, or {"version":1,"broker":0,"block_start":"0","block_end":"999"}

Names that may hold any character (users, clients, groups) stand in a path percent-encoded.
"""

from __future__ import annotations

import json
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from functools import lru_cache
from typing import Any, Final, NamedTuple

CONTROLLER: Final = "/controller"
CONTROLLER_EPOCH: Final = "/controller_epoch"
CLUSTER_ID: Final = "/cluster/id"
BROKER_IDS: Final = "/brokers/ids"
TOPICS: Final = "/brokers/topics"
DELETE_TOPICS: Final = "/admin/delete_topics"
TOPIC_CONFIGS: Final = "/config/topics"
#: one for each kind of resource and quota
CONFIGS: Final = (
    TOPIC_CONFIGS,
    "/config/brokers",
    "/config/clients",
    "/config/users",
    "/config/ips",
    "/config/groups",
    "/config/client-metrics",
)
PRODUCER_ID_BLOCK: Final = "/latest_producer_id_block"

#: What must exist before anything else is written, parents first.
PERSISTENT_PATHS: Final = (
    "/brokers",
    BROKER_IDS,
    TOPICS,
    "/brokers/seqid",
    "/cluster",
    "/admin",
    DELETE_TOPICS,
    "/config",
    "/config/changes",
    *CONFIGS,
    "/isr_change_notification",
    "/log_dir_event_notification",
    PRODUCER_ID_BLOCK,
)

#: What the image is made from; whatever else is in the store belongs to others. Some of it with all that is below.
LOADED_TREES: Final = (
    BROKER_IDS,
    TOPICS,
    DELETE_TOPICS,
    *CONFIGS,
)
LOADED_NODES: Final = (
    CONTROLLER_EPOCH,
    CONTROLLER,
    CLUSTER_ID,
    *(path for path in PERSISTENT_PATHS if path not in LOADED_TREES),
)

#: how many producer ids are given out at a time, in Apache Kafka too
PRODUCER_ID_BLOCK_SIZE: Final = 1000

#: stands for all brokers, users or clients
DEFAULT_ENTITY: Final = "<default>"


class Endpoint(NamedTuple):
    """Where a broker listens: listener name, security protocol, and the address that clients are told."""

    listener: str
    security_protocol: str
    host: str
    port: int


def broker_path(broker_id: int) -> str:
    return f"{BROKER_IDS}/{broker_id}"


def directories_path(broker_id: int) -> str:
    return f"/brokers/directories/{broker_id}"


def topic_path(topic: str) -> str:
    return f"{TOPICS}/{topic}"


def topic_of(path: str) -> str | None:
    """The topic whose node this is, or one that stands below it or for it."""
    for root in (TOPICS, DELETE_TOPICS, TOPIC_CONFIGS):
        if path.startswith(f"{root}/"):
            return path[len(root) + 1 :].partition("/")[0]
    return None


def partitions_path(topic: str) -> str:
    return f"{TOPICS}/{topic}/partitions"


def partition_path(topic: str, partition: int) -> str:
    return f"{TOPICS}/{topic}/partitions/{partition}"


def state_path(topic: str, partition: int) -> str:
    return f"{TOPICS}/{topic}/partitions/{partition}/state"


def config_path(entity_type: str, entity: str) -> str:
    return f"/config/{entity_type}/{entity}"


def delete_topic_path(topic: str) -> str:
    return f"{DELETE_TOPICS}/{topic}"


def to_base64(uuid: bytes) -> str:
    """Sixteen bytes as Kafka writes an id: 22 characters, URL-safe, unpadded."""
    return urlsafe_b64encode(uuid)[:22].decode()


def from_base64(text: str) -> bytes:
    uuid = urlsafe_b64decode(text + "==")
    if len(uuid) != 16:
        raise ValueError(f"not an id of 16 bytes: {text!r}")
    return uuid


#: made once: thousands of nodes may be written together
is_plain: Final = re.compile(r"[A-Za-z0-9._-]*").fullmatch
write_json: Final = json.JSONEncoder(separators=(",", ":")).encode


def sanitize(name: str) -> str:
    """As Kafka does: every byte of UTF-8 but letters, digits, '.', '-' and '_' is written %XX."""
    if is_plain(name):
        return name
    from urllib.parse import quote  # not at import: it is slow to load, and few brokers have such names

    return quote(name, safe="").replace("~", "%7E")


def desanitize(name: str) -> str:
    if "%" not in name:
        return name
    from urllib.parse import unquote

    return unquote(name)


def encode_json(value: object) -> bytes:
    return write_json(value).encode()


# Brokers


class LostLogs(Enum):
    """What a broker that registers may have lost since it was last there."""

    NONE = "none"
    #: a log directory is missing, or something in it cannot be opened: each of its logs may be lost
    SOME = "some"
    #: it has no log at all: its disks are new
    ALL = "all"


def encode_broker(
    endpoints: Sequence[Endpoint],
    rack: str | None,
    timestamp_ms: int,
    features: Mapping[str, tuple[int, int]],
    directories: Sequence[bytes] = (),
    lost: LostLogs = LostLogs.NONE,
    cordoned: bool = False,
    damaged: Collection[tuple[bytes, int]] = (),
) -> bytes:
    """`directories` are the ids of the log directories, `damaged` those of topics with the numbers of partitions.

    Apache Kafka has no field for these two, for `lost` and for `cordoned`, and reads past them.
    """
    plaintext = next((e for e in endpoints if e.security_protocol == "PLAINTEXT"), None)
    registration: dict[str, Any] = {
        "version": 5,
        "host": plaintext.host if plaintext else None,
        "port": plaintext.port if plaintext else -1,
        "endpoints": [f"{e.listener}://{f'[{e.host}]' if ':' in e.host else e.host}:{e.port}" for e in endpoints],
        "jmx_port": -1,
        "timestamp": str(timestamp_ms),
        "listener_security_protocol_map": {e.listener: e.security_protocol for e in endpoints},
        "features": {name: {"min_version": low, "max_version": high} for name, (low, high) in features.items()},
    }
    if rack is not None:
        registration["rack"] = rack
    if directories:
        registration["log_directories"] = sorted(map(to_base64, directories))
    if lost is not LostLogs.NONE:
        registration["lost_logs"] = lost.value
    if damaged:
        partitions: dict[str, list[int]] = {}
        for topic_id, partition in sorted(damaged):
            partitions.setdefault(to_base64(topic_id), []).append(partition)
        registration["damaged_logs"] = partitions
    if cordoned:
        registration["cordoned"] = True
    return encode_json(registration)


def decode_broker(data: bytes) -> tuple[tuple[Endpoint, ...], str | None]:
    registration = json.loads(data)
    if registration["version"] == 1:
        return (Endpoint("PLAINTEXT", "PLAINTEXT", registration["host"], registration["port"]),), None
    protocols = registration.get("listener_security_protocol_map", {})
    endpoints = []
    for text in registration["endpoints"]:
        listener, _, address = text.partition("://")
        host, _, port = address.rpartition(":")
        endpoints.append(Endpoint(listener, protocols.get(listener, listener), host.strip("[]"), int(port)))
    return tuple(endpoints), registration.get("rack")


def decode_directories(data: bytes) -> frozenset[bytes]:
    return frozenset(map(from_base64, json.loads(data).get("log_directories", ())))


def decode_cordoned(data: bytes) -> bool:
    return bool(json.loads(data).get("cordoned", False))


def encode_generations(generations: Mapping[bytes, int]) -> bytes:
    return encode_json({"version": 1, "generations": {to_base64(key): number for key, number in generations.items()}})


def decode_generations(data: bytes) -> dict[bytes, int]:
    return {from_base64(key): int(number) for key, number in json.loads(data)["generations"].items()}


def decode_lost(data: bytes) -> LostLogs:
    written = json.loads(data).get("lost_logs")
    return next((lost for lost in LostLogs if lost.value == written), LostLogs.NONE)


def decode_damaged(data: bytes) -> frozenset[tuple[bytes, int]]:
    written = json.loads(data).get("damaged_logs", {})
    return frozenset((from_base64(topic_id), int(each)) for topic_id, all_ in written.items() for each in all_)


# Topics


class TopicNode(NamedTuple):
    """What a topic's node says; partitions are dense, so the list is by partition index."""

    topic_id: bytes | None
    replicas: list[tuple[int, ...]]
    adding: dict[int, tuple[int, ...]]
    removing: dict[int, tuple[int, ...]]


def encode_topic(node: TopicNode) -> bytes:
    value: dict[str, Any] = {
        "removing_replicas": {str(p): list(r) for p, r in node.removing.items() if r},
        "partitions": {str(p): list(r) for p, r in enumerate(node.replicas)},
        "adding_replicas": {str(p): list(r) for p, r in node.adding.items() if r},
        "version": 3,
    }
    if node.topic_id is not None:
        value["topic_id"] = to_base64(node.topic_id)
    return encode_json(value)


def decode_topic(data: bytes) -> TopicNode:
    value = json.loads(data)
    partitions = value["partitions"]
    topic_id = value.get("topic_id")
    replicas = [_brokers(partitions[str(p)]) for p in range(len(partitions))]
    if not replicas or not all(replicas):
        raise ValueError("it has no partitions, or a partition without replicas")
    return TopicNode(
        from_base64(topic_id) if topic_id else None,
        replicas,
        {int(p): _brokers(r) for p, r in value.get("adding_replicas", {}).items()},
        {int(p): _brokers(r) for p, r in value.get("removing_replicas", {}).items()},
    )


def _brokers(value: Any) -> tuple[int, ...]:
    brokers = tuple(value)
    if not isinstance(value, list) or any(type(broker) is not int for broker in brokers):
        raise ValueError(f"{value!r} is not a list of broker ids")
    if len(set(brokers)) < len(brokers):
        raise ValueError(f"{value!r} names a broker twice")
    return brokers


class StateNode(NamedTuple):
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    recovering: bool


def encode_state(state: StateNode) -> bytes:
    recovery = ',"leader_recovery_state":1' if state.recovering else ""
    return (
        f'{{"controller_epoch":{state.controller_epoch},"leader":{state.leader},"version":1,'
        f'"leader_epoch":{state.leader_epoch},"isr":[{",".join(map(str, state.isr))}]{recovery}}}'
    ).encode()


@lru_cache(maxsize=1024)  # most partitions of a broker have the same state as many others
def decode_state(data: bytes) -> StateNode:
    value = json.loads(data)
    leader, leader_epoch, controller_epoch = value["leader"], value["leader_epoch"], value["controller_epoch"]
    if any(type(number) is not int for number in (leader, leader_epoch, controller_epoch)):
        raise ValueError("leader, leader_epoch and controller_epoch must be numbers")
    recovering = value.get("leader_recovery_state", 0) != 0
    return StateNode(leader, leader_epoch, _brokers(value["isr"]), controller_epoch, recovering)


# The rest


def encode_config(values: Mapping[str, str]) -> bytes:
    return encode_json({"version": 1, "config": dict(values)})


def decode_config(data: bytes) -> dict[str, str]:
    """What cannot be read, as somebody may have written it by hand, sets nothing; so it is in Apache Kafka."""
    try:
        return read_config(data)
    except (ValueError, AttributeError):
        return {}


def read_config(data: bytes) -> dict[str, str]:
    """As `decode_config`, but raises ValueError or AttributeError."""
    return {name: str(value) for name, value in json.loads(data).get("config", {}).items()}


def encode_cluster_id(cluster_id: str) -> bytes:
    return encode_json({"version": "1", "id": cluster_id})


def decode_cluster_id(data: bytes) -> str:
    return str(json.loads(data)["id"])


def encode_controller(broker_id: int, now_ms: int) -> bytes:
    return encode_json({"version": 2, "brokerid": broker_id, "timestamp": str(now_ms), "kraftControllerEpoch": -1})


def decode_controller(data: bytes) -> int:
    return int(json.loads(data)["brokerid"])


def encode_producer_id_block(broker_id: int, first: int, last: int) -> bytes:
    return encode_json({"version": 1, "broker": broker_id, "block_start": str(first), "block_end": str(last)})


def decode_producer_id_block_end(data: bytes) -> int:
    """The last id given out; -1 before the first block."""
    return int(json.loads(data)["block_end"]) if data else -1
