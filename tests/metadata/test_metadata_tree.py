"""The tree against a model that is too simple to be wrong: a dictionary, copied whole before each transaction."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidelog.metadata.store import (
    ANY_VERSION,
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
    parent_of,
)
from tidelog.metadata.tree import Tree

PATHS = ["/a", "/b", "/a/x", "/a/y", "/a/x/1", "/b/x", "/b/x/1"]
paths = st.sampled_from(PATHS)
versions = st.sampled_from([ANY_VERSION, ANY_VERSION, 0, 1, 2])
data = st.binary(max_size=3)
ops = st.one_of(
    st.builds(Create, paths, data, st.booleans(), st.booleans()),
    st.builds(SetData, paths, data, versions),
    st.builds(Delete, paths, versions),
    st.builds(Check, paths, versions),
)
transactions = st.lists(st.lists(ops, min_size=1, max_size=5), max_size=25)


class Model:
    def __init__(self) -> None:
        self.zxid = 0
        self.nodes = {"/": Node(b"", 0, 0, 0)}
        self.created = {"/": 0}

    def apply(self, ops: list[Op], session_id: int) -> Committed | StoreRefusal:
        nodes, created = dict(self.nodes), dict(self.created)
        zxid = self.zxid + 1 if any(not isinstance(op, Check) for op in ops) else self.zxid
        found_paths, found_versions = [], []
        for index, op in enumerate(ops):
            refusal, path = self._one(op, nodes, created, zxid, session_id)
            if refusal is not None:
                return refusal(op.path, index)
            found_paths.append(path)
            now = nodes[path].version if path in nodes else -1
            found_versions.append(op.version if isinstance(op, Check) else now)
        self.nodes, self.created, self.zxid = nodes, created, zxid
        return Committed(zxid, found_paths, found_versions)

    def _one(self, op, nodes, created, zxid, session_id):
        path = op.path
        if isinstance(op, Create):
            parent = parent_of(path)
            if op.sequential:
                path += f"{created.get(parent, 0):010d}"
            if parent not in nodes:
                return NoNode, path
            if nodes[parent].ephemeral_owner:
                return NoChildrenForEphemerals, path
            if path in nodes:
                return NodeExists, path
            nodes[path] = Node(op.data, 0, zxid, zxid, session_id if op.ephemeral else 0)
            created[path] = 0
            created[parent] += 1
            return None, path
        if path not in nodes:
            return NoNode, path
        if op.version not in (ANY_VERSION, nodes[path].version):
            return BadVersion, path
        if isinstance(op, SetData):
            before = nodes[path]
            nodes[path] = Node(op.data, before.version + 1, before.czxid, zxid, before.ephemeral_owner)
        elif isinstance(op, Delete):
            if any(parent_of(other) == path for other in nodes):
                return NotEmpty, path
            del nodes[path], created[path]
        return None, path


def everything(tree: Tree) -> dict[str, Node]:
    return dict(tree.walk("/"))


@given(transactions)
def test_a_transaction_happens_as_a_whole_or_not_at_all(transactions: list[list[Op]]) -> None:
    tree, model = Tree(), Model()
    for session, ops in enumerate(transactions, 1):
        assert tree.apply(ops, session) == model.apply(ops, session)
        assert everything(tree) == model.nodes
        for path in [*model.nodes, *PATHS]:
            expected = sorted(p[p.rfind("/") + 1 :] for p in model.nodes if p != "/" and parent_of(p) == path)
            assert tree.children(path) == expected
        owned = {p: n.ephemeral_owner for p, n in model.nodes.items() if n.ephemeral_owner}
        assert {p: s for s in tree.sessions() for p in tree.ephemerals(s)} == owned


@given(transactions)
def test_a_thawed_tree_goes_on_as_the_frozen_one_would_have(transactions: list[list[Op]]) -> None:
    middle = len(transactions) // 2
    tree = Tree()
    for ops in transactions[:middle]:
        tree.apply(ops, 7)
    copy = Tree.thaw(tree.freeze())
    for ops in transactions[middle:]:
        assert copy.apply(ops, 7) == tree.apply(ops, 7)
    assert copy.freeze() == tree.freeze()


def test_a_frozen_tree_does_not_change_with_the_living_one() -> None:
    tree = Tree()
    tree.apply([Create("/a", b"1")], 1)
    frozen = tree.freeze()
    tree.apply([SetData("/a", b"2"), Create("/b")], 1)
    assert everything(Tree.thaw(frozen))["/a"].data == b"1"
    assert Tree.thaw(frozen).get("/b") is None


def test_sequence_numbers_never_come_again() -> None:
    tree = Tree()
    tree.apply([Create("/q")], 1)
    first = tree.apply([Create("/q/n-", sequential=True)], 1)
    tree.apply([Delete("/q/n-0000000000")], 1)
    second = tree.apply([Create("/q/n-", sequential=True)], 1)
    assert isinstance(first, Committed) and list(first.paths) == ["/q/n-0000000000"]
    assert isinstance(second, Committed) and list(second.paths) == ["/q/n-0000000001"]


def test_paths_that_are_none_are_refused() -> None:
    tree = Tree()
    for path in ("", "/", "a", "/a/", "//a", "/a\0"):
        assert isinstance(tree.apply([Create(path)], 1), BadPath | NoNode), path
    assert tree.apply([Delete("/")], 1) == BadPath("/", 0)
    assert everything(tree) == {"/": Node(b"", 0, 0, 0)}
