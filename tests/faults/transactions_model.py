"""Random lives of transactional producers on a real broker, and a model that knows what must become of them.

A seed chooses every step. Producers of both versions of transactions write, commit offsets, commit, abort, run out of
time, die, and are replaced by others of their name; answers are lost and requests sent again; old requests arrive once
more when they should not count; the broker is killed with requests on their way, and stopped in good order and killed
again while nobody asks for anything; other groups fill the offsets topic, so that its coordinators load for a while,
and a producer may have come to its last epochs meanwhile. The model learns from answers only:

    open ----commit answered----> committed
      |------abort answered, refused as timed out, replaced----> aborted
      +------its producer dies with a commit on its way----> in doubt: all of it is seen, or nothing

After every step the last stable offset has not gone back and has passed nothing that is open, and a reader of committed
records has seen nothing else. At the end, everything is ended: the last stable offset is the end of the log, and what
is read, by the reader that went along and by one that begins anew after a crash, is what the model says, in order.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple

import transactions_wire as wire
from transactions_wire import TOPIC, Line, Request

from tidelog.client import Client
from tidelog.client.reader import visible_records
from tidelog.testing.broker import RunningBroker
from tidelog.wire.apis import ApiKey
from tidelog.wire.batch import iter_headers
from tidelog.wire.errors import ErrorCode
from tidelog.wire.java_hash import coordinator_partition

E = ErrorCode
PARTITIONS = 3
SHORT_MS, LONG_MS = 250, 60_000
CONFIG = {
    "transaction.state.log.num.partitions": "2",
    "offsets.topic.num.partitions": "2",
    "offset.metadata.max.bytes": "32000",
}
#: how a producer is told that its transaction was aborted over its head
OVER = frozenset(
    (
        E.INVALID_PRODUCER_EPOCH,
        E.PRODUCER_FENCED,
        E.INVALID_TXN_STATE,
        E.TRANSACTION_ABORTABLE,
        # where the epochs were used up, and its name has another producer id
        E.INVALID_PRODUCER_ID_MAPPING,
    )
)
LAST_EPOCHS = (32_764, 32_765, 32_766)


class Fate(Enum):
    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"
    IN_DOUBT = "in doubt"


class Txn:
    """One transaction: where its records lie, and what its group would read next."""

    def __init__(self, short: bool) -> None:
        self.fate = Fate.OPEN
        #: the coordinator may abort it at any time, and nobody is told
        self.short = short
        self.places: list[tuple[int, int]] = []
        self.group_offset: int | None = None

    @property
    def touched(self) -> bool:
        return bool(self.places) or self.group_offset is not None


class Producer:
    """One life of a transactional id; `name` None is a producer that is only idempotent."""

    def __init__(self, broker: RunningBroker, name: str | None, version: int, short: bool) -> None:
        self.line = Line(broker)
        self.name = name
        self.version = version
        self.short = short
        self.identity = (-1, -1)
        self.sequences = [0] * PARTITIONS
        self.txn = Txn(short)
        #: what an older client has told the coordinator of: partitions, and -1 for its group
        self.added: set[int] = set()
        #: what it has sent in earlier transactions
        self.past: list[Request] = []
        self.present: list[Request] = []
        #: the batches that the broker still knows to be repeats: the last of each partition
        self.last_batches: dict[int, tuple[Request, int]] = {}

    def begin_next(self, identity: tuple[int, int]) -> None:
        if identity != self.identity:
            self.sequences = [0] * PARTITIONS
            self.last_batches = {}
        self.identity = identity
        self.txn = Txn(self.short)
        self.added = set()
        self.past += self.present
        self.present = []


class Op(NamedTuple):
    """A request of a producer, how its answer tells an error, and what the model makes of the answer."""

    producer: Producer
    request: Request
    code: Callable[[Any], int]
    done: Callable[[Any], None]


class World:
    def __init__(self, broker: RunningBroker, seed: int) -> None:
        self.broker = broker
        self.rng = random.Random(seed)
        self.client = Client(broker.bootstrap)
        self.names = ("a", "b", "old-c", "old-d")
        self.alive: dict[str, Producer] = {}
        self.zombies: list[Producer] = []
        self.txns: dict[str, list[Txn]] = {name: [] for name in self.names}
        #: partition -> offset -> value and transaction; None for what belongs to none
        self.log: list[dict[int, tuple[bytes, Txn | None]]] = [{} for _ in range(PARTITIONS)]
        self.stable = [0] * PARTITIONS
        self.position = [0] * PARTITIONS
        self.seen: list[list[tuple[int, bytes]]] = [[] for _ in range(PARTITIONS)]
        self._values = itertools.count()
        wire.prepare(self.client, PARTITIONS)
        self.plain = Producer(broker, None, 2, False)
        answer = self.plain.line.ask(wire.init_producer_id(None))
        self.plain.identity = (answer.producer_id, answer.producer_epoch)

    # --- steps ----------------------------------------------------------------------------------------

    def run(self, steps: int, crashes: int, rests: int = 0) -> None:
        chosen = self.rng.sample(range(steps), crashes + rests)
        for step in range(steps):
            if step in chosen[:crashes]:
                self.crash()
            elif step in chosen[crashes:]:
                self.rest()
            else:
                self.step()
            self.check()
        self.finish()

    def step(self) -> None:
        act = self.rng.choices(
            (
                self.write,
                self.commit_offset,
                self.end,
                self.write_plain,
                self.repeat,
                self.die,
                self.replace,
                self.wait,
            ),
            (40, 8, 25, 6, 12, 4, 5, 2),
        )[0]
        act()

    def write(self) -> None:
        self.carry_out(self.write_op(self.someone()))

    def write_plain(self) -> None:
        self.carry_out(self.write_op(self.plain))

    def commit_offset(self) -> None:
        self.carry_out(self.offset_op(self.someone()))

    def end(self) -> None:
        op = self.end_op(self.someone())
        if op is not None:
            self.carry_out(op)

    def repeat(self) -> None:
        """Something that was sent before arrives again, or what a replaced producer sends."""
        if self.zombies and self.rng.random() < 0.5:
            self.disturb(self.rng.choice(self.zombies))
            return
        producer = self.someone()
        if producer.last_batches and self.rng.random() < 0.5:
            request, offset = self.rng.choice(sorted(producer.last_batches.values(), key=lambda pair: pair[1]))
            code, told = wire.produced(self.answer(producer, request, lambda a: wire.produced(a)[0]))
            # Known as a repeat, or refused because its transaction is over; appended it is not.
            assert (code, told) == (E.NONE, offset) or code in OVER, (code, told, offset)
        elif producer.past and producer.version == 2:
            # The last of them is the end before: the one that could be taken for an end of what is open now.
            self.refused(producer, self.rng.choice((producer.past[-1], self.rng.choice(producer.past[-8:]))))

    def die(self) -> None:
        """A producer is gone without a word; perhaps with its last words on the way."""
        name = self.rng.choice(self.names)
        producer = self.alive.pop(name, None)
        if producer is None:
            return
        if producer.txn.touched and self.rng.random() < 0.6:
            self.send_last(producer)
        elif self.rng.random() < 0.5:
            producer.line.send(self.write_op(producer).request)
        producer.line.lose()

    def send_last(self, producer: Producer) -> None:
        version = 5 if producer.version == 2 else 4
        assert producer.name is not None
        producer.line.send(wire.end_txn(producer.name, *producer.identity, True, version=version))
        producer.txn.fate = Fate.IN_DOUBT
        if self.rng.random() < 0.5:
            time.sleep(0.01)

    def replace(self) -> None:
        name = self.rng.choice(self.names)
        zombie = self.alive.pop(name, None)
        if zombie is not None:
            self.zombies.append(zombie)
        self.begin_life(name)
        if zombie is not None:
            self.disturb(zombie)

    def disturb(self, zombie: Producer) -> None:
        assert zombie.name is not None
        version = 12 if zombie.version == 2 else 10
        request = wire.produce(
            zombie.name, *zombie.identity, 0, self.rng.randrange(PARTITIONS), [b"of a zombie"], version=version
        )
        self.refused(zombie, request)
        end = wire.end_txn(zombie.name, *zombie.identity, True, version=5 if zombie.version == 2 else 4)
        ended = self.answer(zombie, end, lambda answer: answer.error_code)
        assert E.of(ended.error_code) in OVER or zombie.txn.fate is Fate.COMMITTED, E.of(ended.error_code)

    def refused(self, producer: Producer, request: Request) -> None:
        """What belongs to a transaction that is over must not be taken; an end of it may be confirmed again."""
        if request.api_key == ApiKey.PRODUCE:
            produced = wire.produced(self.answer(producer, request, lambda answer: wire.produced(answer)[0]))
            assert produced[0] in OVER | {E.OUT_OF_ORDER_SEQUENCE_NUMBER}, produced
        elif request.api_key == ApiKey.TXN_OFFSET_COMMIT:
            committed = wire.offset_committed(self.answer(producer, request, wire.offset_committed))
            assert committed in OVER, committed
        else:
            producer.line.ask(request)

    @staticmethod
    def answer(producer: Producer, request: Request, code: Callable[[Any], int]) -> Any:
        return wire.settled(lambda: producer.line.ask(request), code)

    def wait(self) -> None:
        """Long enough for a short transaction to be aborted by the coordinator."""
        if any(producer.short and producer.txn.touched for producer in self.alive.values()):
            time.sleep(SHORT_MS * 1.2 / 1000)

    def crash(self) -> None:
        """The broker dies with requests on their way: whoever sent them asks again when it is back."""
        names = self.rng.sample(self.names, self.rng.randrange(len(self.names) + 1))
        ops = [self.write_op(self.plain)]
        for producer in [self.of_name(name) for name in names]:
            makers = (self.end_op, self.write_op, self.offset_op)
            op = self.rng.choices(makers, (5, 3, 1))[0](producer)
            ops += [op] if op is not None else []
        self.rng.shuffle(ops)
        for op in ops:
            op.producer.line.send(op.request)
        time.sleep(self.rng.choice((0, 0, 0.001, 0.003, 0.01)))
        self.broker.kill()
        self.broker.start()
        for op in ops:
            op.producer.line.lose()
            self.settle(op, losing=0)

    def rest(self) -> None:
        """The broker is stopped in good order and, while nobody has asked for anything since, killed."""
        for index in range(2):
            self.fill(index)
        nothing_open = self.rng.random() < 0.6
        if nothing_open:
            self.end_all()
        self.broker.restart()
        if self.rng.random() < 0.7:
            self.broker.kill()
            for name, producer in self.alive.items():
                epoch = self.rng.choice(LAST_EPOCHS)
                may_age = not producer.txn.touched and producer.identity[1] < epoch
                if may_age and wire.rewrite_epoch(self.broker, name, epoch):
                    producer.begin_next((producer.identity[0], epoch))
                    self.txns[name].append(producer.txn)
            self.broker.start()
        if nothing_open:
            wire.eventually(self.is_stable, "a transaction hangs that was ended before the broker rested")

    def fill(self, index: int) -> None:
        """Another group commits, in one of the offsets partitions, more than a coordinator reads at once."""
        group = next(f"filler-{n}" for n in itertools.count() if coordinator_partition(f"filler-{n}", 2) == index)
        for _ in range(12):
            request = wire.offset_commit(group, PARTITIONS, "m" * 32_000)
            answer = self.answer(self.plain, request, wire.offset_committed)
            assert wire.offset_committed(answer) is E.NONE

    def end_all(self) -> None:
        """Nothing is left open: not by who lives, nor by who has died."""
        for name in self.names:
            if name not in self.alive:
                self.begin_life(name)
            elif (op := self.end_op(self.alive[name])) is not None:
                self.settle(op, losing=0)

    # --- producers ------------------------------------------------------------------------------------

    def someone(self) -> Producer:
        return self.of_name(self.rng.choice(self.names))

    def of_name(self, name: str) -> Producer:
        return self.alive[name] if name in self.alive else self.begin_life(name)

    def begin_life(self, name: str) -> Producer:
        """A new producer of the name: whatever the one before left open is aborted."""
        short = self.rng.random() < 0.25
        producer = Producer(self.broker, name, 1 if name.startswith("old") else 2, short)
        request = wire.init_producer_id(name, SHORT_MS if short else LONG_MS)
        if self.rng.random() < 0.3:
            producer.line.send(request)
            producer.line.lose()
        producer.begin_next(wire.initialised(producer.line, request))
        for txn in self.txns[name]:
            if txn.fate is Fate.OPEN:
                txn.fate = Fate.ABORTED
        self.txns[name].append(producer.txn)
        self.alive[name] = producer
        return producer

    def ended(self, producer: Producer, fate: Fate, identity: tuple[int, int] | None) -> None:
        """The transaction is over; without an identity to go on with, so is the producer."""
        assert producer.name is not None
        producer.txn.fate = fate
        if identity is None:
            assert producer.short, f"{producer.name} was fenced by nobody"
            del self.alive[producer.name]
            self.zombies.append(producer)
        else:
            producer.begin_next(identity)
            self.txns[producer.name].append(producer.txn)

    # --- requests and what their answers mean -----------------------------------------------------------

    def carry_out(self, op: Op) -> None:
        self.settle(op, losing=self.rng.choice((0, 0, 0, 1, 2)))

    def settle(self, op: Op, losing: int) -> None:
        for _ in range(losing):
            op.producer.line.send(op.request)
            if self.rng.random() < 0.5:
                time.sleep(0.002)
            op.producer.line.lose()
        op.done(wire.settled(lambda: op.producer.line.ask(op.request), op.code))

    def write_op(self, producer: Producer) -> Op:
        partition = self.rng.randrange(PARTITIONS)
        values = [b"%d" % next(self._values) for _ in range(self.rng.randint(1, 3))]
        self.tell(producer, partition)
        version = 12 if producer.version == 2 else 10
        sequence = producer.sequences[partition]
        request = wire.produce(producer.name, *producer.identity, sequence, partition, values, version=version)
        txn = None if producer.name is None else producer.txn
        if txn is not None:
            producer.present.append(request)

        def done(answer: Any) -> None:
            code, offset = wire.produced(answer)
            if code in OVER and txn is not None:
                self.ended(producer, Fate.ABORTED, None)
                return
            assert code is E.NONE, answer
            producer.sequences[partition] += len(values)
            producer.last_batches[partition] = (request, offset)
            for at, value in enumerate(values, offset):
                assert at not in self.log[partition], f"offset {at} of {partition} was given twice"
                self.log[partition][at] = (value, txn)
                if txn is not None:
                    txn.places.append((partition, at))

        return Op(producer, request, lambda answer: wire.produced(answer)[0], done)

    def tell(self, producer: Producer, partition: int) -> None:
        """An older client adds a partition, or its group, before it writes."""
        if producer.version == 2 or partition in producer.added:
            return
        assert producer.name is not None
        if partition < 0:
            request = wire.add_offsets(producer.name, *producer.identity, f"g-{producer.name}")
            code: Callable[[Any], int] = lambda answer: answer.error_code  # noqa: E731
        else:
            request = wire.add_partitions(producer.name, *producer.identity, [partition])
            code = wire.added
        found = E.of(code(wire.settled(lambda: producer.line.ask(request), code)))
        assert found is E.NONE or (producer.short and found in OVER), found
        if found is E.NONE:
            producer.added.add(partition)

    def offset_op(self, producer: Producer) -> Op:
        assert producer.name is not None
        self.tell(producer, -1)
        offset = next(self._values)
        version = 5 if producer.version == 2 else 3
        request = wire.txn_offset_commit(
            producer.name, *producer.identity, f"g-{producer.name}", offset, version=version
        )
        producer.present.append(request)

        def done(answer: Any) -> None:
            code = wire.offset_committed(answer)
            if code in OVER:
                self.ended(producer, Fate.ABORTED, None)
                return
            assert code is E.NONE, code
            producer.txn.group_offset = offset

        return Op(producer, request, wire.offset_committed, done)

    def end_op(self, producer: Producer) -> Op | None:
        assert producer.name is not None
        commit = self.rng.random() < 0.65
        if not producer.txn.touched and (commit or producer.version == 1):
            return None
        version = 5 if producer.version == 2 else 4
        request = wire.end_txn(producer.name, *producer.identity, commit, version=version)
        producer.present.append(request)

        def done(answer: Any) -> None:
            code = E.of(answer.error_code)
            if code in OVER:
                self.ended(producer, Fate.ABORTED, None)
                return
            assert code is E.NONE, code
            identity = (answer.producer_id, answer.producer_epoch) if version == 5 else producer.identity
            self.ended(producer, Fate.COMMITTED if commit else Fate.ABORTED, identity)

        return Op(producer, request, lambda answer: answer.error_code, done)

    # --- the oracle -----------------------------------------------------------------------------------

    def check(self) -> None:
        for partition, at in self.client.offsets(TOPIC, isolation="read_committed").items():
            assert at.offset >= self.stable[partition], f"the last stable offset of {partition} went back"
            self.stable[partition] = at.offset
            held = [txn for value, txn in self.log[partition].values() if txn is not None and txn.fate is Fate.OPEN]
            for txn in held:
                first = min(offset for where, offset in txn.places if where == partition)
                assert at.offset <= first or txn.short, f"{partition} passed the open offset {first}"
            self.follow(partition)

    def follow(self, partition: int) -> None:
        """The reader that goes along sees what is new."""
        while self.position[partition] < self.stable[partition]:
            start = self.position[partition]
            fetched = self.client.fetch(TOPIC, partition, start, isolation="read_committed")
            assert fetched.records, f"nothing at {start} of {partition}, below {self.stable[partition]}"
            for record in visible_records(fetched, start, None, "t"):
                assert record.value is not None
                self.witness(partition, record.offset, record.value)
            last = start
            for _, header in iter_headers(fetched.records):
                last = header.next_offset
            self.position[partition] = last

    def witness(self, partition: int, offset: int, value: bytes) -> None:
        assert offset in self.log[partition], f"{value!r} at {offset} of {partition} was acknowledged to nobody"
        expected, txn = self.log[partition][offset]
        assert value == expected, f"offset {offset} of {partition} is {value!r}, not {expected!r}"
        if txn is not None and txn.fate is Fate.IN_DOUBT:
            txn.fate = Fate.COMMITTED
        assert txn is None or txn.fate is Fate.COMMITTED, (
            f"{value!r} of a transaction that is {txn.fate.value} was seen"
        )
        self.seen[partition].append((offset, value))

    def finish(self) -> None:
        """Everything is ended, and nothing hangs."""
        for name in self.names:
            self.begin_life(name)
        wire.eventually(self.is_stable, "a transaction is left hanging")
        self.check()
        self.compare(self.seen)
        self.broker.kill()
        self.broker.start()
        wire.eventually(self.is_stable, "a transaction hangs after the crash")
        self.compare(
            [
                [(record.offset, record.value or b"") for record in self.read(partition)]
                for partition in range(PARTITIONS)
            ]
        )
        for name in self.names:
            self.compare_offset(name)
        self.client.close()

    def read(self, partition: int) -> Any:
        return self.client.read(TOPIC, partition, isolation="read_committed", until_offset="latest")

    def is_stable(self) -> bool:
        ends = self.client.offsets(TOPIC)
        return self.client.offsets(TOPIC, isolation="read_committed") == ends

    def compare(self, seen: list[list[tuple[int, bytes]]]) -> None:
        for partition, log in enumerate(self.log):
            expected = [
                (offset, value)
                for offset, (value, txn) in sorted(log.items())
                if txn is None or txn.fate is Fate.COMMITTED
            ]
            assert seen[partition] == expected, f"partition {partition}"

    def compare_offset(self, name: str) -> None:
        possible: set[int | None] = {None}
        for txn in self.txns[name]:
            if txn.group_offset is None:
                continue
            if txn.fate is Fate.COMMITTED:
                possible = {txn.group_offset}
            elif txn.fate is Fate.IN_DOUBT and not txn.places:
                possible.add(txn.group_offset)
        found = self.client.groups.offsets(f"g-{name}", require_stable=True).get((TOPIC, 0))
        assert (found.offset if found else None) in possible, f"group g-{name}"
