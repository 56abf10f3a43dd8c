"""A small world around one coordinator: producers that retry, partitions that hold their data, a network that loses.

Partitions check what Kafka's check: producer epochs, coordinator epochs, and with the coordinator that a transaction is
open before they take its data. Producers behave as clients do: one request at a time, repeated until it is answered.
Producer ids come in small blocks, from a controller that may be away. A coordinator that takes over has none, and reads
its log piece by piece while requests, markers and timers go on arriving. What the world adds is the truth: which record
was written in which transaction, and what became of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from txn_script import Client, Stage, Ticket, pattern

from tidelog.control.controller import ProducerIdBlock
from tidelog.coordinator.producer_ids import ProducerIds
from tidelog.deciding.decision import CoordinatorRecord
from tidelog.txn.adding import Addition
from tidelog.txn.ending import TransactionEnd
from tidelog.txn.failure import TxnOutcome
from tidelog.txn.producer import Initialisation
from tidelog.txn.records import decode, transaction_record
from tidelog.txn.state import PREVIOUS, TransactionState
from tidelog.txn.transaction import NO_IDENTITY, ProducerIdentity, Transaction
from tidelog.txn.transactions import Transactions
from tidelog.txn.turn import TxnDecision, TxnMarkers
from tidelog.wire.errors import ErrorCode
from tidelog.wire.partitions import TopicPartition

E = ErrorCode
RETRIABLE = {
    E.CONCURRENT_TRANSACTIONS,
    E.COORDINATOR_NOT_AVAILABLE,
    E.COORDINATOR_LOAD_IN_PROGRESS,
    E.NOT_COORDINATOR,
}
ID_BLOCK = 2


class Deed(NamedTuple):
    """A record: by whom, in which of its transactions, which one."""

    producer: str
    transaction: int
    number: int


class Entry:
    """What a partition knows of a producer id."""

    def __init__(self) -> None:
        self.epoch = -1
        self.coordinator_epoch = -1
        self.open: list[Deed] = []


class Partition:
    def __init__(self, at: TopicPartition) -> None:
        self.at = at
        self.entries: dict[int, Entry] = {}
        self.committed: set[Deed] = set()
        self.aborted: set[Deed] = set()

    def write(self, producer_id: int, epoch: int, deed: Deed) -> ErrorCode:
        entry = self.entries.setdefault(producer_id, Entry())
        if epoch < entry.epoch:
            return E.INVALID_PRODUCER_EPOCH
        entry.epoch = epoch
        if deed not in entry.open:
            entry.open.append(deed)
        return E.NONE

    def mark(self, markers: TxnMarkers) -> ErrorCode:
        entry = self.entries.setdefault(markers.producer_id, Entry())
        epoch = markers.producer_epoch
        repeat = epoch == entry.epoch and (not entry.open or epoch == 2**15 - 1)
        if markers.transaction_version >= 2 and epoch <= entry.epoch and not repeat:
            return E.INVALID_PRODUCER_EPOCH
        if epoch < entry.epoch:
            return E.INVALID_PRODUCER_EPOCH
        if markers.coordinator_epoch < entry.coordinator_epoch:
            return E.TRANSACTION_COORDINATOR_FENCED
        entry.epoch, entry.coordinator_epoch = epoch, markers.coordinator_epoch
        (self.committed if markers.commit else self.aborted).update(entry.open)
        entry.open.clear()
        return E.NONE


class Producer(Client):
    """A client of one transactional id. `task` is the request it repeats until it has an answer."""

    def __init__(self, name: str, transactional_id: str, version: int) -> None:
        super().__init__(name)
        self.transactional_id = transactional_id
        self.version = version
        self.alive = False
        self.transaction = 0
        self.written: list[tuple[TopicPartition, Deed]] = []
        self.must_abort = False
        # (what, partition or outcome); the ticket of the attempt whose answer counts.
        self.task: tuple[str, Any] | None = None
        self.ticket: Ticket | None = None
        # What it was told became of its transactions: number -> committed?, and what it had written in them.
        self.told: dict[int, tuple[bool, list[tuple[TopicPartition, Deed]]]] = {}

    @property
    def in_transaction(self) -> bool:
        return bool(self.written) or self.must_abort

    def ended(self, commit: bool) -> None:
        self.told[self.transaction] = (commit, self.written)
        self.next_transaction()

    def next_transaction(self) -> None:
        self.transaction += 1
        self.written, self.must_abort = [], False


class World(Stage):
    def __init__(self, **settings: Any) -> None:
        self.producers: dict[str, Producer] = {}
        self.partitions = {at: Partition(at) for at in (TopicPartition("t", index) for index in range(3))}
        # Markers on their way, of this coordinator and of those before it: (markers, one of their partitions).
        self.network: list[tuple[TxnMarkers, TopicPartition]] = []
        # Blocks that the controller was asked for; it answers where it is not away.
        self.blocks_asked: list[Callable[[ProducerIdBlock], None]] = []
        self.controller_away = False
        self.while_loading: Callable[[], None] = lambda: None
        super().__init__(**settings)

    def fresh(self) -> Transactions:
        """A coordinator of a broker that has just started."""
        self.blocks_asked.clear()
        ids = ProducerIds(self.blocks_asked.append)
        return Transactions(self.config, ids.take, pattern)

    def controller_answers(self) -> None:
        while self.blocks_asked and not self.controller_away:
            self.ids += ID_BLOCK
            self.blocks_asked.pop(0)(ProducerIdBlock(self.ids - ID_BLOCK, ID_BLOCK))

    def grow_old(self, transactional_id: str, producer_id: int, epoch: int) -> None:
        """The log holds an id at rest that has (almost) used up its epochs."""
        old = Transaction(transactional_id, producer_id, epoch, 10_000, TransactionState.EMPTY, self.wall, producer_id)
        record = transaction_record(old, 2)
        self.log.append((self.transactions.partition_for(transactional_id), record.key, record.value))
        self.ids = producer_id + 1
        self.restart()

    # -- requests ------------------------------------------------------------------------------------------------

    def request(self, producer: Producer) -> None:
        """The producer sends (again) what it is about to do."""
        assert producer.task is not None
        what, detail = producer.task
        name, identity = producer.transactional_id, ProducerIdentity(producer.producer_id, producer.epoch)
        # The transactions version that a request tells of its client; the broker that verifies is always a new one.
        client_version = 2 if producer.version == 2 else 0
        room, clocks = self.transactions, (self.now, self.wall)
        ticket = producer.ticket = Ticket(producer.name, producer.version, lambda outcome, version: outcome)
        decisions: list[TxnDecision]
        if what == "init":
            initialisation = Initialisation(name, 10_000, identity if detail else NO_IDENTITY)
            decisions = [room.initialise(ticket, initialisation, *clocks)]
        elif what == "end":
            decisions = [room.end(ticket, TransactionEnd(name, identity, detail, client_version), *clocks)]
        elif what == "add":
            decisions = room.add_partitions(ticket, [Addition(name, identity, frozenset({detail}), 0)], *clocks)
        else:
            # The leader of the partition asks: to verify for an old client, to add for a new one.
            verify_only = producer.version == 1
            addition = Addition(name, identity, frozenset({detail}), 2, verify_only)
            decisions = room.add_partitions(ticket, [addition], *clocks)
        for decision in decisions:
            self.carry_out(decision)

    def answer(self, ticket: Ticket, outcome: Any) -> None:
        producer = self.producers[ticket.client]
        if producer.ticket is not ticket:
            return
        producer.ticket = None
        assert producer.task is not None
        what, detail = producer.task
        code = _code(outcome)
        if code in RETRIABLE:
            return
        producer.task = None
        if what == "init":
            self._initialised(producer, outcome)
        elif code is E.TRANSACTION_ABORTABLE:
            producer.must_abort = True
        elif code is not E.NONE:
            producer.alive = False
        elif what == "end":
            producer.ended(detail)
            if producer.version == 2:
                producer.producer_id, producer.epoch = outcome
        elif what == "add":
            producer.task = ("write", detail)
        else:
            self._write(producer, detail)

    def _initialised(self, producer: Producer, outcome: ProducerIdentity | ErrorCode) -> None:
        producer.alive = isinstance(outcome, ProducerIdentity)
        producer.next_transaction()
        if isinstance(outcome, ProducerIdentity):
            producer.producer_id, producer.epoch = outcome

    def _write(self, producer: Producer, at: TopicPartition) -> None:
        deed = Deed(producer.name, producer.transaction, len(producer.written))
        code = self.partitions[at].write(producer.producer_id, producer.epoch, deed)
        if code is E.NONE:
            producer.written.append((at, deed))
        else:
            producer.alive = False

    # -- markers and crashes -------------------------------------------------------------------------------------

    def deliver(self, decision: Any) -> None:
        super().deliver(decision)
        for markers in self.in_flight:
            self.network.extend((markers, at) for at in markers.partitions)
        self.in_flight.clear()

    def deliver_marker(self, index: int, fate: str) -> None:
        markers, at = self.network.pop(index % len(self.network))
        code = E.NETWORK_EXCEPTION if fate == "lost on the way" else self.partitions[at].mark(markers)
        if fate == "answer lost":
            code = E.REQUEST_TIMED_OUT
        decision = self.transactions.markers_written(markers, {at: code}, self.now, self.wall)
        self.carry_out(decision)

    def restart(self, keep: int | None = None) -> None:
        for producer in self.producers.values():
            producer.ticket = None
        super().restart(keep)

    def load(self) -> None:
        for partition in range(self.config.num_partitions):
            self.transactions.load_begin(partition, self.coordinator_epoch)
        for partition, key, value in list(self.log):
            self.transactions.replay(partition, CoordinatorRecord(key, value))
            self.while_loading()
        for partition in range(self.config.num_partitions):
            self.carry_out(self.transactions.load_end(partition, self.now, self.wall))
            self.while_loading()

    def settle(self) -> None:
        """Everything that was begun is given the time to end."""
        self.holding = False
        self.fail_next = None
        self.controller_away = False
        self.commit()
        for _ in range(100):
            self.advance(20_000)
            self.controller_answers()
            while self.network:
                self.deliver_marker(0, "fine")
            if all(state.is_at_rest for state in self.states()) and not self.network:
                return
        raise AssertionError("a transaction does not end")

    # -- the truth -----------------------------------------------------------------------------------------------

    def states(self) -> list[TransactionState]:
        return [t.state for shard in self.transactions._shards.values() for t in shard.transactions.values()]

    def rotations(self) -> int:
        """How often an id changed its producer id."""
        known: dict[str, int] = {}
        count = 0
        for _, key, value in self.log:
            decoded = decode(key, value)
            if decoded is not None and decoded[1] is not None:
                name, after = decoded[0], decoded[1].producer_id
                count += known.get(name, after) != after
                known[name] = after
        return count

    def check_log(self) -> None:
        """The log tells a possible story of every id, and whoever loads it knows what this coordinator knows."""
        latest: dict[str, Transaction] = {}
        fresh = Transactions(self.config, lambda: None, pattern)
        for partition in range(self.config.num_partitions):
            fresh.load_begin(partition, 0)
        for partition, key, value in self.log:
            fresh.replay(partition, CoordinatorRecord(key, value))
            decoded = decode(key, value)
            assert decoded is not None
            name, after = decoded
            before = latest.pop(name, None)
            if after is not None:
                _check_step(before, after)
                latest[name] = after
        living = {name: t for shard in self.transactions._shards.values() for name, t in shard.transactions.items()}
        loaded = {name: t for shard in fresh._shards.values() for name, t in shard.transactions.items()}
        assert living == loaded == latest

    def check_outcomes(self) -> None:
        """After `settle`: all or nothing, and nobody was told a lie."""
        fates: dict[tuple[str, int], set[bool]] = {}
        for partition in self.partitions.values():
            assert not any(entry.open for entry in partition.entries.values()), "readers would wait forever"
            assert not partition.committed & partition.aborted
            for commit, deeds in ((True, partition.committed), (False, partition.aborted)):
                for deed in deeds:
                    fates.setdefault((deed.producer, deed.transaction), set()).add(commit)
        assert all(len(fate) == 1 for fate in fates.values()), f"half committed: {fates}"
        for producer in self.producers.values():
            for commit, written in producer.told.values():
                for at, deed in written:
                    partition = self.partitions[at]
                    assert deed in (partition.committed if commit else partition.aborted), (deed, commit)


def _check_step(before: Transaction | None, after: Transaction) -> None:
    if before is None:
        assert after.state is TransactionState.EMPTY
        return
    assert before.state in PREVIOUS[after.state], (before, after)
    if after.producer_id == before.producer_id:
        assert after.producer_epoch >= before.producer_epoch, (before, after)
    else:
        assert after.previous_producer_id == before.producer_id and after.producer_epoch == 0
    if before.state is TransactionState.ONGOING:
        assert after.partitions >= before.partitions or after.state.is_at_rest
        assert after.start_ms == before.start_ms
    if before.state is TransactionState.PREPARE_COMMIT:
        assert after.state is TransactionState.COMPLETE_COMMIT
    if before.state is TransactionState.PREPARE_ABORT:
        assert after.state is TransactionState.COMPLETE_ABORT


def _code(outcome: TxnOutcome) -> ErrorCode:
    if isinstance(outcome, ProducerIdentity):
        return E.NONE
    if isinstance(outcome, ErrorCode):
        return outcome
    (code,) = {code for codes in outcome.values() for code in codes.values()}
    return code
