"""What others write into a shared store, by hand or with Kafka's tools of the time of ZooKeeper.

    /brokers/topics/T                   a topic: the controller gives it an id and leaders, and it is served
    /config/changes/config_change_N     names a node below /config that was changed; taken away when it was read
    /admin/reassign_partitions          replicas are to move; taken away when the moves have begun
    /admin/preferred_replica_election   preferred leaders are to lead; taken away when they do

Each function reads what is there and hands on what it means. What cannot be read is left alone (`malformed_nodes`), or
taken away where it would stand in the way of the next one.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Final

from tidelog.control import nodes
from tidelog.control.image import Image, NodeChange
from tidelog.control.malformed_nodes import MALFORMED
from tidelog.control.reassignment import WantedReassignment
from tidelog.metadata.store import (
    ChildrenResult,
    Delete,
    ExistsResult,
    MetadataStore,
    Node,
    NoNode,
    Op,
    StoreRefusal,
    TreeResult,
)

CONFIG_CHANGES: Final = "/config/changes"
REASSIGN_PARTITIONS: Final = "/admin/reassign_partitions"
PREFERRED_ELECTION: Final = "/admin/preferred_replica_election"

#: changes for the image, and operations that take away what was read
Done = Callable[[list[NodeChange], list[Op]], None]


def change_of(path: str, node: Node | None) -> NodeChange:
    if node is None:
        return NodeChange(path, None)
    return NodeChange(path, node.data, node.version, node.czxid, node.mzxid)


def read_topics(store: MetadataStore, image: Image, done: Done) -> None:
    """Topics that came or went without the controller."""

    def listed(names: ChildrenResult) -> None:
        if isinstance(names, StoreRefusal):
            done([], [])
            return
        there = set(names)
        changes = [NodeChange(nodes.topic_path(name), None) for name in image.topics if name not in there]
        _read_trees(
            store,
            [nodes.topic_path(name) for name in names if name not in image.topics],
            lambda found: done(changes + found, []),
        )

    store.children(nodes.TOPICS, listed)


def _read_trees(store: MetadataStore, paths: list[str], done: Callable[[list[NodeChange]], None]) -> None:
    found: list[NodeChange] = []
    left = len(paths)

    def read(result: TreeResult) -> None:
        nonlocal left
        left -= 1
        if not isinstance(result, StoreRefusal):
            found.extend(change_of(path, node) for path, node in result)
        if not left:
            done(found)

    if not paths:
        done(found)
    for path in paths:
        store.tree(path, read)


def read_again(store: MetadataStore, path: str, done: Done) -> None:
    """A node that could not be read, and what is below it."""

    def read(result: TreeResult) -> None:
        if isinstance(result, NoNode):
            done([NodeChange(path, None)], [])
        else:
            done([] if isinstance(result, StoreRefusal) else [change_of(*found) for found in result], [])

    store.tree(path, read)


def read_configs(store: MetadataStore, done: Done) -> None:
    """Configurations that notifications name."""
    changes: dict[str, NodeChange] = {}
    ops: list[Op] = []
    left = 0

    def finish_one() -> None:
        nonlocal left
        left -= 1
        if not left:
            done(list(changes.values()), ops)

    def listed(names: ChildrenResult) -> None:
        nonlocal left
        if isinstance(names, StoreRefusal) or not names:
            done([], [])
            return
        left = len(names)
        for name in names:
            path = f"{CONFIG_CHANGES}/{name}"
            store.exists(path, partial(notified, path))

    def notified(path: str, node: ExistsResult) -> None:
        if node is None or isinstance(node, StoreRefusal):
            finish_one()
            return
        ops.append(Delete(path))
        entity = _entity(node.data)
        if entity is None:
            finish_one()
        else:
            store.exists(f"/config/{entity}", partial(configured, f"/config/{entity}"))

    def configured(path: str, node: ExistsResult) -> None:
        if not isinstance(node, StoreRefusal):
            changes[path] = change_of(path, node)
        finish_one()

    store.children(CONFIG_CHANGES, listed)


def _entity(data: bytes) -> str | None:
    """The path below /config that a notification names; the first version had its two halves apart."""
    try:
        value = json.loads(data)
        entity = value["entity_path"] if "entity_path" in value else f"{value['entity_type']}/{value['entity_name']}"
    except MALFORMED:
        return None
    is_path = isinstance(entity, str) and all(entity.split("/")) and entity.count("/") in (1, 3)
    return entity if is_path else None


def decode_reassignment(data: bytes) -> list[WantedReassignment]:
    """Raises one of MALFORMED."""
    return [
        WantedReassignment(str(each["topic"]), int(each["partition"]), [int(r) for r in each["replicas"]])
        for each in json.loads(data)["partitions"]
    ]


def decode_election(data: bytes) -> list[tuple[str, int]]:
    """Raises one of MALFORMED."""
    return [(str(each["topic"]), int(each["partition"])) for each in json.loads(data)["partitions"]]
