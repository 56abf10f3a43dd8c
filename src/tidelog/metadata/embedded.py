"""The embedded store: the tree in memory, every transaction in a journal before it is acknowledged.

Its files (see `journal` for their format) are in one of the broker's log directories (`place`). They are plain files:
Apache Kafka ignores unknown files there, but refuses to start on a directory that is not a partition.

    tidelog-metadata.snapshot     the tree at some transaction; absent in a young store
    tidelog-metadata.journal      the transactions since
    tidelog-metadata.reserve      room that a start may use where the disk has none left (`reserve`)

Life of a transaction: it is applied to the tree or refused at once. Its bytes wait until the executor writes and syncs
all waiting bytes as one frame. Then the callbacks run, in the order of the calls. Calls made during a sync wait for the
next one, so that many submits share a sync. Reads are answered in the same order, so a reader never sees a transaction
that a crash could still undo.

Only one executor call runs at a time. When the journal has outgrown the snapshot, the next sync writes a snapshot of
the tree instead, which also makes the waiting transactions durable, and starts an empty journal.

Crash: everything that was acknowledged is in the synced part of the files. A torn tail is truncated when the store is
opened; its contents were never acknowledged. Ephemeral nodes belong to a session, and the session to the process: they
are removed when the store is opened, and the removal is written with the first sync.

Full disk: the write is undone. The file is truncated to its previous end, the tree is read again from it, and every
waiting transaction is answered with `NoRoom`. The next one may succeed. Startup cannot do without writing: until
`started` is called, the reserve gives way to what must be written.

Any other failed write or sync ends the store: the tree may be ahead of the disk, and after a failed fsync the kernel
may have dropped the pages, so that retrying proves nothing. Every call is then answered with `StoreFailed`; the only
way back is to open the store again.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from tidelog.metadata.journal_format import (
    NO_ROOM,
    CorruptMetadata,
    decode_snapshot,
    encode_journal_start,
    encode_snapshot,
    encode_transaction,
    frame,
    replace_file,
    replay,
    write_all,
)
from tidelog.metadata.reserve import Reserve
from tidelog.metadata.store import (
    ChildrenResult,
    Committed,
    Connection,
    Delete,
    ExistsResult,
    GetResult,
    NoNode,
    NoRoom,
    Op,
    SessionExpired,
    StoreFailed,
    StoreRefusal,
    SubmitResult,
    TreeResult,
    Watch,
    WatchEvent,
)
from tidelog.metadata.tree import Frozen, Tree
from tidelog.metadata.watches import Watches

SNAPSHOT_NAME: Final = "tidelog-metadata.snapshot"
JOURNAL_NAME: Final = "tidelog-metadata.journal"
RESERVE_NAME: Final = "tidelog-metadata.reserve"
#: A journal below this size is not worth a snapshot.
SNAPSHOT_AFTER_BYTES: Final = 1 << 20

#: Runs the function, on whatever thread, and then calls the second argument with its result on the broker's thread.
Executor = Callable[[Callable[[], object], Callable[[object], None]], None]


class StoreLocked(Exception):
    """Another process has the store open."""


def inline(work: Callable[[], object], done: Callable[[object], None]) -> None:
    done(work())


class EmbeddedStore:
    """See `store.MetadataStore` for the calls. Opening reads, and writes nothing; it raises `CorruptMetadata`,
    `StoreLocked` or OSError."""

    def __init__(
        self,
        directory: str,
        executor: Executor = inline,
        snapshot_after_bytes: int = SNAPSHOT_AFTER_BYTES,
        on_no_room: Callable[[OSError], None] = lambda error: None,
    ) -> None:
        self._executor = executor
        #: told on the broker's thread of every time that the disk was full
        self._on_no_room = on_no_room
        self._files = _Files(directory, snapshot_after_bytes)
        self._watches = Watches()
        #: set once the store answers nothing more
        self._ended: type[StoreRefusal] | None = None
        self._end_reason = ""
        self._on_closed: Callable[[], None] | None = None
        #: encoded transactions that wait for the next sync, and the answers that wait behind them
        self._records: list[bytes] = []
        self._answers: list[_Answer] = []
        #: the answers behind the sync that is under way
        self._flight: list[_Answer] = []
        self._turning = False
        self._in_executor = False
        #: what the last sync came to, until its answers are given
        self._outcome: object = None
        self.session_id = -1
        try:
            self._tree = self._files.load()
        except BaseException:
            self._files.close()
            raise
        #: what was found to be missing when the store was opened, in words
        self.losses = self._files.losses
        self.session_id = self._tree.zxid + 1
        #: goes with the first sync; a reader need not wait for it, since any later opening does the same
        self._preamble = self._drop_ephemerals()

    def _drop_ephemerals(self) -> list[bytes]:
        """Of sessions that ended with their processes."""
        for owner in self._tree.sessions():
            if owner == self.session_id:
                continue
            ops = [Delete(path) for path in self._tree.ephemerals(owner)]
            self._record(ops, self._tree.apply(ops, owner), owner)
        dropped, self._records = self._records, []
        return dropped

    # Calls

    @property
    def connection(self) -> Connection:
        return Connection.CONNECTED

    def submit(self, ops: Sequence[Op], done: Callable[[SubmitResult], None]) -> None:
        if self._ended:
            self._answer(done, self._refusal())
            return
        result = self._tree.apply(ops, self.session_id)
        self._record(ops, result, self.session_id)
        self._answer(done, result, ops)

    def get(self, path: str, done: Callable[[GetResult], None]) -> None:
        self._read(done, lambda: self._tree.get(path) or NoNode(path))

    def exists(self, path: str, done: Callable[[ExistsResult], None]) -> None:
        self._read(done, lambda: self._tree.get(path))

    def children(self, path: str, done: Callable[[ChildrenResult], None]) -> None:
        self._read(done, lambda: NoNode(path) if self._tree.get(path) is None else self._tree.children(path))

    def tree(self, path: str, done: Callable[[TreeResult], None]) -> None:
        self._read(done, lambda: self._tree.walk(path) or NoNode(path))

    def watch(self, path: str, callback: Callable[[WatchEvent], None]) -> Watch:
        return self._watches.add(path, callback)

    def started(self) -> None:
        """Whoever uses the store has begun its life: from here on a full disk refuses what can be asked again."""
        self._files.starting = False
        self._files.fill_reserve()

    def close(self, done: Callable[[], None] = lambda: None) -> None:
        """What was submitted is synced and answered first; then the files are released and `done` is called."""
        if self._on_closed is not None or self._ended is SessionExpired:
            return
        self._on_closed = done
        self._turn()

    # One sync at a time

    def _refusal(self) -> StoreRefusal | None:
        return self._ended(self._end_reason) if self._ended else None

    def _record(self, ops: Sequence[Op], result: SubmitResult, session_id: int) -> None:
        if isinstance(result, Committed):
            encoded = encode_transaction(result.zxid, session_id, ops, result.paths)
            if encoded is not None:
                self._records.append(encoded)

    def _read(self, done: Callable[[Any], None], look: Callable[[], object]) -> None:
        self._answer(done, self._refusal() or look(), (), look)

    def _answer(
        self,
        done: Callable[[Any], None],
        result: object,
        ops: Sequence[Op] = (),
        look: Callable[[], object] | None = None,
    ) -> None:
        self._answers.append((done, result, ops, look))
        self._turn()

    def _turn(self) -> None:
        """Syncs and answers until nothing waits. A callback that submits again only adds to what waits, and an
        executor that is done at once only ends the loop's step: neither makes the stack grow."""
        if self._turning or self._in_executor:
            return
        self._turning = True
        raised: Exception | None = None
        try:
            while self._answers or self._outcome is not None:
                if self._outcome is None and self._records and self._ended is None:
                    self._in_executor = True
                    self._executor(self._next_sync(), self._synced)
                    if self._in_executor:
                        break
                raised = self._deliver() or raised
        finally:
            self._turning = False
        if self._on_closed is not None and not self._in_executor:
            self._end()
        if raised is not None:
            raise raised

    def _next_sync(self) -> Callable[[], object]:
        files, records = self._files, self._preamble + self._records
        self._preamble, self._records = [], []
        self._flight, self._answers = self._answers, []
        frozen = self._tree.freeze() if files.wants_snapshot(sum(map(len, records))) else None

        def sync() -> object:
            try:
                if frozen is None or not files.write_snapshot(frozen):
                    files.append(b"".join(records))
            except (OSError, _Full) as error:
                return error
            return True

        return sync

    def _synced(self, outcome: object) -> None:
        self._in_executor = False
        self._outcome = outcome
        self._turn()

    def _deliver(self) -> Exception | None:
        """Gives the answers whose turn it is. What a callback raised is returned: it does not take the answers of
        others with it."""
        outcome, self._outcome = self._outcome, None
        if outcome is None:
            answers, self._answers = self._answers, []
        else:
            answers, self._flight = self._flight, []
            if isinstance(outcome, _Full):
                answers, self._answers = answers + self._answers, []
                return self._take_back(answers, outcome)
            if outcome is not True and self._ended is None:
                self._ended, self._end_reason = StoreFailed, f"metadata could not be written: {outcome}"
                answers, self._answers, self._records = answers + self._answers, [], []
        failure = self._refusal() if outcome is not None else None
        raised: Exception | None = None
        for done, result, ops, _ in answers:
            try:
                if ops and failure is None and isinstance(result, Committed):
                    self._watches.tell(self._watches.events_of(ops, result))
                done(failure or result)
            except Exception as error:
                raised = raised or error
        return raised

    def _take_back(self, answers: list[_Answer], full: _Full) -> Exception | None:
        """Nothing of what waited has happened: the tree is again what the files say."""
        self._records = []
        self._tree = self._files.read()
        self._preamble = self._drop_ephemerals()
        self._on_no_room(full.error)
        refusal = NoRoom(f"{full.error.filename}: {full.error.strerror}")
        raised: Exception | None = None
        for done, _, _, look in answers:
            try:
                done(refusal if look is None else look())
            except Exception as error:
                raised = raised or error
        return raised

    def _end(self) -> None:
        on_closed = self._on_closed
        assert on_closed is not None
        self._on_closed = None
        self._ended, self._end_reason = SessionExpired, "the store is closed"
        self._files.close()
        self._watches.expire()
        on_closed()


#: whom to tell, what, the operations of a submit, and how a read finds its answer anew
_Answer = tuple[Callable[[Any], None], object, Sequence[Op], Callable[[], object] | None]


class _Full(Exception):
    """There was no room, and the files are as they were."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


class _Files:
    """The two files and the lock on their directory. `append` and `write_snapshot` run on the executor's thread, one
    at a time; the broker's thread touches nothing here while one of them is under way."""

    __slots__ = (
        "_directory",
        "_directory_fd",
        "_journal_bytes",
        "_journal_fd",
        "_reserve",
        "_snapshot_bytes",
        "_threshold",
        "_zxid",
        "losses",
        "starting",
    )

    def __init__(self, directory: str, snapshot_after_bytes: int) -> None:
        self._directory = directory
        self._threshold = snapshot_after_bytes
        self._snapshot_bytes = 0
        self._journal_bytes = 0
        self._journal_fd = -1
        #: the transaction after which a journal would begin that is started now
        self._zxid = 0
        self.losses: list[str] = []
        self._reserve = Reserve(self._name(RESERVE_NAME))
        #: the reserve may be used, and is not filled
        self.starting = True
        os.makedirs(directory, exist_ok=True)
        self._directory_fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(self._directory_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._directory_fd)
            raise StoreLocked(f"the metadata in {directory} is in use by another process") from error

    def load(self) -> Tree:
        stored = read_store(self._directory)
        self._snapshot_bytes = stored.snapshot_bytes
        self._zxid = stored.snapshot_zxid
        self.losses = stored.losses
        if stored.journal_end >= 0:
            self._journal_fd = os.open(self._name(JOURNAL_NAME), os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            if stored.losses:
                os.ftruncate(self._journal_fd, stored.journal_end)
            self._journal_bytes = stored.journal_end
        return stored.tree

    def read(self) -> Tree:
        """What is on the device now."""
        return read_store(self._directory).tree

    def _name(self, name: str) -> str:
        return os.path.join(self._directory, name)

    def wants_snapshot(self, more_bytes: int) -> bool:
        return self._journal_bytes + more_bytes > max(self._threshold, 2 * self._snapshot_bytes)

    def append(self, transactions: bytes) -> None:
        framed = frame(transactions)
        while True:
            try:
                self._append(framed)
                break
            except _Full:
                if not self.starting or not self._reserve.give(len(framed)):
                    raise
        if not self.starting:
            self.fill_reserve()

    def fill_reserve(self) -> None:
        """As much as the store holds: a start never writes more than new leader epochs for all partitions."""
        self._reserve.fill(self._snapshot_bytes + self._journal_bytes)

    def _append(self, framed: bytes) -> None:
        if self._journal_fd < 0:
            with self._room_for(JOURNAL_NAME):
                self._start_journal(self._zxid, framed)
            return
        with self._room_for(JOURNAL_NAME):
            self._write(framed)
        # After a sync that fails, for want of room or not, nobody knows what the device holds.
        os.fdatasync(self._journal_fd)
        self._journal_bytes += len(framed)

    def _write(self, framed: bytes) -> None:
        try:
            write_all(self._journal_fd, framed)
        except OSError:
            os.ftruncate(self._journal_fd, self._journal_bytes)
            raise

    @contextmanager
    def _room_for(self, name: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            raise _Full(OSError(error.errno, error.strerror, self._name(name))) from error

    def write_snapshot(self, frozen: Frozen) -> bool:
        """False where there is no room for it: what it should have made durable must go to the journal."""
        data = encode_snapshot(frozen)
        try:
            replace_file(self._directory, self._directory_fd, SNAPSHOT_NAME, data)
            self._snapshot_bytes = len(data)
            self._start_journal(frozen.zxid, b"")
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            return False
        return True

    def _start_journal(self, zxid: int, framed: bytes) -> None:
        data = encode_journal_start(zxid) + framed
        replace_file(self._directory, self._directory_fd, JOURNAL_NAME, data)
        if self._journal_fd >= 0:
            os.close(self._journal_fd)
        self._journal_fd = os.open(self._name(JOURNAL_NAME), os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        self._journal_bytes = len(data)

    def close(self) -> None:
        if self._journal_fd >= 0:
            os.close(self._journal_fd)
            self._journal_fd = -1
        os.close(self._directory_fd)


def _content(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None


class Stored(NamedTuple):
    """What the files of a store say."""

    tree: Tree
    snapshot_zxid: int
    snapshot_bytes: int
    #: where the last whole frame of the journal ends, -1 where there is no journal
    journal_end: int
    #: what they show to be missing, in words
    losses: list[str]


def read_store(directory: str) -> Stored:
    """Reads the files of a store and changes nothing. May raise CorruptMetadata or OSError."""
    snapshot_path, path = os.path.join(directory, SNAPSHOT_NAME), os.path.join(directory, JOURNAL_NAME)
    snapshot, journal = _content(snapshot_path), _content(path)
    tree = Tree() if snapshot is None else decode_snapshot(snapshot, snapshot_path)
    zxid, end, losses = tree.zxid, -1, []
    if journal is not None:
        end = replay(journal, tree, path)
        if end < len(journal):
            torn = len(journal) - end
            losses.append(f"the last entry of {path} is torn: {torn} bytes after transaction {tree.zxid} are truncated")
    elif snapshot is not None:
        losses.append(f"{path} is missing: changes since {SNAPSHOT_NAME} was written are lost")
    return Stored(tree, zxid, len(snapshot or b""), end, losses)


__all__ = ["CorruptMetadata", "EmbeddedStore", "Executor", "StoreLocked", "inline", "read_store"]
