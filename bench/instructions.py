"""`python -m bench.instructions`: how many instructions a broker executes for one request of each common kind.

Times on a shared machine vary by more than most changes make; instructions, counted by valgrind's callgrind, do not. So
this tells what a change to a hot path has cost or saved: run it with `--before` and a checkout of the earlier state. It
says nothing about waiting, caches or system calls; for these there are the benchmarks.

The same requests go to both, one round after the other on one connection. Only what the broker's process executes is
counted, between two rounds, after enough of them have passed to have everything in place.
"""

from __future__ import annotations

import argparse
import shutil
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from bench.systems.tidelog import EarlierTidelog, Tidelog
from tidelog.wire import messages
from tidelog.wire.apis import ApiKey
from tidelog.wire.codec import response_codec
from tidelog.wire.errors import ErrorCode
from tidelog.wire.frame import decode_response_header, encode_request
from tidelog.wire.records import build_batch

#: requests of one kind that are sent together, where they are pipelined
PIPELINED = 20
#: The first thousand requests of a kind are timed one by one, later ones are not.
WARMUP_ROUNDS = 55
ROUNDS = 25
START_TIMEOUT_S = 180
ANSWER_TIMEOUT_S = 120
TOPIC = "counted"
GROUP = "counted-group"
TRANSACTIONAL_ID = "counted-transactions"
MISSING_VALGRIND = "valgrind is not installed: it comes with the package `valgrind` (apt install valgrind)"


class Asked(NamedTuple):
    api_key: int
    version: int
    message: Any


class CountedBroker(Tidelog):
    """A broker under callgrind; `instructions` tells what it has executed since it was last asked."""

    _dumps = 0

    def command(self) -> list[str]:
        out = self.directory / "callgrind.out"
        return ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", *super().command()]

    def instructions(self) -> int:
        self._dumps += 1
        dump = self.directory / f"callgrind.out.{self._dumps}"
        subprocess.run(["callgrind_control", "--dump", str(self.pid)], check=True, capture_output=True)
        deadline = time.monotonic() + ANSWER_TIMEOUT_S
        while not dump.exists() or (total := _total(dump)) is None:
            assert time.monotonic() < deadline, f"callgrind has not written {dump}"
            time.sleep(0.05)
        return total


def _total(dump: Path) -> int | None:
    totals = [line for line in dump.read_text().splitlines() if line.startswith("totals:")]
    return int(totals[0].split()[1]) if totals else None


class CountedEarlierBroker(CountedBroker, EarlierTidelog):
    pass


class Line:
    """One connection; requests leave in one write, then their answers are read."""

    def __init__(self, broker: CountedBroker) -> None:
        self._socket = socket.create_connection((broker.host, broker.port), timeout=ANSWER_TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._frames = self._socket.makefile("rb")

    def ask(self, *asked: Asked) -> list[Any]:
        self.send(*asked)
        return [self.answer(one) for one in asked]

    def send(self, *asked: Asked) -> None:
        frames = [part for one in asked for part in encode_request(one.api_key, one.version, 7, "bench", one.message)]
        self._socket.sendall(b"".join(frames))

    def answer(self, asked: Asked) -> Any:
        (size,) = struct.unpack(">i", self._frames.read(4))
        frame = self._frames.read(size)
        _, at = decode_response_header(asked.api_key, asked.version, frame)
        return response_codec(asked.api_key, asked.version).decode(frame, at)[0]

    def ask_one(self, asked: Asked) -> Any:
        """The answer, once it tells of no error: what a broker has just begun may not be there yet."""
        deadline = time.monotonic() + ANSWER_TIMEOUT_S
        while codes := list(error_codes(answer := self.ask(asked)[0])):
            assert time.monotonic() < deadline, f"{asked} is answered with {[ErrorCode(code).name for code in codes]}"
            time.sleep(0.05)
        return answer

    def close(self) -> None:
        self._frames.close()
        self._socket.close()


def error_codes(message: Any) -> Iterator[int]:
    """All that an answer tells of, but for NONE."""
    if code := getattr(message, "error_code", 0):
        yield code
    for name in message.__slots_in_order__:
        value = getattr(message, name)
        for one in value if isinstance(value, list) else ():
            if hasattr(one, "__slots_in_order__"):
                yield from error_codes(one)


# --- what is asked --------------------------------------------------------------------------------------


def produce(producer: tuple[int, int, int] | None = None, transactional_id: str | None = None, acks: int = 1) -> Asked:
    """`producer`: id, epoch and sequence number."""
    stamp = int(time.time() * 1000)
    producer_id, epoch, sequence = producer or (-1, -1, -1)
    batch = build_batch(
        [(stamp, None, b"x" * 100, None)],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional_id is not None,
    )
    data = messages.ProduceRequest.PartitionProduceData(index=0, records=batch)
    topic = messages.ProduceRequest.TopicProduceData(name=TOPIC, partition_data=[data])
    body = messages.ProduceRequest(transactional_id=transactional_id, acks=acks, timeout_ms=30_000, topic_data=[topic])
    return Asked(ApiKey.PRODUCE, 9, body)


def fetch(offset: int, max_wait_ms: int = 0) -> Asked:
    partition = messages.FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1000)
    topic = messages.FetchRequest.FetchTopic(topic=TOPIC, partitions=[partition])
    body = messages.FetchRequest(
        replica_id=-1, max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=1 << 20, session_epoch=-1, topics=[topic]
    )
    return Asked(ApiKey.FETCH, 12, body)


def list_offsets() -> Asked:
    partition = messages.ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)
    topic = messages.ListOffsetsRequest.ListOffsetsTopic(name=TOPIC, partitions=[partition])
    return Asked(ApiKey.LIST_OFFSETS, 6, messages.ListOffsetsRequest(replica_id=-1, topics=[topic]))


def metadata() -> Asked:
    topic = messages.MetadataRequest.MetadataRequestTopic(name=TOPIC)
    return Asked(ApiKey.METADATA, 9, messages.MetadataRequest(topics=[topic]))


def find_coordinator(key: str, key_type: int) -> Asked:
    return Asked(ApiKey.FIND_COORDINATOR, 3, messages.FindCoordinatorRequest(key=key, key_type=key_type))


def offset_commit(offset: int, member_id: str = "", generation: int = -1) -> Asked:
    request = messages.OffsetCommitRequest
    partition = request.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topic = request.OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])
    body = request(group_id=GROUP, generation_id_or_member_epoch=generation, member_id=member_id, topics=[topic])
    return Asked(ApiKey.OFFSET_COMMIT, 8, body)


def offset_fetch() -> Asked:
    request = messages.OffsetFetchRequest
    topic = request.OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])
    group = request.OffsetFetchRequestGroup(group_id=GROUP, topics=[topic])
    return Asked(ApiKey.OFFSET_FETCH, 8, request(groups=[group], require_stable=True))


def join_group(member_id: str) -> Asked:
    protocol = messages.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"\0\0\0\0\0\0\0\0\0\0")
    body = messages.JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=300_000,
        rebalance_timeout_ms=300_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[protocol],
    )
    return Asked(ApiKey.JOIN_GROUP, 7, body)


def sync_group(member_id: str, generation: int) -> Asked:
    assignment = messages.SyncGroupRequest.SyncGroupRequestAssignment(member_id=member_id, assignment=b"\0\0\0\0\0\0")
    body = messages.SyncGroupRequest(
        group_id=GROUP,
        generation_id=generation,
        member_id=member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[assignment],
    )
    return Asked(ApiKey.SYNC_GROUP, 5, body)


def heartbeat(member_id: str, generation: int) -> Asked:
    body = messages.HeartbeatRequest(group_id=GROUP, generation_id=generation, member_id=member_id)
    return Asked(ApiKey.HEARTBEAT, 4, body)


def init_producer_id(transactional_id: str | None) -> Asked:
    body = messages.InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=600_000)
    return Asked(ApiKey.INIT_PRODUCER_ID, 4, body)


def add_partitions(producer_id: int, epoch: int) -> Asked:
    request = messages.AddPartitionsToTxnRequest
    topic = request.AddPartitionsToTxnTopic(name=TOPIC, partitions=[0])
    body = request(
        v3_and_below_transactional_id=TRANSACTIONAL_ID,
        v3_and_below_producer_id=producer_id,
        v3_and_below_producer_epoch=epoch,
        v3_and_below_topics=[topic],
    )
    return Asked(ApiKey.ADD_PARTITIONS_TO_TXN, 3, body)


def add_offsets(producer_id: int, epoch: int) -> Asked:
    body = messages.AddOffsetsToTxnRequest(
        transactional_id=TRANSACTIONAL_ID, producer_id=producer_id, producer_epoch=epoch, group_id="counted-sink"
    )
    return Asked(ApiKey.ADD_OFFSETS_TO_TXN, 3, body)


def txn_offset_commit(producer_id: int, epoch: int, offset: int) -> Asked:
    request = messages.TxnOffsetCommitRequest
    partition = request.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topic = request.TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[partition])
    body = request(
        transactional_id=TRANSACTIONAL_ID,
        group_id="counted-sink",
        producer_id=producer_id,
        producer_epoch=epoch,
        topics=[topic],
    )
    return Asked(ApiKey.TXN_OFFSET_COMMIT, 3, body)


def end_txn(producer_id: int, epoch: int) -> Asked:
    body = messages.EndTxnRequest(
        transactional_id=TRANSACTIONAL_ID, producer_id=producer_id, producer_epoch=epoch, committed=True
    )
    return Asked(ApiKey.END_TXN, 3, body)


# --- what is counted ------------------------------------------------------------------------------------


class Kind(NamedTuple):
    """`round` is done again and again; its instructions are divided by `requests`."""

    name: str
    requests: int
    round: Callable[[], None]


class Counting:
    """Everything that is asked of one broker, in the same order each time."""

    def __init__(self, broker: CountedBroker) -> None:
        self._broker = broker
        self._line = Line(broker)
        self._poller = Line(broker)
        self._sequence = self._end_offset = 0

    def run(self) -> Iterator[tuple[str, int]]:
        line = self._line
        line.ask_one(metadata())
        line.ask_one(produce())
        yield from self._counted(self._of_records())
        line.ask_one(find_coordinator(GROUP, 0))
        line.ask_one(offset_commit(1))
        yield from self._counted(self._of_offsets())
        yield from self._counted(self._of_members())
        line.ask_one(find_coordinator(TRANSACTIONAL_ID, 1))
        yield from self._counted(self._of_transactions())
        self._poller.close()
        line.close()

    def _counted(self, kinds: Iterator[Kind]) -> Iterator[tuple[str, int]]:
        for kind in kinds:
            for _ in range(WARMUP_ROUNDS):
                kind.round()
            self._broker.instructions()
            for _ in range(ROUNDS):
                kind.round()
            yield kind.name, self._broker.instructions() // (ROUNDS * kind.requests)

    def _all(self, *asked: Asked) -> list[Any]:
        answers = self._line.ask(*asked)
        for one, answer in zip(asked, answers, strict=True):
            if codes := list(error_codes(answer)):
                raise AssertionError(f"{ApiKey(one.api_key).name} is answered with {ErrorCode(codes[0]).name}")
        return answers

    def _pipelined(self, name: str, asked: Callable[[], Asked]) -> Kind:
        return Kind(name, PIPELINED, lambda: self._all(*(asked() for _ in range(PIPELINED))) and None)

    def _of_records(self) -> Iterator[Kind]:
        yield self._pipelined("Produce, one record", produce)
        yield self._pipelined("Produce, one record, acks=all", lambda: produce(acks=-1))
        yield Kind("Produce, one at a time", 1, lambda: self._all(produce()) and None)
        producer_id = self._line.ask_one(init_producer_id(None)).producer_id
        yield self._pipelined("Produce, idempotent", lambda: produce((producer_id, 0, self._next_sequence())))
        yield self._pipelined("Fetch, one batch", lambda: fetch(3))
        self._end_offset = self._latest()
        yield self._pipelined("Fetch, nothing new", lambda: fetch(self._end_offset))
        yield Kind("long poll and the Produce that ends it", 1, self._poll)
        yield self._pipelined("ListOffsets", list_offsets)
        yield self._pipelined("Metadata, one topic", metadata)

    def _of_offsets(self) -> Iterator[Kind]:
        yield self._pipelined("OffsetCommit", lambda: offset_commit(1))
        yield self._pipelined("OffsetFetch", offset_fetch)

    def _of_members(self) -> Iterator[Kind]:
        member_id = self._line.ask(join_group(""))[0].member_id
        generation = 0

        def rejoin() -> None:
            nonlocal generation
            (joined,) = self._all(join_group(member_id))
            generation = joined.generation_id
            self._all(sync_group(member_id, generation))

        rejoin()
        yield self._pipelined("Heartbeat", lambda: heartbeat(member_id, generation))
        yield self._pipelined("OffsetCommit, of a member", lambda: offset_commit(1, member_id, generation))
        yield Kind("JoinGroup and SyncGroup", 1, rejoin)

    def _of_transactions(self) -> Iterator[Kind]:
        begun = self._line.ask_one(init_producer_id(TRANSACTIONAL_ID))
        producer = (begun.producer_id, begun.producer_epoch)
        self._sequence = 0

        def transaction() -> None:
            self._line.ask_one(add_partitions(*producer))
            self._all(produce((*producer, self._next_sequence()), TRANSACTIONAL_ID, acks=-1))
            self._all(end_txn(*producer))

        def with_offsets() -> None:
            self._line.ask_one(add_offsets(*producer))
            self._all(txn_offset_commit(*producer, 1))
            self._all(end_txn(*producer))

        yield Kind("transaction of one record", 1, transaction)
        yield Kind("transaction of one offset", 1, with_offsets)

    def _next_sequence(self) -> int:
        self._sequence += 1
        return self._sequence - 1

    def _latest(self) -> int:
        return int(self._all(list_offsets())[0].topics[0].partitions[0].offset)

    def _poll(self) -> None:
        poll = fetch(self._end_offset, max_wait_ms=60_000)
        self._poller.send(poll)
        time.sleep(0.05)  # it waits by then; where it does not, it reads at once what is there
        self._all(produce())
        self._end_offset += 1
        assert not list(error_codes(self._poller.answer(poll)))


def count(broker: CountedBroker) -> dict[str, int]:
    try:
        broker.start(START_TIMEOUT_S)
        return dict(Counting(broker).run())
    except Exception as error:
        error.add_note(f"the broker's log ends with\n{broker.log_tail(2000)}")
        raise
    finally:
        broker.kill()


def table(now: dict[str, int], before: dict[str, int] | None) -> str:
    if before is None:
        return "\n".join([f"{'':42}{'now':>11}", *(f"{name:42}{figure:>11,}" for name, figure in now.items())])
    lines = [f"{'':42}{'before':>11}{'now':>11}  ratio"]
    for name, figure in now.items():
        lines.append(f"{name:42}{before[name]:>11,}{figure:>11,}{figure / before[name]:7.2f}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.instructions", description="Count the instructions that a broker executes for a request."
    )
    parser.add_argument("--before", type=Path, help="another checkout of Tidelog, after `make setup`, to count beside")
    options = parser.parse_args()
    if shutil.which("valgrind") is None or shutil.which("callgrind_control") is None:
        raise SystemExit(MISSING_VALGRIND)
    before = None
    with tempfile.TemporaryDirectory(prefix="tidelog-instructions-") as parent:
        if options.before is not None:
            EarlierTidelog.checkout = options.before.resolve()
            before = count(CountedEarlierBroker(Path(parent) / "before"))
        now = count(CountedBroker(Path(parent) / "now"))
    print(table(now, before))


if __name__ == "__main__":
    main()
