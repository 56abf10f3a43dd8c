"""The tree of nodes in memory, and the one place where operations change it.

It knows no disk, no session beyond its number and no thread: the embedded store puts a journal under it, the store in
memory shares one between many sessions. Applying a transaction is a function of the tree and the operations alone, so
that replaying the journal gives the same tree.

`apply` works in place and keeps the way back: it notes what each change replaced, and a refused operation puts it all
back.
A transaction therefore costs what it changes, not what the tree holds.

What is kept is what transactions need: a node by its path, and how many children it has. The names of the children are
looked up among all paths; that is asked for rarely, and the tree of a broker with ten thousand partitions is opened and
snapshotted without ten thousand sets.

Node values are immutable, so a copy of the dictionary is a snapshot of the tree (`freeze`), cheap enough to be taken
on the broker's thread while a worker writes it out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tidelog.metadata.store import (
    ANY_VERSION,
    NO_OWNER,
    NO_VERSION,
    BadPath,
    BadVersion,
    Check,
    Committed,
    Create,
    Delete,
    NoChildrenForEphemerals,
    Node,
    NodeExists,
    NoNode,
    NotEmpty,
    Op,
    SetData,
    StoreRefusal,
    is_valid_path,
    parent_of,
)

ROOT = "/"

#: A change that was made: the path, its node before (None: there was none), and the count of created children that it
#: replaced: the parent's where the node was created, its own where it was deleted.
_Step = tuple[str, Node | None, int]


class Frozen(NamedTuple):
    """A tree at one zxid: nodes, parents before their children, and the sequence counters."""

    zxid: int
    nodes: dict[str, Node]
    created_under: dict[str, int]


class Tree:
    __slots__ = ("_child_count", "_created_under", "_ephemerals", "_nodes", "zxid")

    def __init__(self) -> None:
        self.zxid = 0
        #: A parent stands before its children: they are created after it, and it is deleted after them.
        self._nodes: dict[str, Node] = {ROOT: Node(b"", 0, 0, 0)}
        #: children of a path; absent where there are none
        self._child_count: dict[str, int] = {}
        #: how many children were ever created under a path: the next sequence number
        self._created_under: dict[str, int] = {}
        self._ephemerals: dict[int, set[str]] = {}

    # Reading

    def get(self, path: str) -> Node | None:
        return self._nodes.get(path)

    def children(self, path: str) -> list[str]:
        if path not in self._child_count:
            return []
        prefix = path if path == ROOT else path + "/"
        start = len(prefix)
        return sorted(p[start:] for p in self._nodes if p.startswith(prefix) and "/" not in p[start:] and p != ROOT)

    def walk(self, path: str) -> list[tuple[str, Node]]:
        """`path` and everything below it, parents before their children; empty where there is no such node."""
        if path == ROOT:
            return list(self._nodes.items())
        root = self._nodes.get(path)
        if root is None:
            return []
        below = path + "/"
        return [(path, root), *((p, node) for p, node in self._nodes.items() if p.startswith(below))]

    def ephemerals(self, session_id: int) -> list[str]:
        return sorted(self._ephemerals.get(session_id, ()))

    def sessions(self) -> list[int]:
        """Those that own a node."""
        return sorted(owner for owner, paths in self._ephemerals.items() if paths)

    # Changing

    def apply(self, ops: Sequence[Op], session_id: int) -> Committed | StoreRefusal:
        """The next transaction, or the first reason why not; then the tree is as before."""
        zxid = self.zxid + 1
        done: list[_Step] = []
        paths: list[str] = []
        versions: list[int] = []
        for index, op in enumerate(ops):
            if isinstance(op, Create):
                outcome = self._create(op, zxid, session_id, done)
            elif isinstance(op, SetData):
                outcome = self._set_data(op, zxid, done)
            elif isinstance(op, Delete):
                outcome = self._delete(op, done)
            else:
                outcome = self._check(op)
            if isinstance(outcome, type):
                self._undo(done)
                return outcome(op.path, index)
            paths.append(outcome[0])
            versions.append(outcome[1])
        if done:  # a transaction that only checked is no step in the history
            self.zxid = zxid
        return Committed(self.zxid, paths, versions)

    def _create(
        self, op: Create, zxid: int, session_id: int, done: list[_Step]
    ) -> tuple[str, int] | type[StoreRefusal]:
        path = op.path
        parent = path[: path.rfind("/")] or ROOT
        above = self._nodes.get(parent)
        count = self._created_under.get(parent, 0)
        if op.sequential:
            path = f"{path}{count:010d}"
        if not is_valid_path(path):
            return BadPath
        if above is None:
            return NoNode
        if above.ephemeral_owner != NO_OWNER:
            return NoChildrenForEphemerals
        if path in self._nodes:
            return NodeExists
        self._insert(path, parent, Node(op.data, 0, zxid, zxid, session_id if op.ephemeral else NO_OWNER))
        self._created_under[parent] = count + 1
        done.append((path, None, count))
        return path, 0

    def _set_data(self, op: SetData, zxid: int, done: list[_Step]) -> tuple[str, int] | type[StoreRefusal]:
        path = op.path
        before = self._nodes.get(path)
        if before is None:
            return NoNode
        if op.version not in (ANY_VERSION, before.version):
            return BadVersion
        version = before.version + 1
        self._nodes[path] = Node(op.data, version, before.czxid, zxid, before.ephemeral_owner)
        done.append((path, before, 0))
        return path, version

    def _delete(self, op: Delete, done: list[_Step]) -> tuple[str, int] | type[StoreRefusal]:
        path = op.path
        if path == ROOT:
            return BadPath
        before = self._nodes.get(path)
        if before is None:
            return NoNode
        if op.version not in (ANY_VERSION, before.version):
            return BadVersion
        if path in self._child_count:
            return NotEmpty
        self._remove(path, parent_of(path))
        done.append((path, before, self._created_under.pop(path, 0)))
        return path, NO_VERSION

    def _undo(self, done: list[_Step]) -> None:
        for path, before, count in reversed(done):
            parent = parent_of(path)
            if before is None:
                self._remove(path, parent)
                self._created_under[parent] = count
            elif path in self._nodes:
                self._nodes[path] = before
            else:
                self._insert(path, parent, before)
                self._created_under[path] = count

    def _check(self, op: Check) -> tuple[str, int] | type[StoreRefusal]:
        node = self._nodes.get(op.path)
        if node is None:
            return NoNode
        if op.version not in (ANY_VERSION, node.version):
            return BadVersion
        return op.path, op.version

    def _insert(self, path: str, parent: str, node: Node) -> None:
        self._nodes[path] = node
        self._child_count[parent] = self._child_count.get(parent, 0) + 1
        if node.ephemeral_owner != NO_OWNER:
            self._ephemerals.setdefault(node.ephemeral_owner, set()).add(path)

    def _remove(self, path: str, parent: str) -> None:
        owner = self._nodes.pop(path).ephemeral_owner
        self._child_count[parent] -= 1
        if not self._child_count[parent]:
            del self._child_count[parent]
        if owner != NO_OWNER:
            owned = self._ephemerals[owner]
            owned.discard(path)
            if not owned:
                del self._ephemerals[owner]

    # As a whole

    def freeze(self) -> Frozen:
        return Frozen(self.zxid, dict(self._nodes), {p: n for p, n in self._created_under.items() if n})

    @classmethod
    def thaw(cls, frozen: Frozen) -> Tree:
        """A tree from what `freeze` gave. Raises ValueError where a node has no parent."""
        tree = cls()
        tree.zxid = frozen.zxid
        nodes = tree._nodes = dict(frozen.nodes)
        child_count = tree._child_count
        if ROOT not in nodes:
            raise ValueError("no root node")
        for path, node in nodes.items():
            if path == ROOT:
                continue
            parent = path[: path.rfind("/")] or ROOT
            count = child_count.get(parent)
            if count is not None:
                child_count[parent] = count + 1
            elif parent in nodes:
                child_count[parent] = 1
            else:
                raise ValueError(f"node {path!r} has no parent")
            if node.ephemeral_owner != NO_OWNER:
                tree._ephemerals.setdefault(node.ephemeral_owner, set()).add(path)
        tree._created_under = dict(frozen.created_under)
        return tree
