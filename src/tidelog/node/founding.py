"""What a broker needs of a shared store before it can open its logs: the cluster's id, and perhaps an id of its own.

Several brokers may start on an empty store at once. One of them founds the cluster; the others find that somebody was
faster, and read what it wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from tidelog.control import nodes
from tidelog.control.controller import draw_id
from tidelog.control.malformed_nodes import MALFORMED, reason_of
from tidelog.metadata.store import (
    Committed,
    Create,
    ExistsResult,
    MetadataStore,
    Node,
    Op,
    SessionExpired,
    SetData,
    StoreFailed,
    StoreRefusal,
    SubmitResult,
    parent_of,
)
from tidelog.node.adoption import written_by

if TYPE_CHECKING:
    from tidelog.config.broker_config import BrokerConfig
    from tidelog.log.disk import Disk

ATTEMPTS: Final = 20
SEQUENCE: Final = "/brokers/seqid"


def find_cluster(
    store: MetadataStore,
    known_id: str | None,
    new_id: Callable[[], bytes],
    notice: Callable[[str], None],
    done: Callable[[str | StoreRefusal | None], None],
) -> None:
    """`done` gets the id of the cluster that lives on the store. If there is none, this broker founds it under a new
    id; one whose log directories belong to a cluster, `known_id`, may not, and `done` gets None. But it writes the id
    again where somebody has made it unreadable."""

    def decide(node: ExistsResult) -> None:
        if isinstance(node, StoreRefusal):
            done(node)
        elif node is not None:
            read(node)
        elif known_id is not None:
            done(None)
        else:
            cluster_id = nodes.to_base64(draw_id(new_id))
            create = Create(nodes.CLUSTER_ID, nodes.encode_cluster_id(cluster_id))
            _write(store, [create], created)

    def read(node: Node) -> None:
        try:
            found = nodes.decode_cluster_id(node.data)
        except MALFORMED as error:
            unreadable = f"{nodes.CLUSTER_ID} in the metadata store cannot be read ({reason_of(error)})"
        else:
            done(found)
            return
        if known_id is None:
            example = nodes.encode_cluster_id("…").decode()
            done(
                StoreRefusal(
                    f"{unreadable}. Start a broker first that belongs to the cluster: it writes the id again. Or write "
                    f"{example} there, with the cluster.id of the file meta.properties in any broker's log directories"
                )
            )
            return
        notice(f"{unreadable}: the id is written again, as it is in this broker's log directories: {known_id}")
        store.submit([SetData(nodes.CLUSTER_ID, nodes.encode_cluster_id(known_id), node.version)], created)

    def created(result: SubmitResult) -> None:
        if isinstance(result, StoreFailed | SessionExpired):
            done(result)
        else:
            # Whoever wrote it: what is there now is the cluster.
            store.exists(nodes.CLUSTER_ID, decide)

    store.exists(nodes.CLUSTER_ID, decide)


def choose_broker_id(
    store: MetadataStore,
    config: BrokerConfig,
    disk: Disk,
    done: Callable[[int | StoreRefusal | str], None],
) -> None:
    """The id of a broker that was given none: the one in its log directories, or a new one from the store, above
    `reserved.broker.max.id`. `done` gets a sentence where there is none to be had."""
    given: int = config.get("broker.id")
    found = written_by(disk, config.log_dirs)
    if given >= 0 or found is not None:
        done(given if given >= 0 or found is None else found.node_id)
        return
    if not config.values.broker_id_generation_enable:
        done("broker.id is not set, and broker.id.generation.enable is false. Set broker.id")
        return

    def drawn(result: SubmitResult) -> None:
        if isinstance(result, Committed):
            done(config.values.reserved_broker_max_id + result.versions[-1])
        else:
            assert isinstance(result, StoreRefusal)
            done(result)

    _write(store, [SetData(SEQUENCE, b"")], drawn)


def write_node(store: MetadataStore, path: str, data: bytes) -> None:
    """Writes a node, which is made where it does not exist, and whatever is missing above it. Nobody waits for it."""
    _write(store, [SetData(path, data)], lambda result: None)


def _write(store: MetadataStore, ops: list[Op], done: Callable[[SubmitResult], None], attempt: int = 1) -> None:
    """Submits `ops`, with whatever is missing above the nodes that they name. `SetData` is for a node that is made
    where it does not exist."""
    paths = list(dict.fromkeys(_above(op.path for op in ops)))
    paths += [op.path for op in ops if isinstance(op, SetData)]
    missing: list[str] = []

    def looked(path: str, result: ExistsResult) -> None:
        if isinstance(result, StoreRefusal):
            done(result)
            return
        if result is None:
            missing.append(path)
        if path == paths[-1]:
            store.submit([*map(Create, missing), *ops], submitted)

    def submitted(result: SubmitResult) -> None:
        is_final = isinstance(result, Committed | StoreFailed | SessionExpired) or attempt == ATTEMPTS
        # Somebody else made one of them meanwhile.
        if is_final or (isinstance(result, StoreRefusal) and result.path in {op.path for op in ops}):
            done(result)
        else:
            _write(store, ops, done, attempt + 1)

    for path in paths:
        store.exists(path, lambda result, path=path: looked(path, result))  # type: ignore[misc]


def _above(paths: Iterable[str]) -> Iterable[str]:
    """The parents of the paths, the root excepted, from the top down."""
    for path in paths:
        parents: list[str] = []
        while (path := parent_of(path)) != "/":
            parents.insert(0, path)
        yield from parents
