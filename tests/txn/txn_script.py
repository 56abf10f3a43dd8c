"""Scripts for the transaction coordinator: an event per line, the outcome beside it.

    run('''
        init p            => log: Empty 0/0; p: 0/0
        add p t-0 t-1     => log: Ongoing 0/0 t-0 t-1; p: ok
        end p commit      => log: PrepareCommit 0/0 t-0 t-1; p: ok; mark commit 0/0 t-0 t-1
        marked            => log: CompleteCommit 0/0
    ''')

`Stage` plays the broker: it appends the records of a decision to a log, replays them, keeps the timers, delivers the
replies and collects the markers. `7/3` is producer id 7 with epoch 3. A client is an old one (transactions version 1)
unless it is named in `tv2`. Between `hold` and `commit` records are appended but not committed.

What a client sends and gets are messages of a version, `v=`: the API's handlers translate them for the coordinator.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from tidelog.api import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    describe_transactions,
    end_txn,
    init_producer_id,
    list_transactions,
)
from tidelog.deciding.decision import CancelTimer, CoordinatorRecord, SetTimer
from tidelog.txn.config import TxnConfig
from tidelog.txn.records import decode, transaction_record
from tidelog.txn.state import TransactionState
from tidelog.txn.transaction import Transaction
from tidelog.txn.transactions import Transactions
from tidelog.txn.turn import TxnDecision, TxnMarkers
from tidelog.wire import messages
from tidelog.wire.codec import request_codec, response_codec
from tidelog.wire.errors import ErrorCode
from tidelog.wire.partitions import TopicPartition

WALL = 1_700_000_000_000
API_KEYS = {
    "InitProducerId": 22,
    "AddPartitionsToTxn": 24,
    "AddOffsetsToTxn": 25,
    "EndTxn": 26,
    "DescribeTransactions": 65,
    "ListTransactions": 66,
}


class Ticket:
    """One request of a client; it must be answered exactly once. `respond` makes the response of an outcome."""

    def __init__(self, client: str, version: int, respond: Callable[[Any, int], Any]) -> None:
        self.client = client
        self.version = version
        self.respond = respond
        self.answers = 0


class Client:
    def __init__(self, name: str) -> None:
        self.name = name
        self.producer_id = -1
        self.epoch = -1


class Waiting(NamedTuple):
    """What leaves when the log is committed up to `end`."""

    end: int
    decision: TxnDecision


def pattern(expression: str) -> Callable[[str], bool]:
    try:
        compiled = re.compile(expression)
    except re.error as error:
        raise ValueError(str(error)) from None
    return lambda name: compiled.fullmatch(name) is not None


def text_of(at: TopicPartition) -> str:
    return f"{at.topic}-{at.partition}"


def partition_of(word: str) -> TopicPartition:
    topic, _, index = word.rpartition("-")
    return TopicPartition(topic, int(index))


class Stage:
    """A broker with every coordinator partition, in simulated time."""

    def __init__(self, tv2: str = "", **settings: Any) -> None:
        self.config = TxnConfig(**settings)
        self.tv2 = set(tv2.split())
        self.now = 0
        self.wall_shift = 0
        self.ids = 0
        self.out_of_ids = False
        self.coordinator_epoch = 1
        self.log: list[tuple[int, bytes, bytes | None]] = []
        self.committed = 0
        self.holding = False
        self.waiting: list[Waiting] = []
        self.timers: dict[Any, int] = {}
        self.in_flight: list[TxnMarkers] = []
        self.clients: dict[str, Client] = {}
        self.fail_next: ErrorCode | None = None
        self.seen: list[str] = []
        self.tickets: list[Ticket] = []
        self.last: Any = None
        self.transactions = self.fresh()
        self.load()

    @property
    def wall(self) -> int:
        return WALL + self.now + self.wall_shift

    def fresh(self) -> Transactions:
        return Transactions(self.config, self.next_id, pattern)

    def next_id(self) -> int | None:
        if self.out_of_ids:
            return None
        self.ids += 1
        return self.ids - 1

    def load(self) -> None:
        for partition in range(self.config.num_partitions):
            self.transactions.load_begin(partition, self.coordinator_epoch)
        for partition, key, value in self.log:
            self.transactions.replay(partition, CoordinatorRecord(key, value))
        for partition in range(self.config.num_partitions):
            self.carry_out(self.transactions.load_end(partition, self.now, self.wall))

    def client(self, name: str) -> Client:
        return self.clients.setdefault(name, Client(name))

    # -- the broker's part ---------------------------------------------------------------------------------------

    def carry_out(self, decision: TxnDecision) -> None:
        if decision.records and self.fail_next is not None:
            error, self.fail_next = self.fail_next, None
            decision = self.transactions.append_failed(decision, error, self.now, self.wall)
            assert not decision.records and not decision.markers
        for record in decision.records:
            assert decision.partition >= 0
            self.log.append((decision.partition, record.key, record.value))
            self.seen.append("log: " + self.describe_record(record.key, record.value))
            self.transactions.replay(decision.partition, record)
        for timer in decision.timers:
            if isinstance(timer, SetTimer):
                self.timers[timer.key] = timer.deadline_ms
            elif isinstance(timer, CancelTimer):
                self.timers.pop(timer.key, None)
        if decision.partition < 0:
            assert not decision.markers, "markers must name the partition that they follow from"
            self.deliver(decision)
            return
        self.waiting.append(Waiting(len(self.log), decision))
        if not self.holding:
            self.commit()

    def commit(self) -> None:
        self.committed = len(self.log)
        waiting, self.waiting = self.waiting, []
        for _, decision in waiting:
            self.deliver(decision)

    def deliver(self, decision: TxnDecision) -> None:
        for reply in decision.replies:
            ticket = reply.ticket
            self.answer_once(ticket, ticket.respond(reply.message, ticket.version))
        for markers in decision.markers:
            self.in_flight.append(markers)
            outcome = "commit" if markers.commit else "abort"
            where = " ".join(map(text_of, markers.partitions))
            self.seen.append(f"mark {outcome} {markers.producer_id}/{markers.producer_epoch} {where}")

    def answer_once(self, ticket: Ticket, message: Any) -> None:
        ticket.answers += 1
        assert ticket.answers == 1, f"{ticket.client} was answered twice"
        self.answer(ticket, message)

    def answer(self, ticket: Ticket, message: Any) -> None:
        self.last = message
        # Every answer must be one that its version can carry.
        key = API_KEYS[type(message).__name__.removesuffix("Response")]
        response_codec(key, ticket.version).encode(message)
        self.seen.append(f"{ticket.client}: {self.describe_reply(self.client(ticket.client), ticket, message)}")

    def advance(self, ms: int) -> None:
        until = self.now + ms
        while True:
            due = sorted((at, key) for key, at in self.timers.items() if at <= until)
            if not due:
                break
            at, key = due[0]
            self.now = max(self.now, at)
            del self.timers[key]
            self.carry_out(self.transactions.on_timer(key, self.now, self.wall))
        self.now = until

    def ask(self, client: str, request: Any, version: int, offsets_partition: int = 0) -> None:
        """`offsets_partition` is where the offsets of a request's group are stored."""
        # Every request must be one that its version can carry.
        key = API_KEYS[type(request).__name__.removesuffix("Request")]
        codec = request_codec(key, version)
        request, _ = codec.decode(codec.encode(request))
        room, clocks = self.transactions, (self.now, self.wall)
        if isinstance(request, messages.InitProducerIdRequest):
            ticket = Ticket(client, version, init_producer_id.answer)
            decisions = [room.initialise(ticket, init_producer_id.asked(request), *clocks)]
        elif isinstance(request, messages.AddPartitionsToTxnRequest):
            ticket = Ticket(client, version, add_partitions_to_txn.answer)
            decisions = room.add_partitions(ticket, add_partitions_to_txn.asked(request, version), *clocks)
        elif isinstance(request, messages.AddOffsetsToTxnRequest):
            ticket = Ticket(client, version, add_offsets_to_txn.answer)
            at = TopicPartition("__consumer_offsets", offsets_partition)
            decisions = room.add_partitions(ticket, [add_offsets_to_txn.asked(request, at)], *clocks)
        elif isinstance(request, messages.EndTxnRequest):
            ticket = Ticket(client, version, end_txn.answer)
            decisions = [room.end(ticket, end_txn.asked(request, version), *clocks)]
        else:
            self._ask_what_is(client, request, version)
            return
        self.tickets.append(ticket)
        for decision in decisions:
            self.carry_out(decision)

    def _ask_what_is(self, client: str, request: Any, version: int) -> None:
        ticket = Ticket(client, version, lambda message, version: message)
        self.tickets.append(ticket)
        if isinstance(request, messages.DescribeTransactionsRequest):
            self.answer_once(ticket, describe_transactions.answer(request, self.transactions))
        else:
            self.answer_once(ticket, list_transactions.answer(request, self.transactions, self.wall))

    def restart(self, keep: int | None = None) -> None:
        """Another coordinator takes over, with the first `keep` records of the log (all, unless told)."""
        self.log = self.log[:keep]
        self.committed = len(self.log)
        self.waiting.clear()
        self.timers.clear()
        self.in_flight.clear()
        self.coordinator_epoch += 1
        self.transactions = self.fresh()
        self.load()

    # -- telling -------------------------------------------------------------------------------------------------

    def describe_record(self, key: bytes, value: bytes | None) -> str:
        decoded = decode(key, value)
        assert decoded is not None
        transactional_id, transaction = decoded
        name = "" if transactional_id == "x" else transactional_id + " "
        if transaction is None:
            return f"no {name or 'x '}".rstrip()
        parts = [f"{name}{transaction.state.label} {transaction.producer_id}/{transaction.producer_epoch}"]
        if transaction.next_producer_id >= 0:
            parts.append(f"next {transaction.next_producer_id}")
        parts.extend(map(text_of, sorted(transaction.partitions)))
        return " ".join(parts)

    def describe_reply(self, client: Client, ticket: Ticket, message: Any) -> str:
        return getattr(self, "_told_" + type(message).__name__)(client, ticket, message)

    def _told_InitProducerIdResponse(self, client: Client, ticket: Ticket, m: Any) -> str:
        if m.error_code:
            assert (m.producer_id, m.producer_epoch) == (-1, -1)
            return ErrorCode(m.error_code).name
        client.producer_id, client.epoch = m.producer_id, m.producer_epoch
        return f"{m.producer_id}/{m.producer_epoch}"

    def _told_AddPartitionsToTxnResponse(self, client: Client, ticket: Ticket, m: Any) -> str:
        if ticket.version < 4:
            return _codes(m.results_by_topic_v3_and_below)
        told = {r.transactional_id: _codes(r.topic_results) for r in m.results_by_transaction}
        if list(told) == ["x"]:
            return told["x"]
        return ", ".join(f"{name} {codes}".strip() for name, codes in told.items())

    def _told_AddOffsetsToTxnResponse(self, client: Client, ticket: Ticket, m: Any) -> str:
        return ErrorCode(m.error_code).name if m.error_code else "ok"

    def _told_EndTxnResponse(self, client: Client, ticket: Ticket, m: Any) -> str:
        if m.error_code:
            assert (m.producer_id, m.producer_epoch) == (-1, -1)
            return ErrorCode(m.error_code).name
        if ticket.version < 5:
            return "ok"
        client.producer_id, client.epoch = m.producer_id, m.producer_epoch
        return f"ok {m.producer_id}/{m.producer_epoch}"

    def _told_DescribeTransactionsResponse(self, client: Client, ticket: Ticket, m: Any) -> str:
        told = []
        for s in m.transaction_states:
            if s.error_code:
                told.append(ErrorCode(s.error_code).name)
                continue
            began = "never" if s.transaction_start_time_ms < 0 else str(s.transaction_start_time_ms - WALL)
            where = "".join(f" {t.topic}-{p}" for t in s.topics for p in t.partitions)
            told.append(f"{s.transaction_state} {s.producer_id}/{s.producer_epoch} since {began}{where}")
        return ", ".join(told)

    def _told_ListTransactionsResponse(self, client: Client, ticket: Ticket, m: Any) -> str:
        if m.error_code:
            return ErrorCode(m.error_code).name
        told = [f"{s.transactional_id} {s.producer_id} {s.transaction_state}" for s in m.transaction_states]
        told.extend(f"unknown {name}" for name in m.unknown_state_filters)
        return ", ".join(sorted(told)) or "none"


def _codes(topics: list[Any]) -> str:
    codes = {f"{t.name}-{p.partition_index}": p.partition_error_code for t in topics for p in t.results_by_partition}
    names = {at: ErrorCode(code).name if code else "ok" for at, code in codes.items()}
    if len(set(names.values())) <= 1:
        return next(iter(names.values()), "nothing to add")
    return " ".join(f"{at} {name}" for at, name in names.items())


class Script(Stage):
    """The events that a line can name."""

    def do(self, line: str) -> str:
        self.seen = []
        verb, *words = line.split()
        named = dict(w.split("=", 1) for w in words if "=" in w and "-" not in w.split("=", 1)[0])
        plain = [w for w in words if not ("=" in w and "-" not in w.split("=", 1)[0])]
        getattr(self, "do_" + verb)(plain, named)
        return "; ".join(self.seen) or "nothing"

    def _identity(self, client: Client, named: dict[str, str]) -> dict[str, int]:
        return {
            "producer_id": int(named.get("id", client.producer_id)),
            "producer_epoch": int(named.get("epoch", client.epoch)),
        }

    def do_init(self, plain: list[str], named: dict[str, str]) -> None:
        """init p [timeout=..] [v=..]; `init p again` names the identity that the client has, id= and epoch= another."""
        client = self.client(plain[0])
        request = messages.InitProducerIdRequest(
            transactional_id=None if named.get("tid") == "null" else named.get("tid", "x").strip("'"),
            transaction_timeout_ms=int(named.get("timeout", "60000")),
        )
        if "again" in plain or "id" in named or "epoch" in named:
            identity = self._identity(client, named)
            request.producer_id, request.producer_epoch = identity["producer_id"], identity["producer_epoch"]
        self.ask(client.name, request, int(named.get("v", "5")))

    def do_add(self, plain: list[str], named: dict[str, str], verify_only: bool = False) -> None:
        client, places = self.client(plain[0]), [partition_of(word) for word in plain[1:]]
        version = int(named.get("v", "5" if plain[0] in self.tv2 or verify_only else "3"))
        of = messages.AddPartitionsToTxnRequest
        topics = [of.AddPartitionsToTxnTopic(name=at.topic, partitions=[at.partition]) for at in places]
        identity = self._identity(client, named)
        tid = named.get("tid", "x").strip("'")
        if version < 4:
            request = of(
                v3_and_below_transactional_id=tid,
                v3_and_below_producer_id=identity["producer_id"],
                v3_and_below_producer_epoch=identity["producer_epoch"],
                v3_and_below_topics=topics,
            )
        else:
            entry = of.AddPartitionsToTxnTransaction(
                transactional_id=tid, verify_only=verify_only, topics=topics, **identity
            )
            request = of(transactions=[entry])
        self.ask(client.name, request, version)

    def do_verify(self, plain: list[str], named: dict[str, str]) -> None:
        self.do_add(plain, named, verify_only=True)

    def do_offsets(self, plain: list[str], named: dict[str, str]) -> None:
        """offsets p 7: offsets of a group that belongs to partition 7 of __consumer_offsets."""
        client = self.client(plain[0])
        request = messages.AddOffsetsToTxnRequest(
            transactional_id=named.get("tid", "x").strip("'"), group_id="g", **self._identity(client, named)
        )
        self.ask(client.name, request, int(named.get("v", "4")), int(plain[1]))

    def do_end(self, plain: list[str], named: dict[str, str]) -> None:
        client = self.client(plain[0])
        request = messages.EndTxnRequest(
            transactional_id=named.get("tid", "x").strip("'"),
            committed=plain[1] == "commit",
            **self._identity(client, named),
        )
        self.ask(client.name, request, int(named.get("v", "5" if plain[0] in self.tv2 else "4")))

    def do_marked(self, plain: list[str], named: dict[str, str]) -> None:
        """marked: all markers under way are written; marked t-0 t-1=SOME_ERROR: those, with these results."""
        for markers in list(self.in_flight):
            if plain:
                words = [word.partition("=") for word in plain]
                results = {partition_of(at): ErrorCode[code or "NONE"] for at, _, code in words}
                results = {at: code for at, code in results.items() if at in markers.partitions}
            else:
                results = dict.fromkeys(markers.partitions, ErrorCode.NONE)
            self.in_flight.remove(markers)
            left = tuple(at for at in markers.partitions if at not in results)
            if left:
                self.in_flight.append(markers._replace(partitions=left))
            if results:
                self.carry_out(self.transactions.markers_written(markers, results, self.now, self.wall))

    def do_pass(self, plain: list[str], named: dict[str, str]) -> None:
        self.advance(int(plain[0]))

    def do_clock(self, plain: list[str], named: dict[str, str]) -> None:
        """The wall clock steps; monotonic time does not."""
        self.wall_shift += int(plain[0])

    def do_restart(self, plain: list[str], named: dict[str, str]) -> None:
        self.restart()

    def do_crash(self, plain: list[str], named: dict[str, str]) -> None:
        """What was not committed is lost."""
        self.holding = False
        self.restart(self.committed)

    def do_given(self, plain: list[str], named: dict[str, str]) -> None:
        """given p 7/32766: the log holds an id at rest whose producer p has come this far."""
        client = self.client(plain[0])
        client.producer_id, client.epoch = map(int, plain[1].split("/"))
        found = Transaction(
            "x", client.producer_id, client.epoch, 60_000, TransactionState.EMPTY, self.wall, client.producer_id
        )
        record = transaction_record(found, self.config.transaction_version)
        self.log.append((self.transactions.partition_for("x"), record.key, record.value))
        self.ids = client.producer_id + 1
        self.restart()

    def do_hold(self, plain: list[str], named: dict[str, str]) -> None:
        self.holding = True

    def do_commit(self, plain: list[str], named: dict[str, str]) -> None:
        self.holding = False
        self.commit()

    def do_fail(self, plain: list[str], named: dict[str, str]) -> None:
        """The next append fails."""
        self.fail_next = ErrorCode[plain[0]]

    def do_ids(self, plain: list[str], named: dict[str, str]) -> None:
        """ids none: the block of producer ids is used up; ids 5: they go on from 5."""
        self.out_of_ids = plain[0] == "none"
        if not self.out_of_ids:
            self.ids = int(plain[0])

    def do_unload(self, plain: list[str], named: dict[str, str]) -> None:
        for partition in range(self.config.num_partitions):
            self.carry_out(self.transactions.unload(partition))

    def do_loading(self, plain: list[str], named: dict[str, str]) -> None:
        for partition in range(self.config.num_partitions):
            self.transactions.load_begin(partition, self.coordinator_epoch)

    def do_describe(self, plain: list[str], named: dict[str, str]) -> None:
        names = [word.strip("'") for word in plain] or ["x"]
        self.ask("-", messages.DescribeTransactionsRequest(transactional_ids=names), 0)

    def do_list(self, plain: list[str], named: dict[str, str]) -> None:
        request = messages.ListTransactionsRequest(
            state_filters=[s for s in named.get("states", "").split(",") if s],
            producer_id_filters=[int(s) for s in named.get("ids", "").split(",") if s],
            duration_filter=int(named.get("longer", "-1")),
            transactional_id_pattern=named.get("pattern"),
        )
        self.ask("-", request, 2)


def run(text: str, **settings: Any) -> Script:
    """Play a script; every line must have the outcome that stands beside it."""
    script = Script(**settings)
    for number, line in enumerate(text.strip().splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        event, arrow, expected = line.partition("=>")
        outcome = script.do(event.strip())
        if arrow:
            wanted = " ".join(expected.split())
            assert outcome == wanted, f"line {number}: {event.strip()}\n  expected {wanted}\n  but was  {outcome}"
    return script
