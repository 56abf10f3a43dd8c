"""What is asked of ZooKeeper and what it answers, translated: operations and results of `store` on one side, kazoo's
requests, stats and exceptions on the other.

Paths are translated too: the store's tree stands under a chroot, of which nobody else knows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from kazoo import exceptions as zk
from kazoo.protocol import serialization
from kazoo.security import OPEN_ACL_UNSAFE

from tidelog.metadata.store import (
    NO_VERSION,
    BadPath,
    BadVersion,
    Check,
    Committed,
    ConnectionLoss,
    Create,
    Delete,
    NoChildrenForEphemerals,
    Node,
    NodeExists,
    NoNode,
    NotEmpty,
    Op,
    RefusedByEnsemble,
    SetData,
    StoreRefusal,
    SubmitResult,
    TransactionTooLarge,
    is_valid_path,
)

#: A server closes the connection on a request of more bytes: its jute.maxbuffer, where nobody changed it.
MAX_REQUEST_BYTES: Final = 0xFFFFF

_EPHEMERAL, _SEQUENTIAL = 1, 2
#: what ZooKeeper takes in no path: control characters, and whatever Java writes with surrogates or for private use
_FORBIDDEN: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff\U00010000-\U0010ffff]")
_DOTS: Final = re.compile(r"/\.\.?(/|$)")

#: what stands around the operations of a multi, the fields of an operation, and the ACL of a created node
_AROUND_OPS, _AROUND_FIELDS = 4 + 4 + 9, 9 + 4 + 4 + 4
_ACL_BYTES: Final = 4 + sum(4 + 4 + len(acl.id.scheme) + 4 + len(acl.id.id) for acl in OPEN_ACL_UNSAFE)

_REFUSALS: Final[dict[type[Exception], type[StoreRefusal]]] = {
    zk.NoNodeError: NoNode,
    zk.NodeExistsError: NodeExists,
    zk.BadVersionError: BadVersion,
    zk.NotEmptyError: NotEmpty,
    zk.NoChildrenForEphemeralsError: NoChildrenForEphemerals,
}
#: in the answer to a refused multi, what stands beside the operations that were not themselves refused
_BYSTANDERS: Final = (zk.RolledBackError, zk.RuntimeInconsistency)
#: The answer was lost with the connection, or will not come.
LOST: Final = (zk.ConnectionLoss, zk.SessionExpiredError)
#: An answer that says nothing of what happened.
VOID: Final = (zk.OperationTimeoutError, zk.SessionMovedError)


class Chroot:
    """Where the store's tree stands in that of the ensemble: "" for the root, or a path."""

    __slots__ = ("_prefix",)

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def full(self, path: str) -> str:
        return self._prefix + path if path != "/" else self._prefix or "/"

    def own(self, full: str) -> str:
        return full[len(self._prefix) :] or "/"


def can_exist(path: str) -> bool:
    """Whether ZooKeeper could have a node there."""
    return path == "/" or (is_valid_path(path) and not _FORBIDDEN.search(path) and not _DOTS.search(path))


def to_operations(ops: Sequence[Op], chroot: Chroot) -> list[Any] | StoreRefusal:
    """The operations of a multi, or why it is not worth sending."""
    operations: list[Any] = []
    size_bytes = _AROUND_OPS
    for index, op in enumerate(ops):
        if refusal := _refused_path(op):
            return refusal(op.path, index)
        path = chroot.full(op.path)
        size_bytes += _AROUND_FIELDS + len(path.encode())
        if isinstance(op, Create):
            flags = (_EPHEMERAL if op.ephemeral else 0) | (_SEQUENTIAL if op.sequential else 0)
            operations.append(serialization.Create(path, op.data, OPEN_ACL_UNSAFE, flags))
            size_bytes += len(op.data) + _ACL_BYTES
        elif isinstance(op, SetData):
            operations.append(serialization.SetData(path, op.data, op.version))
            size_bytes += len(op.data)
        else:
            kind = serialization.Delete if isinstance(op, Delete) else serialization.CheckVersion
            operations.append(kind(path, op.version))
            size_bytes -= 4  # it has no data, and no length of it
    if size_bytes > MAX_REQUEST_BYTES:
        return TransactionTooLarge(
            f"{len(ops)} operations are {size_bytes} bytes; ZooKeeper takes {MAX_REQUEST_BYTES} at once"
        )
    return operations


def _refused_path(op: Op) -> type[StoreRefusal] | None:
    if isinstance(op, Create):
        # A sequential node may have no name but its number.
        path = op.path + "0" if op.sequential else op.path
        return None if can_exist(path) and path != "/" else BadPath
    if isinstance(op, Delete) and op.path == "/":
        return BadPath
    return None if can_exist(op.path) else NoNode


def to_submit_result(ops: Sequence[Op], answer: object, zxid: int, chroot: Chroot) -> SubmitResult:
    """What a multi came to; `zxid` is that of its reply, which is the transaction's own."""
    if isinstance(answer, LOST + VOID):
        return ConnectionLoss(ops[0].path if ops else "")
    if not isinstance(answer, list):
        return RefusedByEnsemble(_words(answer))
    for index, (op, result) in enumerate(zip(ops, answer, strict=True)):
        if isinstance(result, Exception) and not isinstance(result, _BYSTANDERS):
            refusal = _REFUSALS.get(type(result))
            return refusal(op.path, index) if refusal else RefusedByEnsemble(f"{op.path}: {_words(result)}", index)
    paths = [chroot.own(result) if isinstance(op, Create) else op.path for op, result in zip(ops, answer, strict=True)]
    return Committed(zxid, paths, list(map(_version, ops, answer)))


def _version(op: Op, result: Any) -> int:
    if isinstance(op, Create):
        return 0
    if isinstance(op, SetData):
        version: int = result.version
        return version
    return op.version if isinstance(op, Check) else NO_VERSION


def to_node(data: bytes | None, stat: Any) -> Node:
    return Node(data or b"", stat.version, stat.czxid, stat.mzxid, stat.ephemeralOwner)


def to_read_refusal(path: str, answer: object) -> StoreRefusal:
    return NoNode(path) if isinstance(answer, zk.NoNodeError) else RefusedByEnsemble(f"{path}: {_words(answer)}")


def _words(answer: object) -> str:
    return f"ZooKeeper answered {type(answer).__name__.removesuffix('Error')}{f' ({answer})' if str(answer) else ''}"


class NodeLook(NamedTuple):
    """What a `MultiRead` found at one path."""

    data: bytes | None
    stat: Any
    children: list[str]


class MultiRead:
    """Data and children of many nodes in one request, which ZooKeeper has since 3.6 and kazoo has not. Each node is
    answered for itself: with a `NodeLook`, or None where it is not there. One that may not be read refuses all of them,
    with the error of that node."""

    __slots__ = ("paths",)
    type = 22

    def __init__(self, paths: Sequence[str]) -> None:
        self.paths = paths

    def serialize(self) -> bytes:
        out = bytearray()
        for path in self.paths:
            for request in (serialization.GetData(path, None), serialization.GetChildren(path, None)):
                out += serialization.MultiHeader(request.type, False, -1).serialize() + request.serialize()
        return bytes(out + serialization.MultiHeader(-1, True, -1).serialize())

    def deserialize(self, buffer: bytes, offset: int) -> list[NodeLook | None] | zk.ZookeeperError:
        looks: list[NodeLook | None] = []
        for path in self.paths:
            try:
                data, offset = _read_part(buffer, offset)
                children, offset = _read_part(buffer, offset)
            except zk.ZookeeperError as error:
                # As a value: kazoo takes what is raised here for a mistake of this program.
                return type(error)(path)
            # A node that went between the two is not there.
            looks.append(None if data is None or children is None else NodeLook(data[0], data[1], children))
        return looks


def _read_part(buffer: bytes, offset: int) -> tuple[Any, int]:
    header, offset = serialization.MultiHeader.deserialize(buffer, offset)
    if header.type == serialization.GetData.type:
        data, offset = serialization.read_buffer(buffer, offset)
        stat_end = offset + serialization.stat_struct.size
        stat = serialization.ZnodeStat._make(serialization.stat_struct.unpack_from(buffer, offset))
        return (data, stat), stat_end
    if header.type == serialization.GetChildren.type:
        (count,) = serialization.int_struct.unpack_from(buffer, offset)
        offset += serialization.int_struct.size
        children = []
        for _ in range(count):
            child, offset = serialization.read_string(buffer, offset)
            children.append(child)
        return children, offset
    (code,) = serialization.int_struct.unpack_from(buffer, offset)
    if code != zk.NoNodeError.code:
        raise zk.EXCEPTIONS[code]()
    return None, offset + serialization.int_struct.size
