"""Reading everything that the image is made from, and nothing that belongs to others: a store may be shared."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tidelog.control.nodes import LOADED_NODES, LOADED_TREES
from tidelog.metadata.store import ExistsResult, MetadataStore, Node, NoNode, StoreRefusal, TreeResult


def read_everything(store: MetadataStore, done: Callable[[TreeResult], None]) -> None:
    """`done` gets the nodes, parents before their children, or the first refusal."""
    found: list[tuple[str, Node]] = []
    refused: list[StoreRefusal] = []

    def read_node(path: str, result: ExistsResult) -> None:
        if isinstance(result, StoreRefusal):
            refused.append(result)
        elif result is not None:
            found.append((path, result))

    def read_tree(path: str, result: TreeResult) -> None:
        if not isinstance(result, StoreRefusal):
            found.extend(result)
        elif not isinstance(result, NoNode):
            refused.append(result)
        if path == LOADED_TREES[-1]:  # answers come in the order of the calls
            done(refused[0] if refused else found)

    for path in LOADED_NODES:
        store.exists(path, partial(read_node, path))
    for path in LOADED_TREES:
        store.tree(path, partial(read_tree, path))
