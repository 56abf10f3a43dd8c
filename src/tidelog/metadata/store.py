"""The interface of the metadata store: a tree of small versioned nodes, changed by atomic lists of operations.

The model is ZooKeeper's, reduced to what a Kafka cluster needs:

    path            "/brokers/topics/orders"; absolute, no trailing slash; the parent must exist
    node            data bytes, `version` (0 at creation, +1 for each SetData), `czxid` and `mzxid` (the transactions
                    that created and last changed it), `ephemeral_owner` (a session id, 0 for a persistent node)
    transaction     `submit(ops, done)`: every operation or none; each committed one has the next `zxid`
    sequential      Create(sequential=True) appends ten digits that count the children ever created under the parent
    session         owns ephemeral nodes, which vanish with it; ephemeral nodes have no children

Everything is asynchronous. A call takes `done(result)`, and `done` is called exactly once, on the broker's thread, in
the order in which the calls were made; a store that has the answer at hand may call it before the call returns. A
result is either a value or a `StoreRefusal`, which is a value too: nothing is raised. A read that comes after a submit
sees it, and is answered after it.

Watches. ZooKeeper's own watches fire once and must be set again. A change in between can go unseen, so users have to
read again after every event anyway. This interface offers what such a reader needs: `watch(path, callback)` stays until
it is cancelled, and guarantees that at least one event arrives after the *last* change to the node (its existence, its
data or its list of children). Several changes may be reported as one, and an event may arrive without a change, for
instance after a lost connection was restored. So an event means: read again. An event arrives before the answer to any
later read that sees the change. Watch first, then read: a change between an earlier read and the watch may go unheard.

When the session ends (it expired, or the store was closed), every watch gets `SESSION_EXPIRED` once, ephemeral nodes
are gone, and later calls are answered with `SessionExpired`. The broker then opens a new store, registers and loads
again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple, Protocol

#: Matches any version of an existing node, in SetData, Delete and Check.
ANY_VERSION: Final = -1
#: The version reported for an operation that leaves no node behind.
NO_VERSION: Final = -1
NO_OWNER: Final = 0


class Node(NamedTuple):
    """A node as it was at one moment; a change makes a new value."""

    data: bytes
    version: int
    czxid: int
    mzxid: int
    ephemeral_owner: int = NO_OWNER


class Create(NamedTuple):
    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequential: bool = False


class SetData(NamedTuple):
    path: str
    data: bytes
    version: int = ANY_VERSION


class Delete(NamedTuple):
    path: str
    version: int = ANY_VERSION


class Check(NamedTuple):
    """Refuses the transaction unless the node exists at this version; changes nothing."""

    path: str
    version: int = ANY_VERSION


Op = Create | SetData | Delete | Check


class Committed(NamedTuple):
    """A transaction that happened. `paths` and `versions` stand beside the operations, one each: the path (with its
    sequence number) and the version that the node now has, `NO_VERSION` where it was deleted. A Check tells the version
    that it asked for."""

    zxid: int
    paths: Sequence[str]
    versions: Sequence[int]


@dataclass(slots=True, frozen=True)
class StoreRefusal:
    """Why a call changed nothing; `index` is the operation that was refused, -1 for a call that is not a submit."""

    path: str
    index: int = -1


class NoNode(StoreRefusal):
    """The node, or the parent of a node to be created, does not exist."""


class NodeExists(StoreRefusal):
    """There is already a node at the path."""


class BadVersion(StoreRefusal):
    """The node has another version: someone else changed it first."""


class NotEmpty(StoreRefusal):
    """A node with children is not deleted."""


class NoChildrenForEphemerals(StoreRefusal):
    """An ephemeral node has no children."""


class BadPath(StoreRefusal):
    """Not an absolute path of non-empty parts, or the root where it may not stand."""


class ConnectionLoss(StoreRefusal):
    """The answer was lost with the connection: the transaction may or may not have happened. Read before trying again.
    Only a submit is answered so; a read has nothing to lose, and is tried again until the session ends."""


class SessionExpired(StoreRefusal):
    """The session is over: its ephemeral nodes are gone, and nothing more is done for it."""


class TransactionTooLarge(StoreRefusal):
    """More than the store takes in one transaction (`path` says how much): nothing happened. Divide it."""


class RefusedByEnsemble(StoreRefusal):
    """The servers of the store refuse for a reason of their own (`path` says which), such as an ACL or a quota."""


class StoreFailed(StoreRefusal):
    """The store could not write (`path` says what): it answers nothing more until it is opened again, which finds every
    transaction that was ever acknowledged. The one that met the failure may or may not be among them."""


class NoRoom(StoreRefusal):
    """The disk was full (`path` says where): nothing happened, and the store goes on. Try again when there is room."""


SubmitResult = Committed | StoreRefusal
GetResult = Node | StoreRefusal
ExistsResult = Node | None | StoreRefusal
ChildrenResult = list[str] | StoreRefusal
#: a path and its node, parents before their children
TreeResult = list[tuple[str, Node]] | StoreRefusal


class EventKind(Enum):
    CREATED = "created"
    CHANGED = "changed"
    DELETED = "deleted"
    CHILDREN = "children"
    SESSION_EXPIRED = "session expired"


class WatchEvent(NamedTuple):
    path: str
    kind: EventKind


class Connection(Enum):
    """Of a session to the store that it lives on, where that is elsewhere."""

    #: the first connection is being made
    CONNECTING = "connecting"
    #: it took longer than the connection timeout; it is still tried
    UNREACHABLE = "unreachable"
    CONNECTED = "connected"
    #: lost, and being made again; the session may go on, or have ended without our knowing
    SUSPENDED = "suspended"
    ENDED = "ended"


class Watch(Protocol):
    def cancel(self) -> None: ...


class MetadataStore(Protocol):
    #: what was found to be missing when the store was opened, in words
    losses: list[str]

    @property
    def connection(self) -> Connection: ...

    @property
    def session_id(self) -> int:
        """Owner of the ephemeral nodes that this store creates."""

    def submit(self, ops: Sequence[Op], done: Callable[[SubmitResult], None]) -> None:
        """All of `ops` or none; durable before `done` hears `Committed`."""

    def get(self, path: str, done: Callable[[GetResult], None]) -> None: ...

    def exists(self, path: str, done: Callable[[ExistsResult], None]) -> None:
        """As `get`, but the absence of the node is an answer: None."""

    def children(self, path: str, done: Callable[[ChildrenResult], None]) -> None:
        """The names under `path`, sorted."""

    def tree(self, path: str, done: Callable[[TreeResult], None]) -> None:
        """`path` and everything below it. A store over a network reads it in many steps, so that the answer is not of
        one moment: what depends on it carries the versions that it read."""

    def watch(self, path: str, callback: Callable[[WatchEvent], None]) -> Watch: ...

    def close(self) -> None:
        """Ends the session after what was submitted is answered."""


def parent_of(path: str) -> str:
    return path[: path.rfind("/")] or "/"


def is_valid_path(path: str) -> bool:
    """Absolute, no empty part, no trailing slash; the root itself is no path to create or change."""
    return len(path) > 1 and path[0] == "/" and path[-1] != "/" and "//" not in path and "\0" not in path
