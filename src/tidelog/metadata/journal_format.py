"""The bytes of the embedded store on disk: frames, transactions, snapshots.

Two files hold a store. Both begin with eight bytes of magic, then frames:

    frame         uint32 marker 0x74694465, uint32 payload length, uint32 CRC-32C of the payload, payload

    snapshot      one frame: uint64 zxid, uint32 node count, nodes
    node          uint32 path length, uint32 data length, uint32 version, uint32 children ever created,
                  uint64 czxid, uint64 mzxid, uint64 ephemeral owner, path, data

    journal       first a frame with uint64 zxid: the transaction after which the journal begins. Then one frame for
                  each sync: transactions that were made durable together
    transaction   uint64 zxid, uint64 session, uint32 operation count, operations
    operation     uint8 kind, uint32 path length, uint32 data length, path, data
                  kinds: 1 create, 2 create ephemeral, 3 set data, 4 delete

Only successful transactions are written, with versions checked and sequence numbers filled in, so that replaying one
cannot be refused.

A crash can tear only the last frame, because a frame is written only after the previous one was synced. So a bad frame
without a complete one after it is truncated: it was never acknowledged. A bad frame with a complete one somewhere after
it was synced and has been damaged since. It is refused (`CorruptMetadata`), because continuing would lose acknowledged
transactions. The marker makes it possible to find the frames after a damaged length.

Files are replaced by writing a temporary one, syncing it, renaming it and syncing the directory. A journal that is
older than the snapshot next to it (after a crash between the two renames) is harmless: transactions up to the
snapshot's zxid are skipped.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Iterator, Sequence
from typing import Final

from fastcrc import crc32

from tidelog.metadata.store import Check, Create, Delete, Node, Op, SetData
from tidelog.metadata.tree import Frozen, Tree

SNAPSHOT_MAGIC: Final = b"TLMSNAP1"
JOURNAL_MAGIC: Final = b"TLMJRNL1"
MARKER: Final = b"tiDe"
FRAME: Final = struct.Struct(">4sII")
ZXID: Final = struct.Struct(">Q")
SNAPSHOT_HEAD: Final = struct.Struct(">QI")
NODE_HEAD: Final = struct.Struct(">IIIIQQQ")
TRANSACTION_HEAD: Final = struct.Struct(">QQI")
OP_HEAD: Final = struct.Struct(">BII")

CREATE: Final = 1
CREATE_EPHEMERAL: Final = 2
SET_DATA: Final = 3
DELETE: Final = 4


#: errors of a disk that is full
NO_ROOM: Final = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))


class CorruptMetadata(Exception):
    """The metadata on disk is damaged in a way that no crash explains; the message names the file and the place."""


def frame(payload: bytes) -> bytes:
    return FRAME.pack(MARKER, len(payload), crc32.iscsi(payload)) + payload


def read_frame(data: bytes, at: int) -> tuple[bytes, int] | None:
    """The payload of the frame at `at` and where the next begins; None where no whole frame stands."""
    if at + FRAME.size > len(data):
        return None
    marker, length, crc = FRAME.unpack_from(data, at)
    end = at + FRAME.size + length
    if marker != MARKER or end > len(data):
        return None
    payload = data[at + FRAME.size : end]
    return (payload, end) if crc32.iscsi(payload) == crc else None


def encode_path(path: str) -> bytes:
    # A path may hold what UTF-8 does not (a lone surrogate from a client): it must still come back the same.
    return path.encode("utf-8", "surrogatepass")


def decode_path(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogatepass")


# Transactions


def encode_transaction(zxid: int, session_id: int, ops: Sequence[Op], paths: Sequence[str]) -> bytes | None:
    """None if nothing changed. `paths` are those of `Committed`, with their sequence numbers."""
    parts = [b""]
    head = OP_HEAD.pack
    for op, path in zip(ops, paths, strict=True):
        raw = encode_path(path)
        if isinstance(op, Create):
            parts += (head(CREATE_EPHEMERAL if op.ephemeral else CREATE, len(raw), len(op.data)), raw, op.data)
        elif isinstance(op, SetData):
            parts += (head(SET_DATA, len(raw), len(op.data)), raw, op.data)
        elif isinstance(op, Delete):
            parts += (head(DELETE, len(raw), 0), raw, b"")
        else:
            assert isinstance(op, Check)
    if len(parts) == 1:
        return None
    parts[0] = TRANSACTION_HEAD.pack(zxid, session_id, len(parts) // 3)
    return b"".join(parts)


def decode_transactions(payload: bytes) -> Iterator[tuple[int, int, list[Op]]]:
    """zxid, session and operations of each transaction of a frame. Raises struct.error or ValueError if malformed."""
    at = 0
    unpack = OP_HEAD.unpack_from
    head_size = OP_HEAD.size
    while at < len(payload):
        zxid, session_id, count = TRANSACTION_HEAD.unpack_from(payload, at)
        at += TRANSACTION_HEAD.size
        ops: list[Op] = []
        for _ in range(count):
            kind, path_length, data_length = unpack(payload, at)
            path_at = at + head_size
            data_at = path_at + path_length
            at = data_at + data_length
            if at > len(payload):
                raise ValueError("an operation extends past its frame")
            path = decode_path(payload[path_at:data_at])
            if kind == SET_DATA:
                ops.append(SetData(path, payload[data_at:at]))
            elif kind in (CREATE, CREATE_EPHEMERAL):
                ops.append(Create(path, payload[data_at:at], ephemeral=kind == CREATE_EPHEMERAL))
            elif kind == DELETE:
                ops.append(Delete(path))
            else:
                raise ValueError(f"unknown kind of operation {kind}")
        yield zxid, session_id, ops


# Snapshots


def encode_snapshot(frozen: Frozen) -> bytes:
    parts = [SNAPSHOT_HEAD.pack(frozen.zxid, len(frozen.nodes))]
    head = NODE_HEAD.pack
    created_under = frozen.created_under
    for path, (data, version, czxid, mzxid, owner) in frozen.nodes.items():
        raw = encode_path(path)
        parts += (head(len(raw), len(data), version, created_under.get(path, 0), czxid, mzxid, owner), raw, data)
    return SNAPSHOT_MAGIC + frame(b"".join(parts))


def decode_snapshot(data: bytes, name: str) -> Tree:
    whole = read_frame(data, len(SNAPSHOT_MAGIC)) if data.startswith(SNAPSHOT_MAGIC) else None
    if whole is None or whole[1] != len(data):
        raise CorruptMetadata(f"{name}: not a complete snapshot of a metadata store (its checksum does not match)")
    payload = whole[0]
    nodes: dict[str, Node] = {}
    created_under: dict[str, int] = {}
    unpack = NODE_HEAD.unpack_from
    head_size = NODE_HEAD.size
    try:
        zxid, count = SNAPSHOT_HEAD.unpack_from(payload, 0)
        at = SNAPSHOT_HEAD.size
        for _ in range(count):
            path_length, data_length, version, created, czxid, mzxid, owner = unpack(payload, at)
            path_at = at + head_size
            data_at = path_at + path_length
            at = data_at + data_length
            path = decode_path(payload[path_at:data_at])
            nodes[path] = Node(payload[data_at:at], version, czxid, mzxid, owner)
            if created:
                created_under[path] = created
        return Tree.thaw(Frozen(zxid, nodes, created_under))
    except (struct.error, ValueError) as error:
        raise CorruptMetadata(f"{name}: {error}") from error


# Journals


def encode_journal_start(zxid: int) -> bytes:
    return JOURNAL_MAGIC + frame(ZXID.pack(zxid))


def replay(data: bytes, tree: Tree, name: str) -> int:
    """Applies to `tree` what the journal holds after the tree's zxid; returns where the last whole frame ends."""
    start = read_frame(data, len(JOURNAL_MAGIC)) if data.startswith(JOURNAL_MAGIC) else None
    if start is None or len(start[0]) != ZXID.size:
        raise CorruptMetadata(f"{name}: not a journal of a metadata store")
    (base,) = ZXID.unpack(start[0])
    if base > tree.zxid:
        raise CorruptMetadata(
            f"{name}: starts after transaction {base}, but the snapshot ends at {tree.zxid}: a snapshot is missing"
        )
    at = start[1]
    while (found := read_frame(data, at)) is not None:
        payload, end = found
        try:
            for zxid, session_id, ops in decode_transactions(payload):
                _replay_one(tree, zxid, session_id, ops)
        except (struct.error, ValueError) as error:
            raise CorruptMetadata(f"{name}: frame at byte {at}: {error}") from error
        at = end
    behind = _whole_frame_behind(data, at)
    if behind >= 0:
        raise CorruptMetadata(
            f"{name}: the frame at byte {at} is damaged, yet a whole one follows at byte {behind}: "
            f"transactions after {tree.zxid} were acknowledged and cannot be read"
        )
    return at


def _replay_one(tree: Tree, zxid: int, session_id: int, ops: list[Op]) -> None:
    if zxid <= tree.zxid:
        return
    if zxid != tree.zxid + 1:
        raise ValueError(f"transaction {zxid} follows {tree.zxid}")
    refusal = tree.apply(ops, session_id)
    if tree.zxid != zxid:
        raise ValueError(f"transaction {zxid} cannot be replayed: {refusal}")


def _whole_frame_behind(data: bytes, at: int) -> int:
    while (at := data.find(MARKER, at + 1)) >= 0:
        if read_frame(data, at) is not None:
            return at
    return -1


# Files


def write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def replace_file(directory: str, directory_fd: int, name: str, data: bytes) -> None:
    """Whenever the power fails, the file holds all of `data` or what it held before."""
    path = os.path.join(directory, name)
    fd = os.open(path + ".tmp", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        try:
            write_all(fd, data)
            os.fsync(fd)
        finally:
            os.close(fd)
    except OSError:
        os.unlink(path + ".tmp")
        raise
    os.rename(path + ".tmp", path)
    os.fsync(directory_fd)
