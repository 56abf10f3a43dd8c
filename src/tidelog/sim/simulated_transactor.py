"""A simulated transactional producer, of either version of the protocol: it commits, aborts, dies, becomes a zombie.

One that has an input partition makes of each record there one of its own, and its transactions carry the position in
the input: however often it dies, each input record must have been used once in the end.

A transactor is one transactional id. Each `Life` takes the id anew, which fences those before it; a zombie is a life
that goes on nevertheless.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from tidelog.peers.requester import Answered, Failure
from tidelog.sim.log_place import LogPlace
from tidelog.sim.oracle import Oracle
from tidelog.sim.simulated_client import RETRIABLE, SimulatedClient
from tidelog.sim.simulated_reader import FETCH_VERSION, fetch_request
from tidelog.sim.transaction_oracle import Fate, SimulatedTransaction
from tidelog.sim.violation import Violation
from tidelog.sim.world import World
from tidelog.wire import messages
from tidelog.wire.batch import crc_matches, iter_headers
from tidelog.wire.classes import RequestMessage
from tidelog.wire.errors import ErrorCode
from tidelog.wire.records import build_batch, iter_records

TIMEOUT_MS: Final = 4_000
GROUP_KEY, TRANSACTION_KEY = 0, 1
#: the newest versions of the first protocol, and of the second with names instead of topic ids
PRODUCE_VERSIONS: Final = {1: 11, 2: 12}
END_VERSIONS: Final = {1: 4, 2: 5}
OFFSET_VERSIONS: Final = {1: 4, 2: 5}
ADD_PARTITIONS_VERSION: Final = 3
OFFSET_FETCH_VERSION: Final = 9
MOST_INPUT: Final = 5

#: this life is over: another has the id, or the transaction took too long
FENCING: Final = frozenset(
    (
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
    )
)
#: the transaction can only be aborted
SPOILING: Final = frozenset(
    (
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
    )
)


class Transactor(SimulatedClient):
    def __init__(
        self,
        world: World,
        oracle: Oracle,
        name: str,
        places: Sequence[LogPlace],
        protocol: int,
        timeout_ms: int,
        source: LogPlace | None = None,
    ) -> None:
        super().__init__(world, oracle, name)
        self.places = places
        self.protocol = protocol
        self.timeout_ms = timeout_ms
        self.source = source
        self.group = f"of {name}"
        #: by kind of coordinator
        self._coordinators: dict[int, int] = {}
        self._lives = 0
        self._alive: Life
        self._begin_life()

    @property
    def is_done(self) -> bool:
        return self.is_stopped and self._alive.is_idle

    @property
    def position(self) -> int:
        """How far the input was used for certain."""
        return 0 if self.source is None else self.oracle.transactions.settled(self.group, self.source)

    def _begin_life(self) -> None:
        self._lives += 1
        self._alive = Life(self, f"{self.name}.{self._lives}")
        self._alive.take_id()

    def ended(self, life: Life) -> None:
        """A life is over, or will from now on be that of a zombie."""
        if life is self._alive:
            self.soon(50, 1_500, self._begin_life)

    # --- coordinators -------------------------------------------------------------------------------------

    def ask_coordinator(
        self,
        kind: int,
        request: RequestMessage[Any],
        done: Callable[[Answered[Any] | Failure], None],
        at_most: int,
    ) -> None:
        """`done` with a failure where there is none; it is looked for again."""
        known = self._coordinators.get(kind)
        if known is not None:
            self.ask(known, request, done, TIMEOUT_MS, at_most)
            return
        key = self.group if kind == GROUP_KEY else self.name

        def found(outcome: Answered[messages.FindCoordinatorResponse] | Failure) -> None:
            if isinstance(outcome, Failure):
                self.soon(20, 200, look)
                return
            (told,) = outcome.message.coordinators
            if told.error_code:
                self.soon(20, 200, look)
                return
            self._coordinators[kind] = told.node_id
            self.ask(told.node_id, request, done, TIMEOUT_MS, at_most)

        def look() -> None:
            wanted = messages.FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
            self.ask(self.any_broker(), wanted, found, TIMEOUT_MS, 5)

        look()

    def forget_coordinator(self, kind: int) -> None:
        self._coordinators.pop(kind, None)


class Life:
    """From taking the id to being fenced or dying. One step at a time; each is repeated until it is answered."""

    def __init__(self, owner: Transactor, name: str) -> None:
        self.name = name
        self.is_over = False
        self.is_idle = False
        self._owner = owner
        self._random = owner.random
        self._producer_id = -1
        self._producer_epoch = -1
        self._sequences: dict[LogPlace, int] = {}
        self._number = 0
        self._position = 0
        self._count = 0
        self._transaction: SimulatedTransaction
        self._values: dict[LogPlace, list[bytes]] = {}

    def _end(self) -> None:
        self.is_over = self.is_idle = True
        self._owner.ended(self)

    # --- asking until there is an answer ----------------------------------------------------------------------

    def _settle(
        self, what: str, code: ErrorCode, again: Callable[[], None], then: Callable[[], None], kind: int | None
    ) -> None:
        """What comes after an answer: the next step, the same again, or the end."""
        owner = self._owner
        owner.count(what, code.name)
        if code is ErrorCode.NONE:
            then()
        elif code in FENCING:
            self._end()
        elif code in SPOILING:
            self._finish(commit=False)
        elif code in RETRIABLE or code is ErrorCode.UNSTABLE_OFFSET_COMMIT:
            if kind is not None and code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                owner.forget_coordinator(kind)
            owner.soon(20, 150, again)
        else:
            raise Violation("transactions", f"{self.name} is answered {code.name} to {what}")

    def _step(
        self,
        what: str,
        kind: int,
        request: RequestMessage[Any],
        code_of: Callable[[Any], int],
        then: Callable[[Any], None],
        at_most: int,
        on_failure: Callable[[], None] = lambda: None,
    ) -> None:
        owner = self._owner

        def ask() -> None:
            if not self.is_over:
                owner.ask_coordinator(kind, request, answered, at_most)

        def answered(outcome: Answered[Any] | Failure) -> None:
            if self.is_over:
                return
            if isinstance(outcome, Failure):
                owner.count(what, outcome.kind.value)
                on_failure()
                owner.forget_coordinator(kind)
                owner.soon(20, 150, ask)
                return
            code = ErrorCode.of(code_of(outcome.message))
            if code in RETRIABLE and code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                on_failure()
            self._settle(what, code, ask, lambda: then(outcome.message), kind)

        ask()

    # --- the beginning ----------------------------------------------------------------------------------------

    def take_id(self) -> None:
        owner = self._owner

        def taken(answer: messages.InitProducerIdResponse) -> None:
            self._become(answer.producer_id, answer.producer_epoch)
            if owner.source is None:
                self._rest()
            else:
                self._ask_position(owner.source)

        request = messages.InitProducerIdRequest(transactional_id=owner.name, transaction_timeout_ms=owner.timeout_ms)
        self._step("init producer", TRANSACTION_KEY, request, lambda answer: answer.error_code, taken, 5)

    def _become(self, producer_id: int, producer_epoch: int) -> None:
        if (producer_id, producer_epoch) != (self._producer_id, self._producer_epoch):
            self._producer_id, self._producer_epoch = producer_id, producer_epoch
            self._sequences.clear()

    def _ask_position(self, source: LogPlace) -> None:
        owner = self._owner
        request = messages.OffsetFetchRequest
        topic = request.OffsetFetchRequestTopics(name=source.topic, partition_indexes=[source.partition])
        group = request.OffsetFetchRequestGroup(group_id=owner.group, topics=[topic])

        def code_of(answer: messages.OffsetFetchResponse) -> int:
            (told,) = answer.groups
            return told.error_code or told.topics[0].partitions[0].error_code

        def told(answer: messages.OffsetFetchResponse) -> None:
            offset = answer.groups[0].topics[0].partitions[0].committed_offset
            if owner._alive is self:
                self._position = owner.oracle.transactions.position(owner.group, source, offset)
            else:  # A zombie that has taken the id back goes on from there, too.
                self._position = max(offset, 0)
            self._rest()

        wanted = request(groups=[group], require_stable=True)
        self._step("positions", GROUP_KEY, wanted, code_of, told, OFFSET_FETCH_VERSION)

    def _rest(self) -> None:
        self.is_idle = True
        if not self._owner.is_stopped:
            self._owner.soon(10, 400, self._begin)

    # --- a transaction ----------------------------------------------------------------------------------------

    def _begin(self) -> None:
        owner = self._owner
        if self.is_over or owner.is_stopped:
            return
        self.is_idle = False
        if owner.source is None:
            places = self._random.sample(list(owner.places), self._random.randint(1, min(3, len(owner.places))))
            self._write({place: ["" for _ in range(self._random.randint(1, 3))] for place in sorted(places)}, None)
        else:
            self._read(owner.source)

    def _read(self, source: LogPlace) -> None:
        owner = self._owner
        leader = owner.leader(source)

        def look() -> None:
            owner.refresh(source.topic, self._rest)

        def fetched(outcome: Answered[messages.FetchResponse] | Failure) -> None:
            if self.is_over:
                return
            data = None if isinstance(outcome, Failure) else outcome.message.responses[0].partitions[0]
            if data is None or data.error_code:
                look()
                return
            records = bytes(data.records or b"")
            if not all(crc_matches(records, at, header) for at, header in iter_headers(records)):
                self._rest()
                return
            found = [record for record in iter_records(records) if record.offset >= self._position][:MOST_INPUT]
            if not found:
                self._rest()
                return
            values: dict[LogPlace, list[str]] = {}
            for record in found:
                values.setdefault(self._random.choice(list(owner.places)), []).append(f"<{source}@{record.offset}")
            self._write(dict(sorted(values.items())), found[-1].offset + 1)

        if leader is None:
            look()
        else:
            wanted = fetch_request(source, self._position, owner.leader_epoch(source))
            owner.ask(leader, wanted, fetched, TIMEOUT_MS, FETCH_VERSION)

    def _write(self, endings: dict[LogPlace, list[str]], position: int | None) -> None:
        """`endings`: what each record's value ends with."""
        owner = self._owner
        self._count += 1
        self._transaction = owner.oracle.transactions.begin(f"{self.name}#{self._count}")
        self._values = {}
        for place, each in endings.items():
            values = []
            for ending in each:
                values.append(f"{self.name}:{self._number}{ending}".encode())
                self._number += 1
            self._values[place] = values
            owner.oracle[place].sent.update(values)
            owner.oracle.transactions.send(self._transaction, place, values)
        if position is not None:
            assert owner.source is not None
            owner.oracle.transactions.carry(self._transaction, owner.group, owner.source, position)
        if owner.protocol == 1:
            self._add_partitions()
        else:
            self._produce()

    def _add_partitions(self) -> None:
        request = messages.AddPartitionsToTxnRequest
        topics: dict[str, list[int]] = {}
        for place in self._values:
            topics.setdefault(place.topic, []).append(place.partition)
        wanted = request(
            v3_and_below_transactional_id=self._owner.name,
            v3_and_below_producer_id=self._producer_id,
            v3_and_below_producer_epoch=self._producer_epoch,
            v3_and_below_topics=[
                request.AddPartitionsToTxnTopic(name=name, partitions=indexes) for name, indexes in topics.items()
            ],
        )

        def code_of(answer: messages.AddPartitionsToTxnResponse) -> int:
            codes = [
                each.partition_error_code
                for topic in answer.results_by_topic_v3_and_below
                for each in topic.results_by_partition
            ]
            failed = [code for code in codes if code and code != ErrorCode.OPERATION_NOT_ATTEMPTED]
            return failed[0] if failed else 0

        self._step(
            "add partitions", TRANSACTION_KEY, wanted, code_of, lambda answer: self._produce(), ADD_PARTITIONS_VERSION
        )

    def _produce(self) -> None:
        """To one partition after the other; then the position, then the end."""
        if self._values:
            place = next(iter(self._values))
            self._send(place, self._values.pop(place))
        elif self._transaction.carried is not None:
            self._add_offsets()
        else:
            self._choose_end()

    def _send(self, place: LogPlace, values: list[bytes]) -> None:
        owner = self._owner
        sequence = self._sequences.get(place, 0)

        def again() -> None:
            if not self.is_over:
                owner.refresh(place.topic, lambda: owner.soon(20, 150, send))

        def send() -> None:
            leader = owner.leader(place)
            if self.is_over:
                return
            if leader is None:
                again()
                return
            now_ms = owner.host.clock.wall_ms()
            records = build_batch(
                [(now_ms, None, value, None) for value in values],
                producer_id=self._producer_id,
                producer_epoch=self._producer_epoch,
                base_sequence=sequence,
                transactional=True,
            )
            request = messages.ProduceRequest
            partition = request.PartitionProduceData(index=place.partition, records=records)
            wanted = request(
                transactional_id=owner.name,
                acks=-1,
                timeout_ms=TIMEOUT_MS // 2,
                topic_data=[request.TopicProduceData(name=place.topic, partition_data=[partition])],
            )
            owner.ask(leader, wanted, answered, TIMEOUT_MS, PRODUCE_VERSIONS[owner.protocol])

        def answered(outcome: Answered[messages.ProduceResponse] | Failure) -> None:
            if self.is_over:
                return
            if isinstance(outcome, Failure):
                owner.count("produce in a transaction", outcome.kind.value)
                again()
                return
            told = outcome.message.responses[0].partition_responses[0]
            code = ErrorCode.of(told.error_code)
            if code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                code = ErrorCode.NONE
            elif code is ErrorCode.NONE:
                owner.oracle[place].acknowledge(told.base_offset, values)
            self._settle("produce in a transaction", code, again, acknowledged, None)

        def acknowledged() -> None:
            self._sequences[place] = sequence + len(values)
            self._produce()

        send()

    # --- the position in the input ------------------------------------------------------------------------------

    def _add_offsets(self) -> None:
        owner = self._owner
        if owner.protocol != 1:
            self._commit_offsets()
            return
        wanted = messages.AddOffsetsToTxnRequest(
            transactional_id=owner.name,
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            group_id=owner.group,
        )
        self._step(
            "add offsets",
            TRANSACTION_KEY,
            wanted,
            lambda answer: answer.error_code,
            lambda answer: self._commit_offsets(),
            4,
        )

    def _commit_offsets(self) -> None:
        owner, source, position = self._owner, self._owner.source, self._transaction.carried
        assert source is not None and position is not None
        request = messages.TxnOffsetCommitRequest
        partition = request.TxnOffsetCommitRequestPartition(partition_index=source.partition, committed_offset=position)
        wanted = request(
            transactional_id=owner.name,
            group_id=owner.group,
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            generation_id=-1,
            topics=[request.TxnOffsetCommitRequestTopic(name=source.topic, partitions=[partition])],
        )
        self._step(
            "commit offsets in a transaction",
            GROUP_KEY,
            wanted,
            lambda answer: answer.topics[0].partitions[0].error_code,
            lambda answer: self._choose_end(),
            OFFSET_VERSIONS[owner.protocol],
        )

    # --- the end ------------------------------------------------------------------------------------------------

    def _choose_end(self) -> None:
        chance = self._random.random()
        if chance < 0.08 and not self._owner.is_stopped:
            self._owner.witness("transaction left open")
            self._end()
        elif chance < 0.16 and not self._owner.is_stopped:
            # Somebody else takes the id, and this one goes on after a while.
            self._owner.witness("transaction of a zombie")
            self.is_idle = True
            self._owner.ended(self)
            self._owner.soon(0, 3_000, lambda: self._finish(commit=True))
        else:
            self._finish(commit=chance < 0.8)

    def _finish(self, commit: bool) -> None:
        if self.is_over:
            return
        owner, transaction = self._owner, self._transaction
        is_in_doubt = False
        if commit:
            transaction.settle(Fate.IN_DOUBT)

        def doubt() -> None:
            nonlocal is_in_doubt
            is_in_doubt = True

        def ended(answer: messages.EndTxnResponse) -> None:
            transaction.settle(Fate.COMMITTED if commit else Fate.ABORTED)
            owner.witness(f"transaction {transaction.fate.value}")
            if owner.protocol != 1:
                self._become(answer.producer_id, answer.producer_epoch)
            if commit and transaction.carried is not None:
                self._position = transaction.carried
            if owner._alive is self:
                self._rest()
            else:
                self.is_over = True

        def code_of(answer: messages.EndTxnResponse) -> int:
            code = answer.error_code
            if code in FENCING and commit and not is_in_doubt:
                transaction.settle(Fate.ABORTED)
            return code

        wanted = messages.EndTxnRequest(
            transactional_id=owner.name,
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            committed=commit,
        )
        self._step("end", TRANSACTION_KEY, wanted, code_of, ended, END_VERSIONS[owner.protocol], doubt)
